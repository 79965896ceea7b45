package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flechtwerk/flechtwerk/engine"
	"github.com/flechtwerk/flechtwerk/engine/pipeline"
)

// What scripts fetch is counted by host and by how it ended; the state of breakers is shown and logged; and the end of a run
// leaves no connection.
func TestRequestsAreCounted(t *testing.T) {
	var status, open atomic.Int32
	closed := make(chan struct{}, 100)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(status.Load())) }))
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			open.Add(1)
		}
		if s == http.StateClosed {
			open.Add(-1)
			closed <- struct{}{}
		}
	}
	server.Start()
	defer server.Close()

	var out bytes.Buffer
	m := NewMetrics(Version{})
	c := newClients()
	c.events = m.Requests(newEventLog(newLogger(&out, "logfmt", slog.LevelInfo, false), time.Now))
	p := &pipeline.Pipeline{Name: "p", Fetch: pipeline.DefaultFetch}
	p.Fetch.Breaker = pipeline.FetchBreaker{Failures: 2, Pause: 50 * time.Millisecond}
	client, err := c.of(p)
	if err != nil {
		t.Fatal(err)
	}
	get := func(want string) {
		t.Helper()
		got, err := runFetch(t, client, fmt.Sprintf("try { yield Message({ value: (await fetch('%s/a?token=secret')).status }) } catch (e) { yield Message({ value: e.code }) }", server.URL))
		if err != nil || len(got) != 1 || got[0] != want {
			t.Fatalf("%v %v, want %s", got, err, want)
		}
	}
	counted := func() string {
		var lines []string
		for _, line := range samples(t, m) {
			if strings.HasPrefix(line, "flechtwerk_http_") && !strings.Contains(line, "seconds") {
				lines = append(lines, strings.ReplaceAll(line, strings.TrimPrefix(server.URL, "http://"), "host"))
			}
		}
		return strings.Join(lines, "\n")
	}
	status.Store(200)
	get("200")
	status.Store(404)
	get("404")
	status.Store(503)
	get("503")
	get("503")
	get(`"breaker_open"`)
	want := `flechtwerk_http_breaker_open{host="host"} 1
flechtwerk_http_requests_total{code="200",host="host"} 1
flechtwerk_http_requests_total{code="404",host="host"} 1
flechtwerk_http_requests_total{code="503",host="host"} 2
flechtwerk_http_requests_total{code="breaker_open",host="host"} 1`
	if diff := cmp.Diff(want, counted()); diff != "" {
		t.Error(diff)
	}
	status.Store(200)
	for deadline := time.Now().Add(10 * time.Second); strings.Contains(counted(), "_open{host=\"host\"} 1") && time.Now().Before(deadline); {
		_, _ = runFetch(t, client, fmt.Sprintf("try { await fetch('%s/a') } catch { }", server.URL))
	}
	if !strings.Contains(counted(), `flechtwerk_http_breaker_open{host="host"} 0`) {
		t.Error(counted())
	}
	for _, want := range []string{"level=warn msg=\"a host fails and is left alone for a while\" code=fetch.breaker host=127.0.0.1:", `failures=2 last="status 503"`, `level=info msg="a host answers again"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "secret") {
		t.Error(out.String())
	}
	c.Close()
	for open.Load() > 0 {
		<-closed
	}
}

// What a script throws is in the log with its codes and causes.
func TestThrownErrorsInTheLog(t *testing.T) {
	client, err := newClients().of(&pipeline.Pipeline{Fetch: pipeline.DefaultFetch})
	if err != nil {
		t.Fatal(err)
	}
	_, failed := runFetch(t, client, "try { await fetch('http://127.0.0.1:1/') } catch (cause) { throw Object.assign(new Error('no prices', { cause }), { code: 'E_PRICES' }) }")
	var out bytes.Buffer
	l := newEventLog(newLogger(&out, "logfmt", slog.LevelInfo, false), time.Now)
	info := engine.RecordInfo{TaskInfo: task3, Topic: "in", Policy: pipeline.Fail}
	info.Err = failed
	l.Events().RecordFailed(info)
	if got := out.String(); !regexp.MustCompile(`error="Error: no prices \(f.yaml:1:\d+\)" code=script.error thrown_code=E_PRICES causes="FetchError: GET http://127.0.0.1:1/: .*connection refused`).MatchString(got) {
		t.Error(got)
	}
}

// Hosts may come from data: only so many have series of their own.
func TestHostsOfRequestsAreBounded(t *testing.T) {
	m := NewMetrics(Version{})
	for i := range maxHosts + 5 {
		if label := m.requests.label(fmt.Sprint("host", i)); (label == otherHosts) != (i >= maxHosts) {
			t.Errorf("host %d is %s", i, label)
		}
	}
	if m.requests.label("host0") != "host0" {
		t.Error("the first is not known any more")
	}
}

// A run counts what its scripts fetch.
func TestRunCountsWhatScriptsFetch(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") }))
	defer server.Close()
	path := write(t, t.TempDir(), "p.yaml", fmt.Sprintf(`pipeline: p
topics:
  out: { partitions: 1 }
extractors:
  x:
    every: 1h
    output_topics: out
    poll: |
      const r = await fetch('%s/');
      yield Message({ value: r.status });
`, server.URL))
	s := start(t, "run", "--dev", "-s", "http.listen=127.0.0.1:0", "--print", "out", path)
	s.stderr.WaitFor(t, 0, "the address", func(line string) bool { return strings.Contains(line, "HTTP for probes and metrics") })
	address := regexp.MustCompile(`for probes and metrics" address=(\S+)`).FindStringSubmatch(s.stderr.String())[1]
	s.stdout.WaitFor(t, 0, "the message", func(line string) bool { return strings.Contains(line, "200") })
	answer, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	var text bytes.Buffer
	_, _ = text.ReadFrom(answer.Body)
	if !strings.Contains(text.String(), `flechtwerk_http_requests_total{code="200",host="`+strings.TrimPrefix(server.URL, "http://")+`"} 1`) {
		t.Error("the request is not counted")
	}
	if status := s.stop(); status != 0 {
		t.Errorf("exit status %d: %s", status, s.stderr.String())
	}
}
