package connectortest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// patience is how long the suite waits for what should happen.
const patience = 20 * time.Second

// SessionKind is what the suite of sessions must know of a kind of session. Every message becomes one record whose value is
// the message's own.
type SessionKind struct {
	// New makes a session, always of the same identity: what one has not acknowledged comes to the next.
	New func(t *testing.T) stream.Session
	// Send makes the source tell values, in order. It returns when the source is bound to deliver them to the session, or to
	// a later one.
	Send func(t *testing.T, values ...string)
	// Acknowledged waits until the source knows that at least n messages are acknowledged, and answers all that are, in the
	// order in which it was told. n 0 does not wait.
	Acknowledged func(t *testing.T, n int) []string
}

// Sessions checks what stream.Session promises. kind is called for each test anew, with a source of its own.
func Sessions(t *testing.T, kind func(t *testing.T) SessionKind) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, k SessionKind)
	}{
		{"acknowledges after the commit, in order", acknowledgesAfterCommit},
		{"an error of the commit acknowledges nothing", errorAcknowledgesNothing},
		{"a page under way is finished", finishesThePage},
		{"a page that is not done in time comes again", endsWithinGrace},
		{"ends while nothing happens", endsWhileIdle},
		{"keeps order through many pages", keepsOrder},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, kind(t)) })
	}
}

// kafka is what a session commits to.
type kafka struct {
	mu        sync.Mutex
	committed []string
	grown     chan struct{}
	gate      func(ctx context.Context) error
	within    int // calls of Commit that have not returned
}

func (k *kafka) commit(ctx context.Context, page *stream.Page) error {
	k.mu.Lock()
	k.within++
	beside := k.within > 1
	gate := k.gate
	k.mu.Unlock()
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.within--
	}()
	if beside {
		return errors.New("two commits at once")
	}
	if gate != nil {
		if err := gate(ctx); err != nil {
			return err
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, m := range page.Messages {
		k.committed = append(k.committed, string(m.Value))
	}
	close(k.grown)
	k.grown = make(chan struct{})
	return nil
}

func (k *kafka) wait(t *testing.T, n int) []string {
	t.Helper()
	over := time.After(patience)
	for {
		k.mu.Lock()
		committed, grown := slices.Clone(k.committed), k.grown
		k.mu.Unlock()
		if len(committed) >= n {
			return committed
		}
		select {
		case <-grown:
		case <-over:
			t.Fatalf("%d of %d messages are committed: %q", len(committed), n, committed)
		}
	}
}

// run is one run of a session.
type run struct {
	t       *testing.T
	kafka   *kafka
	session stream.Session
	cancel  context.CancelFunc // it is told to end
	expire  context.CancelFunc // its time is over
	ended   chan error
	before  goleak.Option
}

func start(t *testing.T, k SessionKind, gate func(context.Context) error) *run {
	t.Helper()
	r := &run{t: t, kafka: &kafka{grown: make(chan struct{}), gate: gate}, ended: make(chan error, 1), before: goleak.IgnoreCurrent()}
	r.session = k.New(t)
	ctx, cancel := context.WithCancel(t.Context())
	grace, expire := context.WithCancel(context.Background())
	r.cancel, r.expire = cancel, expire
	t.Cleanup(func() { cancel(); expire() })
	push := &stream.Push{
		Configs: func() ([]stream.Config, <-chan struct{}) {
			return []stream.Config{{Key: "default", Value: []byte("{}")}}, nil
		},
		Lookup: func() stream.Configs { return nil },
		Commit: r.kafka.commit,
		Gather: 10 * time.Millisecond,
		Grace:  grace,
	}
	go func() { r.ended <- r.session.Run(ctx, push) }()
	return r
}

// end waits for the end of the run and checks that nothing is left of it.
func (r *run) end() error {
	r.t.Helper()
	select {
	case err := <-r.ended:
		r.expire()
		r.session.Close()
		r.session.Close()
		if status := r.session.Status(); status.Connected || status.Subscribed {
			r.t.Errorf("after its end: %+v", status)
		}
		// The source may still be at the end of the connection.
		if err := goleak.Find(r.before); err != nil {
			r.t.Error(err)
		}
		return err
	case <-time.After(patience):
		r.t.Fatal("the session does not end")
		return nil
	}
}

func values(from, to int) []string {
	var all []string
	for i := from; i < to; i++ {
		all = append(all, fmt.Sprintf("message %d", i))
	}
	return all
}

func want(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// blocked is a gate that tells when it is reached, and opens when told to.
func blocked() (gate func(context.Context) error, reached <-chan struct{}, open func()) {
	in, out := make(chan struct{}, 1000), make(chan struct{})
	gate = func(ctx context.Context) error {
		in <- struct{}{}
		select {
		case <-out:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return gate, in, sync.OnceFunc(func() { close(out) })
}

func reach(t *testing.T, reached <-chan struct{}) {
	t.Helper()
	select {
	case <-reached:
	case <-time.After(patience):
		t.Fatal("nothing is committed")
	}
}

// begin has one message through, so that the session is known to listen.
func begin(t *testing.T, k SessionKind) {
	t.Helper()
	r := start(t, k, nil)
	k.Send(t, "first")
	r.kafka.wait(t, 1)
	k.Acknowledged(t, 1)
	r.cancel()
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
}

func acknowledgesAfterCommit(t *testing.T, k SessionKind) {
	begin(t, k)
	gate, reached, open := blocked()
	r := start(t, k, gate)
	k.Send(t, values(0, 10)...)
	reach(t, reached)
	want(t, "acknowledged before the commit", k.Acknowledged(t, 0), []string{"first"})
	open()
	want(t, "committed", r.kafka.wait(t, 10), values(0, 10))
	want(t, "acknowledged", k.Acknowledged(t, 11), append([]string{"first"}, values(0, 10)...))
	r.cancel()
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

func errorAcknowledgesNothing(t *testing.T, k SessionKind) {
	begin(t, k)
	fenced := errors.New("fenced")
	r := start(t, k, func(context.Context) error { return fenced })
	k.Send(t, values(0, 5)...)
	if err := r.end(); !errors.Is(err, fenced) {
		t.Errorf("it ended with %v", err)
	}
	want(t, "acknowledged", k.Acknowledged(t, 0), []string{"first"})
	r = start(t, k, nil)
	want(t, "committed by the next", r.kafka.wait(t, 5), values(0, 5))
	k.Acknowledged(t, 6)
	r.cancel()
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

func finishesThePage(t *testing.T, k SessionKind) {
	begin(t, k)
	gate, reached, open := blocked()
	r := start(t, k, gate)
	k.Send(t, "under way")
	reach(t, reached)
	r.cancel()
	open()
	if err := r.end(); err != nil {
		t.Error(err)
	}
	want(t, "committed", r.kafka.wait(t, 1), []string{"under way"})
	want(t, "acknowledged", k.Acknowledged(t, 2), []string{"first", "under way"})
}

func endsWithinGrace(t *testing.T, k SessionKind) {
	begin(t, k)
	gate, reached, _ := blocked()
	r := start(t, k, gate)
	k.Send(t, values(0, 5)...)
	reach(t, reached)
	r.cancel()
	r.expire()
	if err := r.end(); err != nil {
		t.Error(err)
	}
	want(t, "acknowledged", k.Acknowledged(t, 0), []string{"first"})
	r = start(t, k, nil)
	want(t, "committed by the next", r.kafka.wait(t, 5), values(0, 5))
	r.cancel()
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

func endsWhileIdle(t *testing.T, k SessionKind) {
	begin(t, k)
	r := start(t, k, nil)
	r.cancel()
	if err := r.end(); err != nil {
		t.Error(err)
	}
	want(t, "committed", r.kafka.wait(t, 0), nil)
	s := k.New(t)
	if status := s.Status(); status.Connected || status.Held != 0 {
		t.Errorf("before it runs: %+v", status)
	}
	s.Close()
	s.Close()
}

func keepsOrder(t *testing.T, k SessionKind) {
	begin(t, k)
	r := start(t, k, nil)
	all := values(0, 1000)
	for chunk := range slices.Chunk(all, 50) {
		k.Send(t, chunk...)
	}
	want(t, "committed", r.kafka.wait(t, len(all)), all)
	want(t, "acknowledged", k.Acknowledged(t, 1+len(all)), append([]string{"first"}, all...))
	r.cancel()
	if err := r.end(); err != nil {
		t.Error(err)
	}
}
