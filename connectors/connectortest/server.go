// Package connectortest helps to test connectors: it serves what they ask for.
package connectortest

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"

	"github.com/flechtwerk/flechtwerk/connectors/connectortest/replay"
)

// Replay is a running replay server.
type Replay struct {
	*replay.Handler
	URL string // without a slash at its end
	// Dial connects to the server, whatever the address. It is nil for a server in the network.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// NewReplay starts a server of the folder dir, which may be "" for none, on a port of this machine. It ends with the test.
func NewReplay(t testing.TB, dir string, rules ...replay.Rule) *Replay {
	t.Helper()
	handler := newHandler(t, dir, rules)
	server := httptest.NewServer(handler)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return &Replay{Handler: handler, URL: server.URL}
}

// NewReplayInMemory is NewReplay over pipes within the process, which a testing/synctest bubble can wait for. Every host
// leads to it.
func NewReplayInMemory(t testing.TB, dir string, rules ...replay.Rule) *Replay {
	t.Helper()
	handler := newHandler(t, dir, rules)
	return &Replay{Handler: handler, URL: "http://replay.test", Dial: ServeInMemory(t, handler)}
}

func newHandler(t testing.TB, dir string, rules []replay.Rule) *replay.Handler {
	t.Helper()
	config := replay.Config{Rules: rules}
	if dir != "" {
		config.Files = os.DirFS(dir)
	}
	handler, err := replay.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return handler
}

// ServeInMemory serves handler over pipes until the test ends and returns what connects to it.
func ServeInMemory(t testing.TB, handler http.Handler) func(ctx context.Context, network, address string) (net.Conn, error) {
	t.Helper()
	l := &listener{conns: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Handler: handler}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serve in memory: %v", err)
		}
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-ended
	})
	return l.dial
}

type listener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *listener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
		return nil, &net.OpError{Op: "dial", Net: "pipe", Err: net.ErrClosed}
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "pipe"} }
