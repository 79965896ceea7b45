package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"github.com/flechtwerk/flechtwerk/engine/pipeline"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

func newExtractorStage(e *Engine, p *pipeline.Pipeline, x *pipeline.Extractor) (*stage, error) {
	source, err := e.o.Handlers.Source(p, x)
	if err != nil {
		return nil, err
	}
	s := &stage{engine: e, pipeline: p, name: x.Name, kind: "extractor", app: x.ApplicationID, tokens: x.Tokens, outputs: x.OutputTopics,
		changelog: changelogTopic(x.ApplicationID), release: source.Close}
	s.info = StageInfo{Pipeline: p.Name, Stage: x.Name, ApplicationID: s.app}
	// The lease: membership in the group decides who polls. Its records are never read.
	s.topics = []string{s.changelog}
	s.newWorker = func(t *task) (worker, error) {
		w := &polls{task: t, spec: x, source: source, failed: make(chan error, 1)}
		for _, c := range x.Configs {
			if Token(c.Key, x.Tokens) == t.partition {
				w.configs = append(w.configs, c)
			}
		}
		return w, nil
	}
	return s, nil
}

// polls is an extractor's work for one token: each config of the token is polled by a goroutine of its own, side by side;
// their pages are committed one after another, since the token has one transactional id.
type polls struct {
	task    *task
	spec    *pipeline.Extractor
	source  stream.Source
	configs []stream.Config
	failed  chan error // the first error of this round

	mu sync.Mutex // guards the producer and the fields below while polls run
	tx transaction
}

func (w *polls) begin(context.Context, []Offset) error { return nil }

func (w *polls) drop() {
	select {
	case <-w.failed:
	default:
	}
}

func (w *polls) close() {}

// errPollCancelled is what a poll sees when its token goes away.
var errPollCancelled = errors.New("the poll was cancelled: the task is stopping")

// run polls until soft is done. A poll that runs then is cancelled: what it has committed stays, the open page does not
// (P7). A page that is being committed is finished.
func (w *polls) run(soft, hard context.Context) error {
	round, cancel := context.WithCancelCause(soft)
	var running sync.WaitGroup
	for _, c := range w.configs {
		running.Go(func() {
			if err := w.poll(round, hard, c); err != nil {
				select {
				case w.failed <- err:
				default:
				}
				cancel(errPollCancelled)
			}
		})
	}
	<-round.Done()
	cancel(errPollCancelled)
	running.Wait()
	select {
	case err := <-w.failed:
		return err
	default:
		return nil
	}
}

// poll polls one config for ever. every counts from the start of a poll (P6).
func (w *polls) poll(round, hard context.Context, c stream.Config) error {
	if !pause(round, jitter(c.Key, w.spec.Every)) {
		return nil
	}
	for {
		began := time.Now()
		if err := w.once(round, hard, c, began); err != nil {
			return err
		}
		if !pause(round, w.spec.Every-time.Since(began)) {
			return nil
		}
	}
}

// pause waits, and answers false if ctx is done. A pause below nothing is none.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// maxJitter bounds how long the first poll of a config may be put off so that configs do not all start at once.
const maxJitter = 10 * time.Second

// jitter is the same for a config at every start: a tenth of every, at most, by the config's key. A lone config under the
// default key has none.
func jitter(key string, every time.Duration) time.Duration {
	window := min(every/10, maxJitter)
	if window <= 0 || key == defaultConfig {
		return 0
	}
	h := fnv.New32a()
	h.Write([]byte(key))
	return time.Duration(int64(h.Sum32()) % int64(window))
}

// defaultConfig is the key of the config of an extractor without configs.
const defaultConfig = "default"

// once is one poll.
func (w *polls) once(round, hard context.Context, c stream.Config, began time.Time) error {
	t := w.task
	info := PollInfo{TaskInfo: t.info, Config: c.Key}
	cursor, err := w.cursor(c.Key)
	if err != nil {
		return fmt.Errorf("read the cursor of config %s: %w", shortKey(c.Key), err)
	}
	t.events().PollStarted(info)
	poll := &stream.Poll{Config: c, Cursor: cursor}
	poll.Commit = func(ctx context.Context, page *stream.Page) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		wrote, err := w.commit(hard, c.Key, page)
		if err != nil {
			return &commitError{err}
		}
		if wrote {
			info.Pages++
			info.Messages += len(page.Messages)
		}
		if round.Err() != nil {
			return context.Cause(round)
		}
		return nil
	}
	err = w.source.Poll(round, poll)
	info.Duration = time.Since(began)
	info.Overrun = info.Duration > w.spec.Every
	if err != nil && round.Err() != nil {
		err = nil
	}
	info.Err = err
	t.events().PollEnded(info)
	if err == nil {
		return nil
	}
	if commit := (*commitError)(nil); errors.As(err, &commit) {
		return commit.err
	}
	return &fatalError{fmt.Errorf("config %s: %w", shortKey(c.Key), err)}
}

// commitError is trouble with a page's transaction, as against trouble of the poll itself.
type commitError struct{ err error }

func (e *commitError) Error() string { return e.err.Error() }
func (e *commitError) Unwrap() error { return e.err }

func (w *polls) cursor(key string) ([]byte, error) {
	value, found, err := w.task.local.Append(nil, key)
	if err != nil || !found {
		return nil, err
	}
	return value, nil
}

// commit writes a page: its messages and its cursor, in one transaction (P1). A page that changes nothing writes none (P3).
func (w *polls) commit(ctx context.Context, key string, page *stream.Page) (wrote bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.task
	moved := page.Moved
	if moved {
		stored, err := w.cursor(key)
		if err != nil {
			return false, err
		}
		moved = !bytes.Equal(stored, page.Cursor)
	}
	if len(page.Messages) == 0 && !moved {
		return false, nil
	}
	tx := &w.tx
	tx.messages = page.Messages
	tx.changelog, tx.partition = t.g.s.changelog, t.partition
	tx.changes = tx.changes[:0]
	if moved {
		tx.changes = append(tx.changes, stream.Change{Key: key, Value: page.Cursor})
		if err := t.g.s.fits(&tx.changes[0]); err != nil {
			return false, &fatalError{fmt.Errorf("config %s: %w", shortKey(key), err)}
		}
	}
	// The lease's offset is part of the transaction, so that the broker checks that we are still in the group.
	tx.offsets = append(tx.offsets[:0], commitOffset{Offset: Offset{Topic: t.g.s.topics[0], Partition: t.partition, Offset: t.next}, epoch: -1})
	began := time.Now()
	info := transactionInfo(t.info, tx, 0)
	info.Config = key
	ev := t.events()
	left, err := t.producer.commit(ctx, tx, steps{
		begun:    func() { ev.TransactionBegun(info) },
		produced: func() { ev.TransactionProduced(info) },
		offsets:  func() { ev.OffsetsSent(info) },
	})
	info.Duration = time.Since(began)
	if err != nil {
		info.Err = err
		ev.TransactionAborted(info)
		if refused := (*recordError)(nil); errors.As(err, &refused) {
			return false, &fatalError{fmt.Errorf("config %s: the broker refused a record: %w", shortKey(key), err)}
		}
		return false, err
	}
	ev.TransactionCommitted(info)
	if left.next >= 0 {
		t.next, t.epoch = left.next, left.epoch
		at("before-apply")
		if err := t.apply(changes(tx.changes), tx.offsets); err != nil {
			return true, fmt.Errorf("apply to the local state: %w", err)
		}
		at("after-apply")
		ev.StateApplied(info)
	}
	return true, nil
}
