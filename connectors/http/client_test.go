package http

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flechtwerk/flechtwerk/connectors/connectortest"
	"github.com/flechtwerk/flechtwerk/connectors/connectortest/replay"
)

func newClient(t *testing.T, config Config) *Client {
	t.Helper()
	config.Proxy = "direct"
	c, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// serve is a client of a server that has rules and no files.
func serve(t *testing.T, config Config, rules ...replay.Rule) (*Client, *connectortest.Replay) {
	t.Helper()
	server := connectortest.NewReplayInMemory(t, "", rules...)
	config.Dial = server.Dial
	if config.BaseURL == "" {
		config.BaseURL = server.URL
	}
	return newClient(t, config), server
}

// whole is the status and the body of an answer, or the error that came instead of any of it.
func whole(t *testing.T, c *Client, r *Request) (status int, body string, failed *Error) {
	t.Helper()
	response, err := c.Do(t.Context(), r)
	if err != nil {
		return 0, "", asError(t, err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		failed = asError(t, err)
	}
	return response.Status, string(content), failed
}

func asError(t *testing.T, err error) *Error {
	t.Helper()
	var failed *Error
	if !errors.As(err, &failed) {
		t.Fatalf("%T %v is no *Error", err, err)
	}
	return failed
}

func TestRequestsGoOutAsTheyAreAsked(t *testing.T) {
	for _, test := range []struct {
		name    string
		config  Config
		request Request
		line    string // method and URL as they arrived
		host    string
		headers map[string][]string
		body    string
	}{
		{name: "absolute", request: Request{URL: "http://api.test/v1?b=2&a=1"}, line: "GET /v1?b=2&a=1", host: "api.test",
			headers: map[string][]string{"User-Agent": {"flechtwerk"}, "Accept": {"*/*"}, "Accept-Encoding": {"gzip, deflate"}}},
		{name: "under a base", config: Config{BaseURL: "http://api.test/v1"}, request: Request{URL: "/prices"}, line: "GET /v1/prices", host: "api.test"},
		{name: "under a base with a slash", config: Config{BaseURL: "http://api.test/v1/"}, request: Request{URL: "prices/DE"}, line: "GET /v1/prices/DE"},
		{name: "the base itself", config: Config{BaseURL: "http://api.test/v1"}, request: Request{URL: ""}, line: "GET /v1"},
		{name: "a base with a query", config: Config{BaseURL: "http://api.test/v1?lang=de"}, request: Request{URL: "x?a=1", Query: []Pair{{"b", "2"}}}, line: "GET /v1/x?lang=de&a=1&b=2"},
		{name: "absolute in spite of a base", config: Config{BaseURL: "http://api.test/v1"}, request: Request{URL: "http://other.test/"}, line: "GET /", host: "other.test"},
		{name: "escaped slash under a base", config: Config{BaseURL: "http://api.test/a%2Fb"}, request: Request{URL: "c%2Fd"}, line: "GET /a%2Fb/c%2Fd"},
		{name: "query in its order", request: Request{URL: "/?z=1", Query: []Pair{{"b", "x y"}, {"a", "&=ü"}, {"b", ""}}}, line: "GET /?z=1&b=x+y&a=%26%3D%C3%BC&b="},
		{name: "query with blanks", request: Request{URL: "/?q=a b\"ü"}, line: "GET /?q=a%20b%22%C3%BC"},
		{name: "fragment", request: Request{URL: "/a#b"}, line: "GET /a"},
		{name: "method", request: Request{Method: "delete", URL: "/"}, line: "DELETE /"},
		{name: "agent of the client", config: Config{UserAgent: "flechtwerk/1.2"}, request: Request{URL: "/"}, line: "GET /", headers: map[string][]string{"User-Agent": {"flechtwerk/1.2"}}},
		{name: "headers", request: Request{URL: "/", Headers: []Pair{{"x-a", "1"}, {"X-A", "2"}, {"user-agent", "me"}, {"accept", "text/csv"}, {"Host", "virtual.test"}}}, line: "GET /",
			host: "virtual.test", headers: map[string][]string{"X-A": {"1", "2"}, "User-Agent": {"me"}, "Accept": {"text/csv"}}},
		{name: "body", request: Request{Method: "POST", URL: "/", Body: []byte("abc")}, line: "POST /", headers: map[string][]string{"Content-Length": {"3"}}, body: "abc"},
		{name: "no body", request: Request{Method: "POST", URL: "/"}, line: "POST /", headers: map[string][]string{"Content-Length": {"0"}}},
		{name: "user", request: Request{URL: "http://ann:p%40ss@api.test/"}, line: "GET /", headers: map[string][]string{"Authorization": {"Basic YW5uOnBAc3M="}}},
		{name: "user and header", request: Request{URL: "http://ann:p@api.test/", Headers: []Pair{{"authorization", "Bearer x"}}}, line: "GET /", headers: map[string][]string{"Authorization": {"Bearer x"}}},
		{name: "range", request: Request{URL: "/", Headers: []Pair{{"Range", "bytes=1-"}}}, line: "GET /", headers: map[string][]string{"Range": {"bytes=1-"}, "Accept-Encoding": nil}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var arrived *http.Request
			var body []byte
			test.config.Dial = connectortest.ServeInMemory(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				arrived = r
				body, _ = io.ReadAll(r.Body)
				arrived.Header.Set("Content-Length", fmt.Sprint(r.ContentLength))
			}))
			if test.config.BaseURL == "" {
				test.config.BaseURL = "http://replay.test"
			}
			c := newClient(t, test.config)
			if status, _, failed := whole(t, c, &test.request); failed != nil || status != 200 {
				t.Fatalf("%d %v", status, failed)
			}
			if got := arrived.Method + " " + arrived.RequestURI; got != test.line {
				t.Errorf("%s, want %s", got, test.line)
			}
			if test.host != "" && arrived.Host != test.host {
				t.Errorf("host %s, want %s", arrived.Host, test.host)
			}
			for name, values := range test.headers {
				if diff := cmp.Diff(values, arrived.Header[name]); diff != "" {
					t.Errorf("%s: %s", name, diff)
				}
			}
			if string(body) != test.body {
				t.Errorf("body %q, want %q", body, test.body)
			}
		})
	}
}

func TestWhatCannotBeSentIsRefused(t *testing.T) {
	for _, test := range []struct {
		name    string
		config  Config
		request Request
		want    string
	}{
		{"no base", Config{}, Request{URL: "/x"}, "GET /x: the URL begins with neither http:// nor https://, and there is no base_url to complete it"},
		{"other scheme", Config{}, Request{URL: "ftp://a.test/x"}, "GET ftp://a.test/x: the URL begins with neither http:// nor https://"},
		{"no scheme", Config{BaseURL: "http://b.test"}, Request{URL: "//a.test/x"}, "GET //a.test/x: the URL begins with neither http:// nor https://"},
		{"no host", Config{}, Request{URL: "http:///x"}, "GET http:///x: the URL names no host"},
		{"host and port alone", Config{}, Request{URL: "localhost:80/x"}, "GET (unreadable URL): the URL begins with neither http:// nor https://"},
		{"password with a slash", Config{}, Request{URL: "http://ann:s3/cr3t@a.test/"}, `GET (unreadable URL): the URL cannot be read: invalid port … after host`},
		{"control character", Config{}, Request{URL: "http://a.test/\ns3cr3t"}, "GET (unreadable URL): the URL cannot be read: net/url: invalid control character in URL"},
		{"escape", Config{}, Request{URL: "http://a.test/%zz"}, "GET (unreadable URL): the URL cannot be read: invalid URL escape …"},
		{"method", Config{}, Request{Method: "G T", URL: "http://a.test/"}, "G T http://a.test/: this method cannot be sent"},
		{"connect", Config{}, Request{Method: "CONNECT", URL: "http://a.test/"}, "CONNECT http://a.test/: this method cannot be sent"},
		{"header name", Config{}, Request{URL: "http://a.test/", Headers: []Pair{{"a b", "s3cr3t"}}}, "GET http://a.test/: a header's name is empty or has a character that may not be in one"},
		{"header value", Config{}, Request{URL: "http://a.test/", Headers: []Pair{{"Authorization", "s3cr3t\n"}}}, "GET http://a.test/: the value of the header Authorization has a line break or another control character"},
		{"frame", Config{}, Request{URL: "http://a.test/", Headers: []Pair{{"content-length", "7"}}}, "GET http://a.test/: the header content-length is made by the client itself; leave it out"},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.config.Dial = func(context.Context, string, string) (net.Conn, error) {
				t.Error("it was sent")
				return nil, net.ErrClosed
			}
			_, _, failed := whole(t, newClient(t, test.config), &test.request)
			if failed == nil || failed.Code != CodeRequest || failed.Error() != test.want {
				t.Errorf("%v\nwant %s", failed, test.want)
			}
		})
	}
}

func TestWrongConfigsAreRefused(t *testing.T) {
	for want, config := range map[string]Config{
		"timeout is below 0":                                    {Timeout: -1},
		"max_bytes is below 0":                                  {MaxBytes: -1},
		"max_decompressed is below 0":                           {MaxDecompressed: -1},
		"max_redirects is below 0":                              {MaxRedirects: -1},
		"connections is below 0":                                {Connections: -1},
		"rate: a number is below 0":                             {Rate: Rate{Requests: -1}},
		"rate: it does not say how many requests":               {Rate: Rate{Burst: 3}},
		"breaker: a number is below 0":                          {Breaker: Breaker{Pause: -1}},
		"breaker: it does not say after how many failures":      {Breaker: Breaker{Pause: 1}},
		"base_url /v1: the URL begins with neither http":        {BaseURL: "/v1"},
		"base_url http://***@a.test:x: the URL cannot":          {BaseURL: "http://ann:s3cr3t@a.test:x"},
		"proxy is neither a URL":                                {Proxy: "none"},
		"proxy ftp://***@p.test: the scheme is none of http":    {Proxy: "ftp://ann:s3cr3t@p.test"},
		`base_url http:///x: the URL names no host`:             {BaseURL: "http:///x"},
		`proxy is neither a URL (http://proxy.example.com:3128`: {Proxy: "http://ann:s3/cr3t@p.test"},
	} {
		_, err := New(config)
		if strings.Contains(want, "a.test:x") {
			want = "base_url (unreadable URL): the URL cannot be read: invalid port"
		}
		if err == nil || !strings.Contains(err.Error(), "http client: "+want) || strings.Contains(err.Error(), "s3") {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestEveryStatusIsAValue(t *testing.T) {
	for _, status := range []int{200, 204, 304, 300, 400, 404, 429, 500, 503, 599} {
		c, _ := serve(t, Config{}, replay.Rule{Status: status})
		if got, _, failed := whole(t, c, &Request{URL: "/"}); failed != nil || got != status {
			t.Errorf("%d: %d %v", status, got, failed)
		}
	}
}

func TestResponsesTellWhereTheyCameFromAndHowLongItTook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := serve(t, Config{},
			replay.Rule{Path: "/a", Status: 302, Headers: map[string]string{"Location": "/b?x=1"}, Delay: replay.Duration(2 * time.Second)},
			replay.Rule{Path: "/b", Text: "ok", Headers: map[string]string{"X-A": "1"}, Delay: replay.Duration(3 * time.Second)},
		)
		r, err := c.Do(t.Context(), &Request{URL: "http://ann:pass@replay.test/a"})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		if r.URL != "http://replay.test/b?x=1" || r.Elapsed != 5*time.Second || r.Headers.Get("x-a") != "1" {
			t.Errorf("%s after %s, %v", r.URL, r.Elapsed, r.Headers)
		}
	})
}

func TestBodiesAreDecompressed(t *testing.T) {
	text := strings.Repeat("flechtwerk ", 10_000)
	compressed := func(names ...string) []byte {
		content := []byte(text)
		for _, name := range names {
			content = compress(t, name, content)
		}
		return content
	}
	for _, test := range []struct {
		name, encoding string
		sent           []byte
		want           string
		keeps          bool // the header
		code           string
	}{
		{name: "none", sent: []byte(text), want: text},
		{name: "gzip", encoding: "gzip", sent: compressed("gzip"), want: text},
		{name: "old name", encoding: "X-Gzip", sent: compressed("gzip"), want: text},
		{name: "identity", encoding: "identity", sent: []byte(text), want: text, keeps: true},
		{name: "zlib", encoding: "deflate", sent: compressed("zlib"), want: text},
		{name: "raw deflate", encoding: "deflate", sent: compressed("flate"), want: text},
		{name: "two", encoding: "deflate, gzip", sent: compressed("zlib", "gzip"), want: text},
		{name: "too many", encoding: "gzip, gzip, gzip, gzip", sent: []byte("x"), want: "x", keeps: true},
		{name: "unknown", encoding: "br", sent: []byte("x"), want: "x", keeps: true},
		{name: "empty", encoding: "gzip", sent: nil, want: "", keeps: true},
		{name: "two members", encoding: "gzip", sent: append(compressed("gzip"), compressed("gzip")...), want: text + text},
		{name: "not what it says", encoding: "gzip", sent: []byte("plain text, really"), code: CodeProtocol},
		{name: "cut off", encoding: "gzip", sent: compressed("gzip")[:40], code: CodeProtocol},
		{name: "cut off in its header", encoding: "gzip", sent: compressed("gzip")[:4], code: CodeProtocol},
		{name: "wrong sum", encoding: "gzip", sent: flip(compressed("gzip")), code: CodeProtocol},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newClient(t, Config{Dial: connectortest.ServeInMemory(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if test.encoding != "" {
					w.Header().Set("Content-Encoding", test.encoding)
				}
				w.Header().Set("Content-Length", fmt.Sprint(len(test.sent)))
				_, _ = w.Write(test.sent)
			}))})
			r, err := c.Do(t.Context(), &Request{URL: "http://replay.test/"})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Body.Close()
			body, err := io.ReadAll(r.Body)
			if test.code != "" {
				if failed := asError(t, err); failed.Code != test.code {
					t.Errorf("code %s, want %s: %v", failed.Code, test.code, failed)
				}
				return
			}
			if err != nil || string(body) != test.want {
				t.Errorf("%d bytes, want %d; %v", len(body), len(test.want), err)
			}
			if kept := r.Headers.Get("Content-Encoding") != ""; kept != test.keeps {
				t.Errorf("Content-Encoding is kept: %v, want %v", kept, test.keeps)
			}
			if kept := r.Headers.Get("Content-Length") != ""; kept != (test.keeps || test.encoding == "") {
				t.Errorf("Content-Length is kept: %v", kept)
			}
		})
	}
}

func TestH5AnswersAreBounded(t *testing.T) {
	ten := "0123456789"
	squeezed := string(compress(t, "gzip", bytes.Repeat([]byte("a"), 100_000)))
	for _, test := range []struct {
		name    string
		config  Config
		request Request
		serve   func(w http.ResponseWriter, r *http.Request)
		body    string
		code    string
		want    string
	}{
		{name: "just as long as it may be", config: Config{MaxBytes: 10}, body: ten},
		{name: "announced", config: Config{MaxBytes: 9}, code: CodeTooLarge, want: "the body is 10 bytes long, more than 9 bytes, which is the limit max_bytes"},
		{name: "not announced", config: Config{MaxBytes: 9}, code: CodeTooLarge, want: "the body is larger than 9 bytes, which is the limit max_bytes", body: "012345678",
			serve: func(w http.ResponseWriter, _ *http.Request) {
				_ = http.NewResponseController(w).Flush()
				_, _ = io.WriteString(w, ten)
			}},
		{name: "of the request", config: Config{MaxBytes: 1}, request: Request{MaxBytes: 10}, body: ten},
		{name: "below the client's", request: Request{MaxBytes: 2048},
			code: CodeTooLarge, want: "the body is 4096 bytes long, more than 2 KiB, which is the limit max_bytes",
			serve: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", "4096")
				_, _ = w.Write(make([]byte, 4096))
			}},
		{name: "decompressed", config: Config{MaxDecompressed: 1 << 10}, body: strings.Repeat("a", 1<<10), code: CodeTooLarge,
			want: "the decompressed body is larger than 1 KiB, which is the limit max_decompressed", serve: encoded("gzip", squeezed)},
		{name: "decompressed as long as it may be", config: Config{MaxDecompressed: 100_000}, body: strings.Repeat("a", 100_000), serve: encoded("gzip", squeezed)},
		{name: "decompressed, of the request", config: Config{MaxDecompressed: 1}, request: Request{MaxDecompressed: 100_000}, body: strings.Repeat("a", 100_000), serve: encoded("gzip", squeezed)},
		{name: "squeezed", config: Config{MaxBytes: 10}, code: CodeTooLarge, want: "which is the limit max_bytes", serve: encoded("gzip", squeezed)},
		{name: "header", code: CodeTooLarge, want: "the header of the answer is larger than 256 KiB, which is a fixed limit",
			serve: func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("s3cr3t", 1<<16)) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.serve == nil {
				test.serve = func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, ten) }
			}
			test.config.Dial = connectortest.ServeInMemory(t, http.HandlerFunc(test.serve))
			test.request.URL = "http://replay.test/"
			_, body, failed := whole(t, newClient(t, test.config), &test.request)
			if body != test.body {
				t.Errorf("%d bytes, want %d", len(body), len(test.body))
			}
			check(t, failed, test.code, test.want)
		})
	}
}

// check compares an error with its code and a part of its text; an empty code is no error.
func check(t *testing.T, failed *Error, code, want string) {
	t.Helper()
	switch {
	case code == "" && failed != nil:
		t.Errorf("%v", failed)
	case code == "":
	case failed == nil || failed.Code != code || !strings.Contains(failed.Error(), want):
		t.Errorf("%+v\nwant %s: %s", failed, code, want)
	case strings.Contains(failed.Error(), "s3cr3t"):
		t.Errorf("a secret in %v", failed)
	}
}

func TestH5TimeIsBounded(t *testing.T) {
	second := replay.Duration(time.Second)
	for _, test := range []struct {
		name    string
		config  Config
		request Request
		rules   []replay.Rule
		after   time.Duration
		want    string
	}{
		{"no answer", Config{}, Request{}, []replay.Rule{{Fault: replay.Hang}}, 30 * time.Second, "took longer than 30s, which is the limit timeout, while waiting for the answer"},
		{"of the client", Config{Timeout: 2 * time.Second}, Request{}, []replay.Rule{{Fault: replay.Hang}}, 2 * time.Second, "longer than 2s"},
		{"of the request", Config{Timeout: 2 * time.Second}, Request{Timeout: time.Hour}, []replay.Rule{{Fault: replay.Hang}}, time.Hour, "longer than 1h0m0s"},
		{"half a body", Config{}, Request{}, []replay.Rule{{Text: "0123456789", Fault: replay.Stall}}, 30 * time.Second, "while reading the answer"},
		{"drop by drop", Config{}, Request{Timeout: 5500 * time.Millisecond}, []replay.Rule{{Text: "0123456789", Drip: &replay.Drip{Bytes: 1, Every: second}}}, 5500 * time.Millisecond, "while reading the answer"},
		{"over redirects", Config{Timeout: 2500 * time.Millisecond}, Request{}, []replay.Rule{{Status: 302, Headers: map[string]string{"Location": "/"}, Delay: second}}, 2500 * time.Millisecond, "longer than 2.5s"},
		{"at the end of a redirect", Config{Timeout: 50 * time.Millisecond, Rate: Rate{Requests: 1}}, Request{}, []replay.Rule{{Status: 302, Text: "moved", Headers: map[string]string{"Location": "/"}, Fault: replay.Stall}}, 50 * time.Millisecond, "longer than 50ms"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _ := serve(t, test.config, test.rules...)
				test.request.URL = "/?token=s3cr3t"
				began := time.Now()
				_, _, failed := whole(t, c, &test.request)
				check(t, failed, CodeTimeout, test.want)
				if took := time.Since(began); took != test.after {
					t.Errorf("after %s, want %s", took, test.after)
				}
				if !errors.Is(failed, context.DeadlineExceeded) {
					t.Error("it is no context.DeadlineExceeded")
				}
			})
		})
	}
}

func TestTheCallerMayGiveUp(t *testing.T) {
	reason := errors.New("the partition was revoked")
	for name, rule := range map[string]replay.Rule{
		"while it waits": {Fault: replay.Hang},
		"while it reads": {Text: "0123456789", Fault: replay.Stall},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, server := serve(t, Config{}, rule)
				ctx, cancel := context.WithCancelCause(t.Context())
				go func() {
					if err := server.Await(ctx, 1); err != nil {
						t.Error(err)
					}
					<-time.After(time.Second)
					cancel(reason)
				}()
				r, err := c.Do(ctx, &Request{URL: "/"})
				if err == nil {
					_, err = io.ReadAll(r.Body)
				}
				failed := asError(t, err)
				check(t, failed, CodeCancelled, "the partition was revoked")
				if !errors.Is(failed, reason) {
					t.Error("the cause is lost")
				}
			})
		})
	}
}

func TestWhatGoesWrongHasACode(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connect: connection refused")}
	for _, test := range []struct {
		name string
		rule replay.Rule
		dial error
		code string
		want string
	}{
		{"refused", replay.Rule{}, refused, CodeConnect, "GET http://replay.test/: dial tcp: connect: connection refused"},
		{"no such host", replay.Rule{}, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "replay.test", IsNotFound: true}}, CodeDNS, "lookup replay.test: no such host"},
		{"closed", replay.Rule{Fault: replay.Close}, nil, CodeConnect, "the server closed the connection before it answered, while waiting for the answer"},
		{"no HTTP", replay.Rule{Fault: replay.Garbage}, nil, CodeProtocol, "the answer is not as it should be: HTTP/1.x transport connection broken: malformed HTTP status code …"},
		{"broken off", replay.Rule{Text: "0123456789", Fault: replay.Truncate}, nil, CodeProtocol, "the body broke off after 5 of 10 bytes"},
		{"location", replay.Rule{Status: 301, Headers: map[string]string{"Location": "ftp://ann:s3cr3t@a.test"}}, nil, CodeRedirects, "status 301 points to where no request can go (Location: ftp://***@a.test)"},
		{"location without sense", replay.Rule{Status: 301, Headers: map[string]string{"Location": "http://%zz"}}, nil, CodeRedirects, "status 301 points to where no request can go (Location: (unreadable URL))"},
		{"loop", replay.Rule{Fault: replay.Loop}, nil, CodeRedirects, "more than 10 redirects, which is the limit max_redirects"},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := connectortest.NewReplayInMemory(t, "", test.rule)
			config := Config{Dial: server.Dial}
			if test.dial != nil {
				config.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, test.dial }
			}
			_, _, failed := whole(t, newClient(t, config), &Request{URL: "http://replay.test/"})
			check(t, failed, test.code, test.want)
			if failed != nil && (failed.Method != http.MethodGet || failed.Host != "replay.test") {
				t.Errorf("%s %s", failed.Method, failed.Host)
			}
		})
	}
}

func TestEncryptionThatIsNotTrustedHasACode(t *testing.T) {
	secure := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer secure.Close()
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer plain.Close()
	trusting := secure.Client().Transport.(*http.Transport).TLSClientConfig

	_, _, failed := whole(t, newClient(t, Config{}), &Request{URL: secure.URL})
	check(t, failed, CodeTLS, "certificate signed by unknown authority")
	_, _, failed = whole(t, newClient(t, Config{}), &Request{URL: strings.Replace(plain.URL, "http:", "https:", 1)})
	check(t, failed, CodeTLS, "the server does not speak TLS here; is it http:// rather than https://?")
	status, _, failed := whole(t, newClient(t, Config{TLS: trusting}), &Request{URL: secure.URL})
	check(t, failed, "", "")
	if status != 200 {
		t.Errorf("status %d with the right certificate", status)
	}
}

func TestHTTP2IsSpokenWhereTheServerDoes(t *testing.T) {
	handler, err := replay.New(replay.Config{Rules: []replay.Rule{
		{Path: "/gzip", Text: strings.Repeat("a", 1<<20), Encoding: "gzip"},
		{Path: "/close", Fault: replay.Close},
		{Path: "/half", Text: "0123456789", Fault: replay.Truncate},
		{Path: "/hang", Fault: replay.Hang},
		{Path: "/", Text: "ok", Headers: map[string]string{"X-A": "1"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	protocols := map[string]bool{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		protocols[r.Proto] = true
		mu.Unlock()
		handler.ServeHTTP(w, r)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	c := newClient(t, Config{BaseURL: server.URL, TLS: server.Client().Transport.(*http.Transport).TLSClientConfig})

	status, body, failed := whole(t, c, &Request{URL: "/gzip"})
	check(t, failed, "", "")
	if status != 200 || len(body) != 1<<20 {
		t.Errorf("%d with %d bytes", status, len(body))
	}
	_, _, failed = whole(t, c, &Request{URL: "/close"})
	check(t, failed, CodeProtocol, "the answer is not as it should be")
	_, body, failed = whole(t, c, &Request{URL: "/half"})
	check(t, failed, CodeProtocol, "the answer is not as it should be")
	if body != "01234" {
		t.Errorf("half a body: %q", body)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		if err := handler.Await(ctx, 4); err != nil {
			t.Error(err)
		}
		cancel()
	}()
	_, err = c.Do(ctx, &Request{URL: "/hang"})
	check(t, asError(t, err), CodeCancelled, "context canceled")
	if _, body, failed = whole(t, c, &Request{URL: "/"}); failed != nil || body != "ok" {
		t.Errorf("%q %v", body, failed)
	}
	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff(map[string]bool{"HTTP/2.0": true}, protocols); diff != "" {
		t.Error(diff)
	}
}

func TestProxiesAreUsed(t *testing.T) {
	proxy := connectortest.NewReplay(t, "", replay.Rule{Method: "CONNECT", Status: 407}, replay.Rule{Text: "by proxy"})
	c, err := New(Config{Proxy: strings.Replace(proxy.URL, "http://", "http://ann:s3cr3t@", 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, body, failed := whole(t, c, &Request{URL: "http://far.test/x"}); failed != nil || body != "by proxy" {
		t.Fatalf("%q %v", body, failed)
	}
	got := proxy.Requests()[0]
	if got.URL != "http://far.test/x" && got.URL != "/x" || got.Header.Get("Proxy-Authorization") == "" {
		t.Errorf("the proxy was asked for %s with %v", got.URL, got.Header)
	}
	_, _, failed := whole(t, c, &Request{URL: "https://far.test/x"})
	check(t, failed, CodeConnect, "Proxy Authentication Required")
}

func TestRedirectsAreFollowedAsAsked(t *testing.T) {
	to := func(status int, location string) replay.Rule {
		return replay.Rule{Path: "/from", Status: status, Headers: map[string]string{"Location": location}}
	}
	post := Request{Method: "POST", Body: []byte("abc"), Headers: []Pair{{"Content-Type", "text/plain"}, {"X-Trace", "1"}}}
	with := func(r Request, change func(*Request)) Request {
		change(&r)
		return r
	}
	for _, test := range []struct {
		name    string
		rule    replay.Rule
		request Request
		status  int
		second  string // method, URL, body of the second request; "" for none
		code    string
		want    string
	}{
		{name: "301", rule: to(301, "/to?a=1"), status: 200, second: "GET /to?a=1 "},
		{name: "301 of POST", rule: to(301, "/to"), request: post, status: 200, second: "GET /to "},
		{name: "302 of POST", rule: to(302, "/to"), request: post, status: 200, second: "GET /to "},
		{name: "302 of PUT", rule: to(302, "/to"), request: with(post, func(r *Request) { r.Method = "PUT" }), status: 200, second: "PUT /to abc"},
		{name: "303 of PUT", rule: to(303, "/to"), request: with(post, func(r *Request) { r.Method = "PUT" }), status: 200, second: "GET /to "},
		{name: "303 of HEAD", rule: to(303, "/to"), request: Request{Method: "HEAD"}, status: 200, second: "HEAD /to "},
		{name: "307 of POST", rule: to(307, "/to"), request: post, status: 200, second: "POST /to abc"},
		{name: "308 of POST", rule: to(308, "/to"), request: post, status: 200, second: "POST /to abc"},
		{name: "no location", rule: replay.Rule{Path: "/from", Status: 302}, status: 302},
		{name: "300", rule: to(300, "/to"), status: 300},
		{name: "304", rule: to(304, "/to"), status: 304},
		{name: "manual", rule: to(302, "/to"), request: Request{Redirect: Manual}, status: 302},
		{name: "refused", rule: to(302, "/to?token=s3cr3t"), request: Request{Redirect: Refuse}, code: CodeRedirects, want: "status 302 points to /to?token=***, and redirects are refused"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, server := serve(t, Config{}, test.rule, replay.Rule{Path: "/to", Text: "there"})
			test.request.URL = "/from"
			status, _, failed := whole(t, c, &test.request)
			check(t, failed, test.code, test.want)
			if status != test.status {
				t.Errorf("status %d, want %d", status, test.status)
			}
			requests := server.Requests()
			if len(requests) == 1 {
				if test.second != "" {
					t.Error("it was not followed")
				}
				return
			}
			second := requests[1]
			if got := second.String() + " " + string(second.Body); got != test.second {
				t.Errorf("%s, want %s", got, test.second)
			}
			if test.request.Body != nil && (second.Header.Get("Content-Type") != "") != (len(second.Body) > 0) || second.Header.Get("X-Trace") != requests[0].Header.Get("X-Trace") {
				t.Errorf("headers %v", second.Header)
			}
		})
	}
}

func TestARedirectKeepsTheVirtualHostAndLeavesUsersBehind(t *testing.T) {
	var hosts []string
	dial := connectortest.ServeInMemory(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hosts = append(hosts, r.Host)
		if to := r.URL.Query().Get("to"); to != "" {
			http.Redirect(w, r, to, http.StatusFound)
		}
	}))
	c := newClient(t, Config{Dial: dial})
	virtual := []Pair{{"Host", "virtual.test"}}
	for location, want := range map[string]string{"/there": "http://a.test/there", "http://ann:s3cr3t@b.test/": "http://b.test/"} {
		r, err := c.Do(t.Context(), &Request{URL: "http://ann:s3cr3t@a.test/", Query: []Pair{{"to", location}}, Headers: virtual})
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
		if r.URL != want {
			t.Errorf("%s, want %s", r.URL, want)
		}
	}
	r, err := c.Do(t.Context(), &Request{URL: "http://ann:s3cr3t@a.test/x"})
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Body.Close()
	if r.URL != "http://a.test/x" {
		t.Errorf("%s", r.URL)
	}
	slices.Sort(hosts)
	if diff := cmp.Diff([]string{"a.test", "b.test", "virtual.test", "virtual.test", "virtual.test"}, hosts); diff != "" {
		t.Error(diff)
	}
}

func TestARedirectThatDroppedTheBodyDoesNotBringItBack(t *testing.T) {
	c, server := serve(t, Config{},
		replay.Rule{Path: "/a", Status: 303, Headers: map[string]string{"Location": "/b"}},
		replay.Rule{Path: "/b", Status: 307, Headers: map[string]string{"Location": "/c"}},
		replay.Rule{Path: "/c", Text: "there"},
	)
	if _, body, failed := whole(t, c, &Request{Method: "POST", URL: "/a", Body: []byte("abc")}); failed != nil || body != "there" {
		t.Fatalf("%q %v", body, failed)
	}
	if last := server.Requests()[2]; last.String() != "GET /c" || len(last.Body) > 0 {
		t.Errorf("%s %q", last, last.Body)
	}
}

// TestH6SecretsStayWithTheirHost follows redirects and looks at which secrets come along.
func TestH6SecretsStayWithTheirHost(t *testing.T) {
	headers := []Pair{{"Authorization", "Bearer s3cr3t"}, {"X-Api-Key", "s3cr3t"}, {"Cookie", "s3cr3t"}, {"X-Plain", "1"}}
	for _, test := range []struct {
		from, to string
		keeps    bool
	}{
		{"http://a.test/from", "/to", true},
		{"http://a.test/from", "http://a.test/to", true},
		{"http://a.test/from", "http://A.test:80/to", true},
		{"http://a.test/from", "http://b.test/to", false},
		{"http://a.test/from", "http://a.test.b.test/to", false},
		{"http://a.test/from", "http://a.test:8080/to", false},
		{"http://a.test/from", "http://x.a.test/to", false},
	} {
		t.Run(test.from+" "+test.to, func(t *testing.T) {
			c, server := serve(t, Config{}, replay.Rule{Path: "/from", Status: 302, Headers: map[string]string{"Location": test.to}}, replay.Rule{Path: "/to", Text: "there"})
			if _, body, failed := whole(t, c, &Request{URL: test.from, Headers: headers}); failed != nil || body != "there" {
				t.Fatalf("%q %v", body, failed)
			}
			second := server.Requests()[1].Header
			for _, h := range headers {
				if want := test.keeps || h.Name == "X-Plain"; (second.Get(h.Name) != "") != want {
					t.Errorf("%s came along: %v, want %v", h.Name, !want, want)
				}
			}
			if second.Get("Referer") != "" {
				t.Error("it tells where it comes from")
			}
		})
	}
	for _, test := range []struct {
		from, to string
		leaves   bool
	}{
		{"http://a.test/", "https://a.test/", false},
		{"https://a.test/", "http://a.test/", true},
		{"https://a.test/", "https://a.test:8443/", true},
		{"http://a.test/", "https://b.test/", true},
	} {
		from, _ := parseURL(test.from)
		to, _ := parseURL(test.to)
		if leavesHome(from, to) != test.leaves {
			t.Errorf("%s to %s leaves home: %v, want %v", test.from, test.to, !test.leaves, test.leaves)
		}
	}
}

// TestH6NoErrorHoldsASecret makes every kind of error with secrets wherever they may be.
func TestH6NoErrorHoldsASecret(t *testing.T) {
	for name, test := range map[string]struct {
		config  Config
		request Request
		rules   []replay.Rule
	}{
		"closed":    {rules: []replay.Rule{{Fault: replay.Close}}},
		"garbage":   {rules: []replay.Rule{{Fault: replay.Garbage}}},
		"hang":      {rules: []replay.Rule{{Fault: replay.Hang}}},
		"stall":     {rules: []replay.Rule{{Text: "s3cr3t s3cr3t", Fault: replay.Stall}}},
		"truncated": {rules: []replay.Rule{{Text: "s3cr3t s3cr3t", Fault: replay.Truncate}}},
		"large":     {config: Config{MaxBytes: 3}, rules: []replay.Rule{{Text: "s3cr3t"}}},
		"loop":      {rules: []replay.Rule{{Fault: replay.Loop}}},
		"location":  {rules: []replay.Rule{{Status: 301, Headers: map[string]string{"Location": "gopher://s3cr3t:s3cr3t@a.test?sig=s3cr3t"}}}},
		"refused":   {request: Request{Redirect: Refuse}, rules: []replay.Rule{{Status: 301, Headers: map[string]string{"Location": "https://s3cr3t@a.test?sig=s3cr3t"}}}},
		"gzip":      {rules: []replay.Rule{{Text: "s3cr3t s3cr3t", Headers: map[string]string{"Content-Encoding": "gzip"}}}},
		"breaker": {config: Config{Breaker: Breaker{Failures: 1}}, rules: []replay.Rule{
			{Status: 302, Headers: map[string]string{"Location": "/again?token=s3cr3t"}, Times: 1}, {Status: 500}}},
		"header": {request: Request{Headers: []Pair{{"X", "s3cr3t\r\n"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _ := serve(t, test.config, test.rules...)
				r := test.request
				r.URL = "http://s3cr3t:s3cr3t@replay.test/a?api_key=s3cr3t&accessToken=s3cr3t"
				r.Headers = append(r.Headers, Pair{"Authorization", "Bearer s3cr3t"}, Pair{"X-Api-Key", "s3cr3t"})
				r.Body = []byte("s3cr3t")
				_, _, failed := whole(t, c, &r)
				if name == "breaker" {
					_, _, failed = whole(t, c, &r)
				}
				if failed == nil {
					t.Fatal("it did not fail")
				}
				for err := error(failed); err != nil; err = errors.Unwrap(err) {
					if strings.Contains(err.Error(), "s3cr3t") {
						t.Errorf("%v", err)
					}
				}
			})
		})
	}
}

// TestConnectionsAreUsedAgain counts connections over requests whose bodies are read, closed early, or never looked at.
func TestConnectionsAreUsedAgain(t *testing.T) {
	small, large := strings.Repeat("a", 1000), strings.Repeat("a", 10<<20)
	for _, test := range []struct {
		name string
		rule replay.Rule
		use  func(*Response) error
		want int
	}{
		{"read", replay.Rule{Text: large}, func(r *Response) error { _, err := io.Copy(io.Discard, r.Body); return err }, 1},
		{"read and closed", replay.Rule{Text: small}, func(r *Response) error {
			_, err := io.Copy(io.Discard, r.Body)
			return errors.Join(err, r.Body.Close(), r.Body.Close())
		}, 1},
		{"closed at once", replay.Rule{Text: small}, func(r *Response) error { return r.Body.Close() }, 1},
		{"no body", replay.Rule{Status: 204}, func(*Response) error { return nil }, 1},
		{"redirect", replay.Rule{Status: 302, Text: small, Headers: map[string]string{"Location": "/to"}, Path: "/"}, func(r *Response) error { return r.Body.Close() }, 1},
		{"closed with much left", replay.Rule{Text: large}, func(r *Response) error { return r.Body.Close() }, 5},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := connectortest.NewReplayInMemory(t, "", test.rule, replay.Rule{Text: small, Encoding: "gzip"})
			var mu sync.Mutex
			dials := 0
			c := newClient(t, Config{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				mu.Lock()
				dials++
				mu.Unlock()
				return server.Dial(ctx, network, address)
			}})
			for range 5 {
				r, err := c.Do(t.Context(), &Request{URL: "http://replay.test/"})
				if err != nil {
					t.Fatal(err)
				}
				if err := test.use(r); err != nil {
					t.Fatal(err)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if dials != test.want {
				t.Errorf("%d connections for 5 requests, want %d", dials, test.want)
			}
		})
	}
}

func TestNothingIsAskedTwice(t *testing.T) {
	for _, rule := range []replay.Rule{{Status: 503}, {Status: 429}, {Fault: replay.Close}, {Text: "0123456789", Fault: replay.Truncate}, {Fault: replay.Garbage}} {
		c, server := serve(t, Config{}, rule)
		_, _, _ = whole(t, c, &Request{URL: "/"})
		_, _, _ = whole(t, c, &Request{Method: "POST", URL: "/", Body: []byte("x")})
		if n := len(server.Requests()); n != 2 {
			t.Errorf("%+v: %d requests for 2", rule, n)
		}
	}
}

func TestABodyThatIsForgottenEndsWithItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := serve(t, Config{Connections: 1}, replay.Rule{Text: "0123456789", Fault: replay.Stall, Times: 1}, replay.Rule{Text: "ok"})
		forgotten, err := c.Do(t.Context(), &Request{URL: "/"})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, body, failed := whole(t, c, &Request{URL: "/"}); failed != nil || body != "ok" {
			t.Errorf("%q %v", body, failed)
		}
		if waited := time.Since(began); waited != defaultTimeout {
			t.Errorf("the next request waited %s, want %s", waited, defaultTimeout)
		}
		_, err = io.ReadAll(forgotten.Body)
		check(t, asError(t, err), CodeTimeout, "while reading the answer")
	})
}

func TestAClosedBodyGivesNoMore(t *testing.T) {
	c, _ := serve(t, Config{}, replay.Rule{Text: "0123456789"})
	r, err := c.Do(t.Context(), &Request{URL: "/"})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Body.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = r.Body.Read(make([]byte, 1))
	check(t, asError(t, err), CodeCancelled, "the body was closed")
}

func TestClosingABodyThatStallsTakesNotLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := serve(t, Config{}, replay.Rule{Text: "0123456789", Fault: replay.Stall})
		r, err := c.Do(t.Context(), &Request{URL: "/"})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := r.Body.Close(); err != nil || time.Since(began) != drainTime {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

func TestEventsTellOfEachRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []string
		c, _ := serve(t, Config{
			Breaker: Breaker{Failures: 2, Pause: time.Hour},
			Events: Events{
				RequestDone: func(i RequestInfo) {
					events = append(events, fmt.Sprintf("%s, waited %s", i, i.Waited))
				},
				BreakerOpened: func(i BreakerInfo) { events = append(events, "opened "+i.String()) },
				BreakerClosed: func(i BreakerInfo) { events = append(events, "closed "+i.String()) },
			},
		},
			replay.Rule{Path: "/a", Status: 302, Headers: map[string]string{"Location": "/b"}, Delay: replay.Duration(time.Second)},
			replay.Rule{Path: "/b", Text: "0123456789", Drip: &replay.Drip{Bytes: 5, Every: replay.Duration(time.Second)}},
			replay.Rule{Path: "/c", Text: "0123456789", Fault: replay.Truncate},
			replay.Rule{Path: "/d", Status: 204},
			replay.Rule{Path: "/e", Status: 302, Headers: map[string]string{"Location": "ftp://a.test"}},
		)
		for _, path := range []string{"/a", "/e", "/c", "/c", "/d"} {
			_, _, _ = whole(t, c, &Request{URL: path})
		}
		<-time.After(time.Hour)
		_, _, _ = whole(t, c, &Request{URL: "/d"})
		want := []string{
			"GET replay.test: 302, 0 bytes in 1s, waited 0s",
			"GET replay.test: 200, 10 bytes in 1s, waited 0s",
			"GET replay.test: redirects after 0s, waited 0s",
			"GET replay.test: protocol after 0s, waited 0s",
			"opened replay.test: 2 failures one after another, the last one: protocol",
			"GET replay.test: protocol after 0s, waited 0s",
			"GET replay.test: breaker_open after 0s, waited 0s",
			"closed replay.test: 2 failures one after another, the last one: protocol",
			"GET replay.test: 204, 0 bytes in 0s, waited 0s",
		}
		if diff := cmp.Diff(want, events); diff != "" {
			t.Error(diff)
		}
	})
}

func encoded(encoding, content string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", encoding)
		_, _ = io.WriteString(w, content)
	}
}

// flip changes the check sum at the end of a gzip text.
func flip(content []byte) []byte {
	content[len(content)-6] ^= 1
	return content
}
