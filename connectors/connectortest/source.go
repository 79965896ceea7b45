package connectortest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// Subject is a Source under test, and what there is for it to read.
type Subject struct {
	// New makes the Source, as a process does that starts. The suite calls it again for each process that it lets die.
	New    func() (stream.Source, error)
	Config stream.Config
	// Want are the values of all messages that are to be read, in order.
	Want []string
}

// TestSource is what every polled Source keeps to. begin makes a Subject that nobody has read yet; it is called often, each
// time within a testing/synctest bubble, so that a goroutine which outlives its poll is found. What it reads must give at
// least two commits, and must not change.
//
//  1. All of it is read once, in order, and a poll that finds nothing new commits nothing.
//  2. A process that dies before or after any commit leaves nothing out and nothing twice: the next one goes on.
//  3. An error of Commit ends the poll with that error, and nothing more is committed.
//  4. A poll that is cancelled ends with the cause, commits nothing more, and leaves nothing behind.
//  5. Polls of several configs run side by side.
//  6. A page says something, and a state is a JSON object.
func TestSource(t *testing.T, begin func(t *testing.T) Subject) {
	t.Helper()
	run := func(name string, check func(t *testing.T, s *sourceTest)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				subject := begin(t)
				check(t, &sourceTest{t: t, subject: subject, source: newSource(t, &subject)})
			})
		})
	}
	commits := 0
	run("reads all of it once", func(t *testing.T, s *sourceTest) {
		s.drain()
		s.wantAll()
		commits = len(s.commits)
		if commits < 2 {
			t.Fatalf("there are %d commits, and the suite wants to stand between two", commits)
		}
		if err := s.poll(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(s.commits) != commits {
			t.Errorf("a poll that found nothing new has committed %d messages and the state %s", s.commits[commits], s.state)
		}
	})
	for n := 1; n <= commits; n++ {
		run(fmt.Sprintf("dies before commit %d", n), func(t *testing.T, s *sourceTest) { s.dies(n, false) })
		run(fmt.Sprintf("dies after commit %d", n), func(t *testing.T, s *sourceTest) { s.dies(n, true) })
		run(fmt.Sprintf("cancelled at commit %d", n), func(t *testing.T, s *sourceTest) { s.cancelled(n) })
	}
	run("cancelled before it begins", func(t *testing.T, s *sourceTest) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errStopped)
		if err := s.poll(ctx); !errors.Is(err, errStopped) || len(s.commits) != 0 {
			t.Errorf("the poll ended with %v after %d commits", err, len(s.commits))
		}
	})
	run("several configs at once", func(t *testing.T, s *sourceTest) {
		others := make([]*sourceTest, 4)
		done := make(chan error)
		for i := range others {
			others[i] = &sourceTest{t: t, subject: s.subject, source: s.source}
			others[i].subject.Config.Key = fmt.Sprintf("%s-%d", s.subject.Config.Key, i)
			go func() { done <- others[i].poll(t.Context()) }()
		}
		for range others {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		for _, other := range others {
			other.drain()
			other.wantAll()
		}
	})
	run("closed twice", func(_ *testing.T, s *sourceTest) {
		s.source.Close()
		s.source.Close()
	})
}

var (
	errDied    = errors.New("the process died")
	errStopped = errors.New("the task is stopping")
)

// maxPolls is how many polls may find something in what does not change.
const maxPolls = 1000

// sourceTest is a process with its Source, and what is committed.
type sourceTest struct {
	t       *testing.T
	subject Subject
	source  stream.Source

	state   []byte
	values  []string
	commits []int // messages of each
	at      func(n int) (apply bool, err error)
}

func newSource(t *testing.T, s *Subject) stream.Source {
	t.Helper()
	source, err := s.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(source.Close)
	return source
}

func (s *sourceTest) poll(ctx context.Context) error {
	return s.source.Poll(ctx, &stream.Poll{Config: s.subject.Config, Cursor: bytes.Clone(s.state), Configs: noConfigs{}, Commit: s.commit})
}

type noConfigs struct{}

func (noConfigs) Get(string) []byte { return nil }

func (s *sourceTest) commit(_ context.Context, page *stream.Page) error {
	n := len(s.commits) + 1
	if s.at != nil {
		if apply, err := s.at(n); !apply {
			return err
		}
	}
	if page.Moved && page.Cursor != nil {
		if kind, _, err := rawjson.Check(page.Cursor, nil); err != nil || kind != rawjson.Object {
			s.t.Errorf("commit %d: the state is no JSON object: %s", n, page.Cursor)
		}
	}
	if !page.Moved && len(page.Messages) == 0 {
		s.t.Errorf("commit %d says nothing", n)
	}
	if page.Moved {
		s.state = bytes.Clone(page.Cursor)
	}
	for _, m := range page.Messages {
		s.values = append(s.values, string(m.Value))
	}
	s.commits = append(s.commits, len(page.Messages))
	if s.at != nil {
		_, err := s.at(-n)
		return err
	}
	return nil
}

// drain polls until nothing is new.
func (s *sourceTest) drain() {
	s.t.Helper()
	for range maxPolls {
		before := len(s.commits)
		if err := s.poll(s.t.Context()); err != nil {
			s.t.Fatal(err)
		}
		if len(s.commits) == before {
			return
		}
	}
	s.t.Fatal("polls find something new in what does not change")
}

func (s *sourceTest) wantAll() {
	s.t.Helper()
	if !slices.Equal(s.values, s.subject.Want) {
		s.t.Errorf("read %d messages, want %d:\n got %.2000q\nwant %.2000q", len(s.values), len(s.subject.Want), s.values, s.subject.Want)
	}
}

// dies ends the process before or after a commit, and lets another one go on.
func (s *sourceTest) dies(n int, after bool) {
	s.t.Helper()
	died, late := false, 0
	s.at = func(at int) (bool, error) {
		switch {
		case died:
			late++
			return false, errDied
		case !after && at == n, after && at == -n:
			died = true
			return false, errDied
		}
		return true, nil
	}
	for range maxPolls {
		err := s.poll(s.t.Context())
		if died {
			if !errors.Is(err, errDied) {
				s.t.Fatalf("the error of Commit has become %v", err)
			}
			break
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
	if !died || late > 0 {
		s.t.Fatalf("died is %v, and there were %d commits after it", died, late)
	}
	s.at = nil
	s.source.Close()
	s.source = newSource(s.t, &s.subject)
	s.drain()
	s.wantAll()
}

// cancelled stops a poll that is at a commit.
func (s *sourceTest) cancelled(n int) {
	s.t.Helper()
	ctx, cancel := context.WithCancelCause(s.t.Context())
	late := 0
	s.at = func(at int) (bool, error) {
		if ctx.Err() != nil && at > 0 {
			late++
			return false, context.Cause(ctx)
		}
		if at == -n {
			cancel(errStopped)
			return true, context.Cause(ctx)
		}
		return true, nil
	}
	var err error
	for range maxPolls {
		if err = s.poll(ctx); err != nil || ctx.Err() != nil {
			break
		}
	}
	cancel(nil)
	if !errors.Is(err, errStopped) || late > 0 {
		s.t.Errorf("the cancelled poll ended with %v, and has committed %d times after that", err, late)
	}
	s.at = nil
	s.drain()
	s.wantAll()
}
