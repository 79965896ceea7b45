package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	client "github.com/flechtwerk/flechtwerk/connectors/http"
	"github.com/flechtwerk/flechtwerk/engine/pipeline"
	"github.com/flechtwerk/flechtwerk/engine/rawjson"
	"github.com/flechtwerk/flechtwerk/engine/stream"
	"github.com/flechtwerk/flechtwerk/script"
)

// runScript runs a body once for each value, with the fetch of a pipeline, and answers the values of its messages.
func runScript(t testing.TB, p *pipeline.Pipeline, body string, values []string) ([]string, error) {
	t.Helper()
	c := newClients()
	client, err := c.of(p)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return runWith(t, client, p.Fetch.MaxRedirects > 0, body, values)
}

// runFetch runs a body once.
func runFetch(t testing.TB, client *client.Client, body string) ([]string, error) {
	t.Helper()
	return runWith(t, client, true, body, []string{"{}"})
}

func runWith(t testing.TB, client *client.Client, follow bool, body string, values []string) ([]string, error) {
	t.Helper()
	program, err := script.Compile(script.Source{Body: stream.Text{File: "f.yaml", Line: 1, Column: 1, Text: body}})
	if err != nil {
		t.Fatal(err)
	}
	transform, err := program.NewTransform(script.Env{
		Outputs: []*stream.Topic{{Name: "out", Key: stream.String}}, Timeout: 30 * time.Second, Concurrency: pipeline.DefaultConcurrency,
		Fetch: fetcher(client, follow),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer transform.Close()
	batch := &stream.Batch{Fail: func(_ int, err error) error { return err }}
	in := &stream.Input{Name: "in", Topic: stream.Topic{Name: "in", Key: stream.String}}
	for i, value := range values {
		kind, members, err := rawjson.Check([]byte(value), nil)
		if err != nil {
			t.Fatal(err)
		}
		batch.Records = append(batch.Records, stream.Record{Input: in, Key: fmt.Appendf(nil, "k%d", i), Value: []byte(value), Kind: kind, Members: members})
	}
	err = transform.Run(t.Context(), batch)
	var got []string
	for _, m := range batch.Messages {
		got = append(got, string(m.Value))
	}
	return got, err
}

// T1, T9: the records of a batch wait together, 64 at once, and their messages are in order. The server answers nobody before
// 64 requests are there: one after another they would wait for ever.
func TestT1RecordsWaitTogether(t *testing.T) {
	const records = 500
	var mu sync.Mutex
	waiting, answered := 0, 0
	var gate chan struct{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		if gate == nil {
			gate = make(chan struct{})
		}
		mine := gate
		if waiting++; waiting == pipeline.DefaultConcurrency || answered+waiting == records {
			answered += waiting
			waiting, gate = 0, nil
			close(mine)
		}
		mu.Unlock()
		<-mine
		_, _ = io.WriteString(w, `{"n":`+r.URL.Query().Get("n")+`}`)
	}))
	defer server.Close()
	got := fetchAll(t, server.URL, records)
	for i, value := range got {
		if value != fmt.Sprint(i) {
			t.Fatalf("message %d is %s", i, value)
		}
	}
}

// fetchAll runs a body that asks url once per record, and answers the messages.
func fetchAll(t testing.TB, url string, records int) []string {
	t.Helper()
	var values []string
	for i := range records {
		values = append(values, fmt.Sprintf(`{"n":%d}`, i))
	}
	p := &pipeline.Pipeline{Fetch: pipeline.DefaultFetch}
	p.Fetch.BaseURL = url
	got, err := runScript(t, p, "const r = await fetch('/x', { query: { n: msg.value.n } }); yield Message({ value: (await r.json()).n })", values)
	if err != nil || len(got) != len(values) {
		t.Fatal(len(got), err)
	}
	return got
}

// BenchmarkFetch500 is a batch of 500 records that each wait 100 ms for an answer.
func BenchmarkFetch500(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-time.After(100 * time.Millisecond) // the server's work
		_, _ = io.WriteString(w, `{"n":`+r.URL.Query().Get("n")+`}`)
	}))
	defer server.Close()
	for b.Loop() {
		fetchAll(b, server.URL, 500)
	}
}

func TestFetchOfAPipeline(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/echo":
			body, _ := io.ReadAll(r.Body)
			w.Header().Set("X-Seen", r.UserAgent()+" "+r.Header.Get("Authorization")+" "+r.Header.Get("Content-Type"))
			_, _ = fmt.Fprintf(w, "%s %s %s", r.Method, r.URL.RawQuery, body)
		case "/large":
			_, _ = io.WriteString(w, strings.Repeat("x", 2000))
		case "/moved":
			http.Redirect(w, r, "/echo", http.StatusFound)
		case "/slow":
			<-r.Context().Done()
		default:
			http.Error(w, "there is no such thing", http.StatusNotFound)
		}
	}))
	defer server.Close()
	p := &pipeline.Pipeline{Fetch: pipeline.DefaultFetch}
	p.Fetch.BaseURL, p.Fetch.UserAgent, p.Fetch.MaxBytes = server.URL, "tanks/1", 1000
	for name, c := range map[string]struct{ body, want, err string }{
		"defaults":      {body: "const r = await fetch('/echo', { method: 'put', query: { a: [1, 'b c'] }, json: { x: 1 }, auth: { bearer: 's3cr3t' } }); yield Message({ value: [await r.text(), r.headers.get('x-seen'), r.status, r.ok] })", want: `["PUT a=1&a=b+c {\"x\":1}","tanks/1 Bearer s3cr3t application/json",200,true]`},
		"status":        {body: "const r = await fetch('/nothing'); yield Message({ value: [r.status, r.ok] })", want: "[404,false]"},
		"expected":      {body: "await fetch('/nothing?api_key=s3cr3t', { expect: [200, 304] })", err: "answered 404"},
		"redirect":      {body: "yield Message({ value: (await fetch('/moved', { redirect: 'manual' })).status })", want: "302"},
		"followed":      {body: "yield Message({ value: (await fetch('/moved')).url.endsWith('/echo') })", want: "true"},
		"code of time":  {body: "try { await fetch('/slow', { timeout: 50 }) } catch (e) { yield Message({ value: [e.name, e.code] }) }", want: `["FetchError","timeout"]`},
		"code of size":  {body: "try { await fetch('/large') } catch (e) { yield Message({ value: e.code }) }", want: `"too_large"`},
		"no connection": {body: "try { await fetch('http://127.0.0.1:1/?token=s3cr3t') } catch (e) { yield Message({ value: [e.code, e.message.includes('s3cr3t')] }) }", want: `["connect",false]`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := runScript(t, p, c.body, []string{"{}"})
			if c.err != "" {
				var e *script.Error
				if !errors.As(err, &e) || !strings.Contains(e.Error(), c.err) || strings.Contains(e.Error(), "s3cr3t") {
					t.Error(err)
				}
				return
			}
			if err != nil || len(got) != 1 || got[0] != c.want {
				t.Errorf("got %s, want %s: %v", got, c.want, err)
			}
		})
	}
}

// The pipeline's fetch: reaches the client of its scripts, and what is known of a host is shared by all pipelines and their
// http: stages.
func TestFetchOfPipelinesIsOne(t *testing.T) {
	p := &pipeline.Pipeline{Fetch: pipeline.DefaultFetch}
	f := &p.Fetch
	f.UserAgent, f.BaseURL, f.Timeout, f.MaxBytes, f.MaxRedirects = "a/1", "http://h", 7*time.Second, 99, 3
	f.Rate.Requests, f.Rate.Per = 5, time.Minute
	f.Breaker.Failures, f.Breaker.Pause = 2, time.Hour
	c := newClients()
	defer c.Close()
	want := client.Config{
		Hosts: c.hosts, UserAgent: "a/1", BaseURL: "http://h", Timeout: 7 * time.Second, MaxBytes: 99, MaxDecompressed: 99, MaxRedirects: 3,
		Rate: client.Rate{Requests: 5, Per: time.Minute}, Breaker: client.Breaker{Failures: 2, Pause: time.Hour},
	}
	if diff := cmp.Diff(want, c.config(p), cmp.Comparer(func(a, b *client.Hosts) bool { return a == b }), cmpopts.IgnoreFields(client.Config{}, "Events")); diff != "" {
		t.Error(diff)
	}

	var asked, connections atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		switch r.URL.Path {
		case "/around":
			http.Redirect(w, r, "/around", http.StatusFound)
		case "/broken":
			w.WriteHeader(http.StatusBadGateway)
		}
	}))
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	of := func() *client.Client {
		p := &pipeline.Pipeline{Fetch: *f}
		p.Fetch.BaseURL, p.Fetch.Rate = server.URL, pipeline.DefaultFetch.Rate
		made, err := c.of(p)
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	one, other := of(), of()
	codeOf := func(of *client.Client, path string) string {
		got, err := runFetch(t, of, "try { yield Message({ value: (await fetch('"+path+"')).status }) } catch (e) { yield Message({ value: e.code }) }")
		if err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
		return got[0]
	}
	if got := codeOf(one, "/around"); got != `"redirects"` || asked.Load() != 4 {
		t.Errorf("%s after %d requests", got, asked.Load())
	}
	if got := codeOf(one, "/broken"); got != "502" {
		t.Error(got)
	}
	if got := codeOf(other, "/broken"); got != "502" {
		t.Error(got)
	}
	before := asked.Load()
	for _, of := range []*client.Client{one, other} {
		if got := codeOf(of, "/fine"); got != `"breaker_open"` || asked.Load() != before {
			t.Errorf("%s, and %d requests more", got, asked.Load()-before)
		}
	}
	if n := connections.Load(); n != 2 {
		t.Errorf("%d connections, not one for each pipeline", n)
	}
}
