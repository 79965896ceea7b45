package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/flechtwerk/flechtwerk/engine/pipeline"
	"github.com/flechtwerk/flechtwerk/engine/rawjson"
	"github.com/flechtwerk/flechtwerk/engine/stream"
	"github.com/flechtwerk/flechtwerk/script"
)

// runScript runs a body once for each value, with the fetch of a pipeline, and answers the values of its messages.
func runScript(t *testing.T, p *pipeline.Pipeline, body string, values []string) ([]string, error) {
	t.Helper()
	program, err := script.Compile(script.Source{Body: stream.Text{File: "f.yaml", Line: 1, Column: 1, Text: body}})
	if err != nil {
		t.Fatal(err)
	}
	client, err := newClients().of(p)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	transform, err := program.NewTransform(script.Env{
		Outputs: []*stream.Topic{{Name: "out", Key: stream.String}}, Timeout: 30 * time.Second, Concurrency: pipeline.DefaultConcurrency,
		Fetch: fetcher(client, p.Fetch.MaxRedirects > 0),
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

// T1, T9: 500 records that each wait 100 ms take about 1 s, and their messages are in order.
func TestT1RecordsWaitTogether(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(100 * time.Millisecond) // the server's work
		_, _ = io.WriteString(w, `{"n":`+r.URL.Query().Get("n")+`}`)
	}))
	defer server.Close()
	var values []string
	for i := range 500 {
		values = append(values, fmt.Sprintf(`{"n":%d}`, i))
	}
	p := &pipeline.Pipeline{Fetch: pipeline.DefaultFetch}
	p.Fetch.BaseURL = server.URL
	began := time.Now()
	got, err := runScript(t, p, "const r = await fetch('/x', { query: { n: msg.value.n } }); yield Message({ value: (await r.json()).n })", values)
	took := time.Since(began)
	if err != nil || len(got) != len(values) {
		t.Fatal(len(got), err)
	}
	for i, value := range got {
		if value != fmt.Sprint(i) {
			t.Fatalf("message %d is %s", i, value)
		}
	}
	t.Log("500 records took", took)
	if took > 5*time.Second {
		t.Errorf("took %s; one after another they take 50 s", took)
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
