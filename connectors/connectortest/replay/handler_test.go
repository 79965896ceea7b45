package replay_test

import (
	"compress/gzip"
	"compress/zlib"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flechtwerk/flechtwerk/connectors/connectortest"
	"github.com/flechtwerk/flechtwerk/connectors/connectortest/replay"
)

var modified = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func folder() fstest.MapFS {
	return fstest.MapFS{
		"feed.json":     {Data: []byte(`{"n":1}`), ModTime: modified},
		"log/lines.txt": {Data: []byte("0123456789"), ModTime: modified},
		"odd.bin":       {Data: []byte{0, 1}, ModTime: modified},
	}
}

func newHandler(t *testing.T, rules ...replay.Rule) *replay.Handler {
	t.Helper()
	h, err := replay.New(replay.Config{Files: folder(), Rules: rules})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func ask(h http.Handler, method, target string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestFilesAreServedWithRangesAndConditions(t *testing.T) {
	h := newHandler(t)
	tag := ask(h, "GET", "/log/lines.txt").Header().Get("ETag")
	if len(tag) < 10 {
		t.Fatalf("ETag %q", tag)
	}
	date := modified.Format(http.TimeFormat)
	for _, test := range []struct {
		name, method, path string
		headers            []string
		status             int
		body               string
		want               map[string]string
	}{
		{"whole", "GET", "/log/lines.txt", nil, 200, "0123456789", map[string]string{
			"Content-Type": "text/plain; charset=utf-8", "Last-Modified": date, "Accept-Ranges": "bytes", "Content-Length": "10"}},
		{"json", "GET", "/feed.json?x=1", nil, 200, `{"n":1}`, map[string]string{"Content-Type": "application/json"}},
		{"unknown type", "GET", "/odd.bin", nil, 200, "\x00\x01", map[string]string{"Content-Type": "application/octet-stream"}},
		{"head", "HEAD", "/log/lines.txt", nil, 200, "", map[string]string{"Content-Length": "10", "Etag": tag}},
		{"missing", "GET", "/nothing", nil, 404, "", nil},
		{"folder", "GET", "/log", nil, 404, "", nil},
		{"above", "GET", "/log/../../feed.json", nil, 200, `{"n":1}`, nil},
		{"same tag", "GET", "/log/lines.txt", []string{"If-None-Match", tag}, 304, "", map[string]string{"Etag": tag}},
		{"other tag", "GET", "/log/lines.txt", []string{"If-None-Match", `"x"`}, 200, "0123456789", nil},
		{"not modified", "GET", "/log/lines.txt", []string{"If-Modified-Since", date}, 304, "", nil},
		{"modified", "GET", "/log/lines.txt", []string{"If-Modified-Since", modified.Add(-time.Second).Format(http.TimeFormat)}, 200, "0123456789", nil},
		{"range", "GET", "/log/lines.txt", []string{"Range", "bytes=4-"}, 206, "456789", map[string]string{"Content-Range": "bytes 4-9/10"}},
		{"range at the end", "GET", "/log/lines.txt", []string{"Range", "bytes=10-"}, 416, "", map[string]string{"Content-Range": "bytes */10"}},
		{"range of another version", "GET", "/log/lines.txt", []string{"Range", "bytes=4-", "If-Range", `"x"`}, 200, "0123456789", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := ask(h, test.method, test.path, test.headers...)
			if w.Code != test.status || test.status < 400 && w.Body.String() != test.body {
				t.Errorf("%d %q, want %d %q", w.Code, w.Body, test.status, test.body)
			}
			for name, value := range test.want {
				if got := w.Header().Get(name); got != value {
					t.Errorf("%s: %q, want %q", name, got, value)
				}
			}
		})
	}
}

func TestRulesAnswer(t *testing.T) {
	for _, test := range []struct {
		name    string
		rule    replay.Rule
		method  string
		path    string
		headers []string
		status  int
		body    string
		want    map[string]string
	}{
		{"status", replay.Rule{Status: 403}, "GET", "/feed.json", nil, 403, "", nil},
		{"status with a body", replay.Rule{Status: 400, Text: "no"}, "GET", "/feed.json", nil, 400, "no", map[string]string{"Content-Type": "text/plain; charset=utf-8"}},
		{"json", replay.Rule{JSON: []byte(`[1]`)}, "GET", "/feed.json", nil, 200, "[1]", map[string]string{"Content-Type": "application/json"}},
		{"another file", replay.Rule{File: "feed.json"}, "GET", "/v1/any", nil, 200, `{"n":1}`, nil},
		{"headers", replay.Rule{Headers: map[string]string{"Link": "<x>", "Content-Type": "a/b", "ETag": "", "Last-Modified": ""}}, "GET", "/feed.json", nil, 200, `{"n":1}`,
			map[string]string{"Link": "<x>", "Content-Type": "a/b", "Etag": "", "Last-Modified": ""}},
		{"retry after seconds", replay.Rule{Status: 429, RetryAfter: replay.Seconds(120)}, "GET", "/feed.json", nil, 429, "", map[string]string{"Retry-After": "120"}},
		{"range ignored", replay.Rule{Range: "ignore"}, "GET", "/log/lines.txt", []string{"Range", "bytes=4-"}, 200, "0123456789", map[string]string{"Accept-Ranges": ""}},
		{"loop", replay.Rule{Fault: replay.Loop}, "GET", "/feed.json?a=1", nil, 302, "", map[string]string{"Location": "/feed.json?a=1"}},
		{"encoding not accepted", replay.Rule{Encoding: "gzip"}, "GET", "/feed.json", nil, 200, `{"n":1}`, map[string]string{"Content-Encoding": ""}},
		{"other method", replay.Rule{Method: "POST", Status: 201}, "GET", "/feed.json", nil, 200, `{"n":1}`, nil},
		{"method", replay.Rule{Method: "POST", Status: 201}, "POST", "/feed.json", nil, 201, "", nil},
		{"pattern", replay.Rule{Path: "/items/*", Status: 410}, "GET", "/items/7", nil, 410, "", nil},
		{"pattern of another depth", replay.Rule{Path: "/items/*", Status: 410}, "GET", "/items/7/x", nil, 404, "404", nil},
		{"query", replay.Rule{Query: map[string]string{"page": "2"}, Text: "two"}, "GET", "/feed.json?x=1&page=2", nil, 200, "two", nil},
		{"other query", replay.Rule{Query: map[string]string{"page": "2"}, Text: "two"}, "GET", "/feed.json?page=3", nil, 200, `{"n":1}`, nil},
		{"header", replay.Rule{Header: map[string]string{"Authorization": "Bearer x"}, Text: "in"}, "GET", "/", []string{"Authorization", "Bearer x"}, 200, "in", nil},
		{"other header", replay.Rule{Header: map[string]string{"Authorization": "Bearer x"}, Text: "in"}, "GET", "/", nil, 404, "", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := ask(newHandler(t, test.rule), test.method, test.path, test.headers...)
			if w.Code != test.status || test.status != 404 && w.Body.String() != test.body {
				t.Errorf("%d %q, want %d %q", w.Code, w.Body, test.status, test.body)
			}
			for name, value := range test.want {
				if got := w.Header().Get(name); got != value {
					t.Errorf("%s: %q, want %q", name, got, value)
				}
			}
		})
	}
}

func TestRetryAfterAsADateIsCountedFromTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, replay.Rule{Status: 429, RetryDate: replay.Seconds(90)})
		for range 2 {
			at, err := http.ParseTime(ask(h, "GET", "/x").Header().Get("Retry-After"))
			if err != nil || time.Until(at) != 90*time.Second {
				t.Errorf("%v (%v), want 90 s from now", at, err)
			}
			<-time.After(time.Hour)
		}
	})
}

func TestEncodedAnswersKeepTheirTag(t *testing.T) {
	for encoding, open := range map[string]func(io.Reader) (io.ReadCloser, error){
		"gzip":    func(r io.Reader) (io.ReadCloser, error) { return gzip.NewReader(r) },
		"deflate": zlib.NewReader,
	} {
		h := newHandler(t, replay.Rule{Encoding: encoding})
		w := ask(h, "GET", "/feed.json", "Accept-Encoding", "gzip, deflate")
		if got := w.Header().Get("Content-Encoding"); got != encoding {
			t.Fatalf("Content-Encoding %q, want %q", got, encoding)
		}
		r, err := open(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(r); err != nil || string(body) != `{"n":1}` {
			t.Errorf("%s: %q %v", encoding, body, err)
		}
		again := ask(h, "GET", "/feed.json", "Accept-Encoding", "gzip, deflate", "If-None-Match", w.Header().Get("ETag"))
		if again.Code != 304 || again.Body.Len() != 0 {
			t.Errorf("%s: %d with %d bytes, want 304", encoding, again.Code, again.Body.Len())
		}
	}
}

func TestRulesFollowOneAnother(t *testing.T) {
	h := newHandler(t,
		replay.Rule{Path: "/feed.json", Status: 429, Times: 1},
		replay.Rule{Path: "/feed.json", Status: 503, Times: 2},
	)
	var got []int
	for range 5 {
		got = append(got, ask(h, "GET", "/feed.json").Code)
	}
	if diff := cmp.Diff([]int{429, 503, 503, 200, 200}, got); diff != "" {
		t.Error(diff)
	}
	var rules []int
	for _, r := range h.Requests() {
		rules = append(rules, r.Rule)
	}
	if diff := cmp.Diff([]int{0, 1, 1, -1, -1}, rules); diff != "" {
		t.Error(diff)
	}
}

func TestFilesGrow(t *testing.T) {
	h := newHandler(t, replay.Rule{Path: "/log/*", Grow: &replay.Grow{From: 3, By: 4}})
	var bodies []string
	tags := map[string]bool{}
	for range 4 {
		w := ask(h, "GET", "/log/lines.txt")
		bodies = append(bodies, w.Body.String())
		tags[w.Header().Get("ETag")] = true
	}
	if diff := cmp.Diff([]string{"012", "0123456", "0123456789", "0123456789"}, bodies); diff != "" {
		t.Error(diff)
	}
	if len(tags) != 3 {
		t.Errorf("%d tags for 3 lengths", len(tags))
	}
}

func TestFilesArePutAndAppended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // so that all of it happens at one time
		h := newHandler(t)
		h.Append("new.csv", []byte("a\n"))
		first := ask(h, "GET", "/new.csv")
		h.Append("new.csv", []byte("b\n"))
		rest := ask(h, "GET", "/new.csv", "Range", "bytes=2-")
		if first.Body.String() != "a\n" || rest.Code != 206 || rest.Body.String() != "b\n" {
			t.Errorf("%q, then %d %q", first.Body, rest.Code, rest.Body)
		}
		h.Put("feed.json", []byte(`{"n":2}`))
		two := ask(h, "GET", "/feed.json")
		h.Put("feed.json", []byte(`{"n":3}`))
		three := ask(h, "GET", "/feed.json", "If-None-Match", two.Header().Get("ETag"))
		if two.Body.String() != `{"n":2}` || three.Body.String() != `{"n":3}` {
			t.Errorf("%q, then %d %q", two.Body, three.Code, three.Body)
		}
	})
}

func TestRequestsAreLogged(t *testing.T) {
	h := newHandler(t)
	waited := make(chan error, 1)
	go func() { waited <- h.Await(t.Context(), 2) }()
	r := httptest.NewRequest(http.MethodPost, "/a?b=c", strings.NewReader("body"))
	r.Header.Set("X", "y")
	h.ServeHTTP(httptest.NewRecorder(), r)
	ask(h, "GET", "/feed.json")
	if err := <-waited; err != nil {
		t.Fatal(err)
	}
	got := h.Requests()
	want := []replay.Request{
		{Method: "POST", URL: "/a?b=c", Header: http.Header{"X": {"y"}}, Body: []byte("body"), Rule: -1},
		{Method: "GET", URL: "/feed.json", Header: http.Header{}, Body: []byte{}, Rule: -1},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.Await(ctx, 3); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "2 requests have arrived while waiting for 3") {
		t.Errorf("%v", err)
	}
}

// TestFaults asks over a connection, since most faults are of it.
func TestFaults(t *testing.T) {
	for _, test := range []struct {
		fault replay.Fault
		fails bool
		body  string
		ends  error // of the body
	}{
		{replay.Close, true, "", nil},
		{replay.Garbage, true, "", nil},
		{replay.Truncate, false, "01234", io.ErrUnexpectedEOF},
		{replay.Short, false, "01234", nil},
	} {
		t.Run(string(test.fault), func(t *testing.T) {
			server := connectortest.NewReplayInMemory(t, "", replay.Rule{Text: "0123456789", Fault: test.fault})
			transport := &http.Transport{DialContext: server.Dial, DisableKeepAlives: true}
			r, err := (&http.Client{Transport: transport}).Get(server.URL)
			if test.fails != (err != nil) {
				t.Fatalf("error %v", err)
			}
			if err != nil {
				return
			}
			defer r.Body.Close()
			body, err := io.ReadAll(r.Body)
			if string(body) != test.body || !errors.Is(err, test.ends) {
				t.Errorf("%q %v, want %q %v", body, err, test.body, test.ends)
			}
		})
	}
}

func TestHangAndStallLastUntilTheClientLeaves(t *testing.T) {
	for fault, status := range map[replay.Fault]int{replay.Hang: 0, replay.Stall: 200} {
		synctest.Test(t, func(t *testing.T) {
			server := connectortest.NewReplayInMemory(t, "", replay.Rule{Text: "0123456789", Fault: fault})
			transport := &http.Transport{DialContext: server.Dial}
			defer transport.CloseIdleConnections()
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			request, _ := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
			began := time.Now()
			r, err := (&http.Client{Transport: transport}).Do(request)
			got, body := 0, []byte(nil)
			if err == nil {
				got = r.StatusCode
				body, err = io.ReadAll(r.Body)
				r.Body.Close()
			}
			if got != status || len(body) != map[int]int{200: 5}[status] || !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Hour {
				t.Errorf("%s: status %d, body %q, %v after %s", fault, got, body, err, time.Since(began))
			}
		})
	}
}

func TestDelayAndDripTakeTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := connectortest.NewReplayInMemory(t, "", replay.Rule{
			Text: "0123456789", Delay: replay.Duration(time.Minute), Drip: &replay.Drip{Bytes: 4, Every: replay.Duration(time.Second)},
		})
		transport := &http.Transport{DialContext: server.Dial}
		defer transport.CloseIdleConnections()
		began := time.Now()
		r, err := (&http.Client{Transport: transport}).Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		var pieces []string
		for buffer := make([]byte, 100); ; {
			n, err := r.Body.Read(buffer)
			if n > 0 {
				pieces = append(pieces, time.Since(began).String()+" "+string(buffer[:n]))
			}
			if err != nil {
				break
			}
		}
		if diff := cmp.Diff([]string{"1m0s 0123", "1m1s 4567", "1m2s 89"}, pieces); diff != "" {
			t.Error(diff)
		}
	})
}

func TestAFolderHoldsItsOwnRules(t *testing.T) {
	files := folder()
	files[replay.RulesFile] = &fstest.MapFile{Data: []byte(`{"rules": [
		{"path": "/feed.json", "status": 429, "retry_after": "2s", "times": 1},
		{"path": "/feed.json", "text": "dripped", "drip": {"bytes": 100, "every": "0s"}, "times": 1}
	]}`)}
	h, err := replay.New(replay.Config{Files: files})
	if err != nil {
		t.Fatal(err)
	}
	first, second, third := ask(h, "GET", "/feed.json"), ask(h, "GET", "/feed.json"), ask(h, "GET", "/feed.json")
	if first.Code != 429 || first.Header().Get("Retry-After") != "2" || second.Body.String() != "dripped" || third.Body.String() != `{"n":1}` {
		t.Errorf("%d %v, %q, %q", first.Code, first.Header(), second.Body, third.Body)
	}
	if got := ask(h, "GET", "/"+replay.RulesFile).Code; got != 404 {
		t.Errorf("the rules are served: %d", got)
	}
}

func TestWrongRulesAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{"rules": [{"path": "["}]}`:                             `rule 1: path "[": syntax error in pattern`,
		`{"rules": [{}, {"status": 99}]}`:                        "rule 2: status 99 is none of 200 to 599",
		`{"rules": [{"times": -1}]}`:                             "rule 1: times is below 0",
		`{"rules": [{"text": "a", "json": 1}]}`:                  "only one of text, json and file can be the body",
		`{"rules": [{"retry_after": "1s", "retry_date": "1s"}]}`: "only one of retry_after and retry_date",
		`{"rules": [{"encoding": "br"}]}`:                        `encoding "br" is neither gzip nor deflate`,
		`{"rules": [{"range": "no"}]}`:                           `range "no" is not "ignore"`,
		`{"rules": [{"grow": {"from": -1}}]}`:                    "grow is below 0",
		`{"rules": [{"drip": {}}]}`:                              "drip needs bytes above 0",
		`{"rules": [{"fault": "explode"}]}`:                      `fault "explode" is not known`,
		`{"rules": [{"delay": 5}]}`:                              `replay.json: a duration is a text such as "2s"`,
		`{"rules": [{"delay": "soon"}]}`:                         `replay.json: time: invalid duration "soon"`,
		`{"rules": [{"stauts": 200}]}`:                           `replay.json: json: unknown field "stauts"`,
		`{"rules": [`:                                            "replay.json: unexpected EOF",
	} {
		_, err := replay.New(replay.Config{Files: fstest.MapFS{replay.RulesFile: {Data: []byte(text)}}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
