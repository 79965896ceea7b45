package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/flechtwerk/flechtwerk/engine"
)

type answer struct {
	status int
	body   string
}

// get asks a server, which it runs for the time of the question.
func get(t testing.TB, s *Server, path string) answer {
	t.Helper()
	go s.Run(context.WithoutCancel(t.Context()))
	resp, err := http.Get("http://" + s.Address() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, string(body)}
}

func TestProbes(t *testing.T) {
	status := engine.Status{Stages: []engine.StageStatus{{Pipeline: "tanks", Stage: "alerts", Kind: "transformer", Joined: true, Tasks: []engine.TaskStatus{
		{Task: 0, Phase: "running"}, {Task: 1, Phase: "restoring", Restored: 25, RestoreEnd: 100},
	}}}}
	extractor := engine.Status{Ready: true, Stages: []engine.StageStatus{{Pipeline: "tanks", Stage: "prices", Kind: "extractor", Joined: true, Polled: 2, Configs: []engine.ConfigStatus{
		{Config: "de", State: engine.ConfigBackingOff, Error: "no answer", Since: time.UnixMilli(1500), Failures: 3},
	}}}}
	ready := status
	ready.Ready = true
	for _, c := range []struct {
		path   string
		status engine.Status
		want   int
		text   string
	}{
		{"/healthz", status, 200, "ok\n"},
		{"/ping", status, 200, "pong\n"},
		{"/ready", status, 503, "not ready"},
		{"/ready", ready, 200, "OK\n"},
		{"/readyz", ready, 200, `"ready": true`},
		{"/readyz", engine.Status{}, 503, `"stages": []`},
		{"/readyz", status, 503, `          "task": 1,
          "phase": "restoring",
          "restore": {
            "offset": 25,
            "end": 100,
            "done": 0.25
          }`},
		{"/readyz", extractor, 200, `      "tasks": [],
      "polled": 2,
      "configs": [
        {
          "config": "de",
          "state": "backing off",
          "error": "no answer",
          "since": "1970-01-01T00:00:01.5Z",
          "failures": 3
        }
      ]`},
		{"/none", status, 404, ""},
	} {
		s, _, err := NewServer(ServerConfig{Address: "127.0.0.1:0", Registry: prometheus.NewRegistry(), Status: func() engine.Status { return c.status }})
		if err != nil {
			t.Fatal(err)
		}
		if got := get(t, s, c.path); got.status != c.want || !strings.Contains(got.body, c.text) {
			t.Errorf("%s: %d %s", c.path, got.status, got.body)
		}
		s.Close()
		s.Close()
	}
}

func TestPortIsTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := ServerConfig{Address: l.Addr().String(), Registry: prometheus.NewRegistry()}
	if _, _, err := NewServer(c); !errors.Is(err, engine.ErrSurroundings) || !strings.Contains(err.Error(), "http.listen") {
		t.Errorf("got %v", err)
	}
	c.AnyPort = true
	s, occupied, err := NewServer(c)
	if err != nil || !occupied || s.Address() == c.Address {
		t.Fatalf("got %v, %v", occupied, err)
	}
	s.Close()
}
