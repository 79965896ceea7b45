package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/flechtwerk/flechtwerk/engine"
)

// Server answers what an orchestrator and Prometheus ask. It only reads.
type Server struct {
	listener net.Listener
	server   *http.Server
}

// ServerConfig is what a Server is made of.
type ServerConfig struct {
	Address  string // host:port
	AnyPort  bool   // take a free port where that of Address is taken
	Registry *prometheus.Registry
	Status   func() engine.Status
}

// NewServer listens, so that a port that is taken is known before anything starts. occupied tells that another port was
// taken in its place.
func NewServer(c ServerConfig) (s *Server, occupied bool, err error) {
	l, err := net.Listen("tcp", c.Address)
	if err != nil && c.AnyPort {
		host, _, splitErr := net.SplitHostPort(c.Address)
		if splitErr == nil {
			occupied = true
			l, err = net.Listen("tcp", net.JoinHostPort(host, "0"))
		}
	}
	if err != nil {
		return nil, false, fmt.Errorf("listen for HTTP on %s (setting http.listen; off turns it off): %w: %w", c.Address, err, engine.ErrSurroundings)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /ping", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "pong") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		status := c.Status()
		text, err := json.MarshalIndent(readyOf(status), "", "  ")
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(readyStatus(status))
		fmt.Fprintf(w, "%s\n", text)
	})
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		status := c.Status()
		w.WriteHeader(readyStatus(status))
		if status.Ready {
			fmt.Fprintln(w, "OK")
		} else {
			fmt.Fprintln(w, "not ready; /readyz says why")
		}
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(c.Registry, promhttp.HandlerOpts{}))
	return &Server{listener: l, server: &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       time.Minute,
	}}, occupied, nil
}

// Address is where the server listens.
func (s *Server) Address() string { return s.listener.Addr().String() }

// Run serves until ctx is done.
func (s *Server) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { s.server.Close() })
	defer stop()
	if err := s.server.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve HTTP: %w", err)
	}
	return nil
}

// Close stops listening. It may be called more than once, and after Run.
func (s *Server) Close() { s.server.Close(); s.listener.Close() }

func readyStatus(s engine.Status) int {
	if s.Ready {
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}

// ready is the JSON of /readyz.
type ready struct {
	Ready  bool         `json:"ready"`
	Stages []readyStage `json:"stages"`
}

type readyStage struct {
	Pipeline string      `json:"pipeline"`
	Stage    string      `json:"stage"`
	Kind     string      `json:"kind"`
	Joined   bool        `json:"joined"`
	Tasks    []readyTask `json:"tasks"`
	// Of an extractor.
	Polled  *int          `json:"polled,omitempty"`  // configs
	Configs []readyConfig `json:"configs,omitempty"` // those of them that are in trouble
	// Of one whose messages come by themselves.
	Session *readySession `json:"session,omitempty"`
}

type readySession struct {
	Connected  bool   `json:"connected"`
	Error      string `json:"error,omitempty"`
	Inbox      int    `json:"inbox"` // messages that are not acknowledged
	InboxBytes int64  `json:"inbox_bytes"`
}

// readyConfig is a config in trouble. It takes nothing from readiness: the instance does what it can.
type readyConfig struct {
	Config   string             `json:"config"`
	State    engine.ConfigState `json:"state"`
	Error    string             `json:"error"`
	Since    time.Time          `json:"since"`
	Failures int                `json:"failures"` // in a row
}

type readyTask struct {
	Task    int32         `json:"task"`
	Phase   string        `json:"phase"`
	Restore *readyRestore `json:"restore,omitempty"`
}

type readyRestore struct {
	Offset int64   `json:"offset"`
	End    int64   `json:"end"`
	Done   float64 `json:"done"` // 0 to 1
}

func readyOf(s engine.Status) ready {
	out := ready{Ready: s.Ready, Stages: []readyStage{}}
	for _, stage := range s.Stages {
		rs := readyStage{Pipeline: stage.Pipeline, Stage: stage.Stage, Kind: stage.Kind, Joined: stage.Joined, Tasks: []readyTask{}}
		for _, t := range stage.Tasks {
			rt := readyTask{Task: t.Task, Phase: t.Phase}
			if t.Phase == "restoring" {
				rt.Restore = &readyRestore{Offset: t.Restored, End: t.RestoreEnd}
				if t.RestoreEnd > 0 {
					rt.Restore.Done = float64(t.Restored) / float64(t.RestoreEnd)
				}
			}
			rs.Tasks = append(rs.Tasks, rt)
		}
		if stage.Kind == "extractor" {
			rs.Polled = &stage.Polled
		}
		if s := stage.Session; s != nil {
			rs.Session = &readySession{Connected: s.Connected, Error: s.Error, Inbox: s.Held, InboxBytes: s.HeldBytes}
		}
		for _, c := range stage.Configs {
			c.Since = c.Since.UTC().Truncate(time.Millisecond)
			rs.Configs = append(rs.Configs, readyConfig(c))
		}
		out.Stages = append(out.Stages, rs)
	}
	return out
}
