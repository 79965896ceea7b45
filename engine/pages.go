package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// pages commits what an extractor's polls of one token hand over. The token has one transactional id, so its transactions
// come one after another; but a transaction takes all pages that wait for it, so that many configs cost no more of them than
// few.
//
//  1. A page goes into one transaction, whole: messages, cursor, and the offset of the lease, by which the broker checks that
//     we are still in the group. Whoever hands it over is answered when that transaction is done, never before (P1).
//  2. Of those who wait, the one that came first leads: it commits its page and what others have handed over by then, and
//     hands the lead to the next. The others wait for their answer. So nobody works for others longer than one transaction.
//  3. A transaction does not begin before commitFloor after the last one has ended, during which others join it.
//  4. Pages do not see each other: if the broker refuses a record, the transaction is aborted and its pages go out again one
//     by one, so that the one to blame fails alone.
//  5. After an error that leaves doubt, nothing more is sent in this round (E5): a page after it would move the checkpoint
//     past it.
type pages struct {
	task *task

	mu      sync.Mutex
	waiting []*handed // the leader is not among them
	leading bool
	doubt   error // why nothing more may be sent in this round

	// Of the leader.
	tx    transaction
	ended time.Time // of the last transaction
}

// handed is a page that somebody waits for.
type handed struct {
	key  string
	page *stream.Page

	moved bool // its cursor is another than the stored one
	// answer is told once that the page is done, or that whoever waits for it is to lead.
	answer chan answer
}

// answer is what became of a page.
type answer struct {
	lead  bool
	wrote bool // there was something to write
	err   error
}

// bytes is how much of a transaction a page takes.
func (h *handed) bytes() int {
	n := len(h.page.Cursor)
	for i := range h.page.Messages {
		n += len(h.page.Messages[i].Key) + len(h.page.Messages[i].Value)
	}
	return n
}

// commitError is trouble with a page's transaction, as against trouble of the poll itself.
type commitError struct{ err error }

func (e *commitError) Error() string { return e.err.Error() }
func (e *commitError) Unwrap() error { return e.err }

// pageError is why a topic does not take a page. Nothing of the page is there, and that is certain: on_error decides.
type pageError struct{ err error }

func (e *pageError) Error() string { return e.err.Error() }
func (e *pageError) Unwrap() error { return e.err }

func (w *pages) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.doubt = nil
}

func (w *pages) doubted() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.doubt
}

// cursor is what is committed under a key, or nil.
func (w *pages) cursor(key string) ([]byte, error) {
	value, found, err := w.task.local.Append(nil, key)
	if err != nil || !found {
		return nil, err
	}
	return value, nil
}

// commit returns when a page is committed. A page that changes nothing writes no transaction (P3). An error that is no
// *pageError leaves doubt.
func (w *pages) commit(ctx context.Context, key string, page *stream.Page) (wrote bool, err error) {
	h := &handed{key: key, page: page, answer: make(chan answer, 1)}
	if h.moved = page.Moved; h.moved {
		stored, err := w.cursor(key)
		if err != nil {
			return false, err
		}
		h.moved = !bytes.Equal(stored, page.Cursor)
	}
	if len(page.Messages) == 0 && !h.moved {
		return false, w.doubted()
	}
	if h.moved {
		if err := w.task.g.s.fits(&stream.Change{Key: key, Value: page.Cursor}); err != nil {
			return false, &pageError{err}
		}
	}
	w.mu.Lock()
	if w.doubt != nil {
		defer w.mu.Unlock()
		return false, w.doubt
	}
	if w.leading {
		w.waiting = append(w.waiting, h)
		w.mu.Unlock()
		if a := <-h.answer; !a.lead {
			return a.wrote, a.err
		}
	} else {
		w.leading = true
		w.mu.Unlock()
	}
	w.lead(ctx, h)
	a := <-h.answer
	return a.wrote, a.err
}

// lead commits first and those who wait, and hands the lead on.
func (w *pages) lead(ctx context.Context, first *handed) {
	if err := w.pace(ctx); err != nil {
		w.doubts(err)
	}
	group := w.gather(first)
	if doubt := w.doubted(); doubt != nil {
		tell(group, answer{err: doubt})
	} else if err := w.write(ctx, group); len(group) > 1 && ofPage(err) {
		w.apart(ctx, group)
	} else {
		tell(group, w.judge(err))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.leading = len(w.waiting) > 0; w.leading {
		next := w.waiting[0]
		w.waiting = w.waiting[1:]
		next.answer <- answer{lead: true}
	}
}

// pace waits until a transaction may begin.
func (w *pages) pace(ctx context.Context) error {
	if !pause(ctx, time.Until(w.ended.Add(commitFloor))) {
		return context.Cause(ctx)
	}
	return nil
}

// gather takes those who wait, as many as a transaction may hold.
func (w *pages) gather(first *handed) []*handed {
	w.mu.Lock()
	defer w.mu.Unlock()
	group, size := []*handed{first}, first.bytes()
	for len(w.waiting) > 0 {
		next := w.waiting[0]
		if size += next.bytes(); size > w.task.g.s.engine.o.BatchBytes {
			break
		}
		group, w.waiting = append(group, next), w.waiting[1:]
	}
	return group
}

// judge is the answer to those whose transaction ended with err.
func (w *pages) judge(err error) answer {
	if err != nil && !ofPage(err) {
		w.doubts(err)
	}
	return answer{wrote: err == nil, err: err}
}

func ofPage(err error) bool {
	refused := (*pageError)(nil)
	return errors.As(err, &refused)
}

func tell(group []*handed, a answer) {
	for _, h := range group {
		h.answer <- a
	}
}

func (w *pages) doubts(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.doubt == nil {
		w.doubt = err
	}
}

// apart commits pages one by one: a record of one of them was refused.
func (w *pages) apart(ctx context.Context, group []*handed) {
	for i, h := range group {
		err := w.pace(ctx)
		if err == nil {
			err = w.write(ctx, group[i:i+1])
		}
		a := w.judge(err)
		if err != nil && !ofPage(err) {
			tell(group[i:], a)
			return
		}
		h.answer <- a
	}
}

// refusal is why the topics do not take a transaction. Where it is that of one page, it is that page's.
func (w *pages) refusal(refused *recordError) error {
	err := fmt.Errorf("the broker refused a record: %w", refused.err)
	if errors.Is(refused.err, kerr.MessageTooLarge) && !refused.among && refused.index < len(w.tx.messages) {
		m := &w.tx.messages[refused.index]
		err = tooLarge(m.Topic.Name, m.Key, len(m.Key)+len(m.Value), int(w.task.g.s.maxMessage(m.Topic.Name)))
	}
	return &pageError{err}
}

// write writes pages in one transaction. A *pageError says that none of them is there, and nothing else is wrong.
func (w *pages) write(ctx context.Context, group []*handed) error {
	t, tx := w.task, &w.tx
	tx.messages, tx.changes = tx.messages[:0], tx.changes[:0]
	for _, h := range group {
		tx.messages = append(tx.messages, h.page.Messages...)
		if h.moved {
			tx.changes = append(tx.changes, stream.Change{Key: h.key, Value: h.page.Cursor})
		}
	}
	tx.changelog, tx.partition = t.g.s.changelog, t.partition
	// What the lease's offset is does not matter; for the changelog it is where we are.
	lease := commitOffset{Offset: Offset{Topic: t.g.s.topics[0], Partition: t.partition}, epoch: -1}
	if lease.Topic == t.g.s.changelog {
		lease.Offset.Offset = t.next
	}
	tx.offsets = append(tx.offsets[:0], lease)
	defer func() {
		clear(tx.messages)
		clear(tx.changes)
	}()
	info := transactionInfo(t.info, tx, 0)
	for _, h := range group {
		info.Configs = append(info.Configs, strings.TrimPrefix(h.key, enrichedKey))
	}
	err := t.commit(ctx, tx, info)
	w.ended = time.Now()
	if refused := (*recordError)(nil); errors.As(err, &refused) {
		return w.refusal(refused)
	}
	return err
}
