package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flechtwerk/flechtwerk/engine/stream"
	"github.com/flechtwerk/flechtwerk/store"
)

// phase is how far a task is.
type phase int

const (
	phaseFencing phase = iota
	phaseRestoring
	phaseRunning
	phaseRestarting
	phaseStopping
)

func (p phase) String() string {
	return [...]string{"fencing", "restoring", "running", "restarting", "stopping"}[p]
}

// task is the unit of work and of fencing: one partition number of a transformer, or one token of an extractor.
//
// Its life is E3, then work until something ends it. Whatever leaves doubt about a transaction ends the round, not the task:
// the client is closed and the next round begins at the fence. What cannot be mended ends the process.
type task struct {
	g         *group
	partition int32
	info      TaskInfo
	queue     *queue
	local     *store.Partition // nil for a stage without state

	// soft is done when the task is to finish what it is at; hard, its parent, when it must end at once.
	soft, hard           context.Context
	stopSoftly, stopHard context.CancelCauseFunc
	done                 chan struct{}

	// Set by the assignment callback before life starts, then used by life's goroutine only.
	producer *producer
	fenced   error

	// first are the offsets that kgo fetched when the partition was assigned. Written once, before ready is closed.
	first []Offset
	ready chan struct{}

	// next and epoch are the changelog position after the last applied record. Used by life's goroutine only.
	next  int64
	epoch int32

	mu       sync.Mutex
	phase    phase
	restored int64 // changelog offset
	end      int64
}

// Why a task is told to stop.
var (
	errTaskStopped = errors.New("the task was stopped")
	errTooLong     = errors.New("the task took too long to stop")
)

func newTask(g *group, partition int32) *task {
	t := &task{
		g: g, partition: partition,
		info:  TaskInfo{Pipeline: g.s.pipeline.Name, Stage: g.s.name, Task: partition},
		done:  make(chan struct{}),
		ready: make(chan struct{}),
	}
	t.hard, t.stopHard = context.WithCancelCause(g.hard)
	t.soft, t.stopSoftly = context.WithCancelCause(t.hard)
	t.queue = newQueue(g, partition)
	if g.s.changelog != "" {
		t.local = g.s.engine.db.Partition(g.s.app, partition)
	}
	return t
}

// stop tells the task to finish, and after grace to end at once. It does not wait; done tells.
func (t *task) stop(grace time.Duration) {
	t.setPhase(phaseStopping)
	t.stopSoftly(errTaskStopped)
	if grace <= 0 {
		t.stopHard(errTaskStopped)
		return
	}
	timer := time.AfterFunc(grace, func() {
		t.g.s.warn("task.abandoned", fmt.Sprintf("task %d was still at work after %v: what it was at is dropped, and done again by whoever runs it next", t.partition, grace))
		t.stopHard(errTooLong)
	})
	go func() {
		<-t.done
		timer.Stop()
	}()
}

func (t *task) setPhase(p phase) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.phase != phaseStopping {
		t.phase = p
	}
}

func (t *task) status() TaskStatus {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := TaskStatus{Task: t.partition, Phase: t.phase.String()}
	if t.phase == phaseRestoring {
		s.Restored, s.RestoreEnd = t.restored, t.end
	}
	return s
}

func (t *task) events() *Events { return &t.g.s.engine.o.Events }

// offsetsFetched keeps where kgo begins. Called by the group, with its mutex held.
func (t *task) offsetsFetched(offsets []Offset) {
	select {
	case <-t.ready:
	default:
		t.first = offsets
		close(t.ready)
	}
}

// fence makes this task's producer the only one. Its result is looked at by the first round.
func (t *task) fence(ctx context.Context) {
	began := time.Now()
	if t.producer == nil {
		p, err := newProducer(t.g.s.engine.kafka, transactionalID(t.g.s.app, t.partition), t.g.membership(), t.g.s.maxMessage)
		if err != nil {
			t.fenced = err
			return
		}
		t.producer = p
	}
	if t.fenced = t.producer.fence(ctx); t.fenced == nil {
		info := t.info
		info.Duration = time.Since(began)
		t.events().TaskFenced(info)
		at("after-fence")
	}
}

// life is the task's goroutine, from its assignment to its end.
func (t *task) life() {
	defer close(t.done)
	defer t.events().TaskStopped(t.info)
	defer func() {
		if t.producer != nil {
			t.producer.close()
		}
	}()
	w, err := t.g.s.newWorker(t)
	if err != nil {
		t.g.s.engine.fail(fmt.Errorf("%s: %w", t.info, err))
		return
	}
	defer w.close()
	failures := 0
	for first := true; ; first = false {
		worked, err := t.round(w, first)
		w.drop()
		if t.soft.Err() != nil {
			return
		}
		if fatal(err) {
			t.g.s.engine.fail(fmt.Errorf("%s: %w", t.info, err))
			return
		}
		// The transaction's fate may be in doubt: away with everything that belonged to this round.
		t.queue.shut()
		if t.producer != nil {
			t.producer.close()
			t.producer = nil
		}
		info := t.info
		info.Err = err
		t.setPhase(phaseRestarting)
		t.events().TaskRestarting(info)
		if failures++; worked {
			failures = 0
		}
		if !pause(t.soft, restart(failures)) {
			return
		}
	}
}

// fatalError ends the process: no restart of the task would mend it.
type fatalError struct{ err error }

func (e *fatalError) Error() string { return e.err.Error() }
func (e *fatalError) Unwrap() error { return e.err }

func fatal(err error) bool {
	f := (*fatalError)(nil)
	return errors.As(err, &f) || errors.Is(err, ErrSurroundings) || errors.Is(err, ErrPipeline) || denied(err) ||
		errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, store.ErrFailed) || errors.Is(err, store.ErrClosed)
}

// round is E3 and then work, until the task is to stop or something goes wrong. worked tells that it came to work.
func (t *task) round(w worker, first bool) (worked bool, err error) {
	t.setPhase(phaseFencing)
	// Only a fence in the assignment callback comes before kgo's own fetch of the offsets.
	first = first && t.fenced == nil
	if !first {
		if t.fence(t.soft); t.fenced != nil {
			return false, t.fenced
		}
	}
	var offsets []Offset
	if len(t.g.s.inputs) > 0 {
		if offsets, err = t.begins(first); err != nil {
			return false, err
		}
		t.events().OffsetsFetched(OffsetsInfo{TaskInfo: t.info, Offsets: offsets})
	}
	if t.g.s.changelog != "" {
		end, err := t.takeover(t.soft)
		if err != nil {
			return false, err
		}
		t.events().TakeoverWritten(t.info)
		at("after-takeover")
		t.setPhase(phaseRestoring)
		if err := t.restore(t.soft, end); err != nil {
			return false, err
		}
		if err := t.agrees(offsets); err != nil {
			return false, err
		}
	}
	if err := w.begin(t.soft, offsets); err != nil {
		return false, err
	}
	if !first && len(offsets) > 0 {
		if err := t.seek(offsets); err != nil {
			return false, err
		}
	}
	t.queue.open()
	t.setPhase(phaseRunning)
	t.events().TaskRunning(t.info)
	return true, w.run(t.soft, t.hard)
}

// begins answers where the inputs begin: at first where kgo begins, since it has fetched the offsets after the fence; later
// where the group's stable offsets are.
func (t *task) begins(first bool) ([]Offset, error) {
	select {
	case <-t.ready:
	case <-t.soft.Done():
		return nil, context.Cause(t.soft)
	}
	if first {
		return t.first, nil
	}
	offsets, err := t.stableOffsets(t.soft)
	if err != nil {
		return nil, err
	}
	for i, o := range offsets {
		if o.Offset >= 0 {
			continue
		}
		if offsets[i].Offset, err = startOf(t.soft, t.g.client, o.Topic, o.Partition); err != nil {
			return nil, err
		}
	}
	return offsets, nil
}

// takeover writes a record of our own to the changelog, in a transaction. When a restore has read it back, it has read
// everything that was ever committed before us: earlier transactions were ended by the fence (R3).
func (t *task) takeover(ctx context.Context) (offset int64, err error) {
	tx := &transaction{
		changelog: t.g.s.changelog, partition: t.partition,
		changes: []stream.Change{{Key: takeoverKey, Value: fmt.Appendf(nil, `{"client":%q,"at":%d}`, t.g.s.engine.o.Kafka.ClientID, time.Now().UnixMilli())}},
	}
	if err := t.producer.cl.BeginTransaction(); err != nil {
		return 0, fmt.Errorf("takeover: %w", err)
	}
	if err := t.producer.produce(ctx, tx); err != nil {
		return 0, fmt.Errorf("takeover: %w", t.producer.abort(ctx, err))
	}
	if err := t.producer.cl.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return 0, fmt.Errorf("takeover: %w", err)
	}
	return t.producer.slab[0].Offset, nil
}

// commit writes tx in one transaction, tells of it with info, and applies its changes to the store.
func (t *task) commit(ctx context.Context, tx *transaction, info TransactionInfo) error {
	left, err := t.producer.commit(ctx, tx, t.events(), &info)
	if err != nil || left.next < 0 {
		return err
	}
	t.next, t.epoch = left.next, left.epoch
	at("before-apply")
	if err := t.apply(changes(tx.changes), tx.offsets); err != nil {
		return fmt.Errorf("apply to the local state: %w", err)
	}
	at("after-apply")
	t.events().StateApplied(info)
	return nil
}

// agrees finds out whether state and offsets tell of the same past. State without any committed offset means that the
// group's offsets are gone (deleted, or expired while nobody ran the stage): going on would count every record again.
func (t *task) agrees(offsets []Offset) error {
	if len(offsets) == 0 || slices.ContainsFunc(offsets, func(o Offset) bool { return o.committed }) {
		return nil
	}
	states, failure := t.local.All()
	for range states {
		return fmt.Errorf("%w: partition %d of %s holds state, but group %s has no committed offset there: the offsets were deleted, or have expired; "+
			"set them with Kafka's own tools to where the state ends, or delete the changelog to begin anew",
			ErrSurroundings, t.partition, t.g.s.changelog, t.g.s.app)
	}
	return failure()
}

// stableOffsets asks for the group's committed offsets of this task's inputs; while a transaction that holds some is open
// the broker does not answer. Inputs without an offset begin at -2, the start of the log.
func (t *task) stableOffsets(ctx context.Context) ([]Offset, error) {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.RequireStable = true
	req.Group = t.g.s.app
	group := kmsg.NewOffsetFetchRequestGroup()
	group.Group = t.g.s.app
	for _, topic := range t.g.s.topics {
		rt := kmsg.NewOffsetFetchRequestTopic()
		rt.Topic, rt.Partitions = topic, []int32{t.partition}
		req.Topics = append(req.Topics, rt)
		gt := kmsg.NewOffsetFetchRequestGroupTopic()
		gt.Topic, gt.TopicID, gt.Partitions = topic, t.g.s.topicIDs[topic], []int32{t.partition}
		group.Topics = append(group.Topics, gt)
	}
	req.Groups = append(req.Groups, group)
	for attempt := 0; ; attempt++ {
		offsets, err := t.tryStableOffsets(ctx, req)
		if err == nil || !kerr.IsRetriable(err) {
			return offsets, err
		}
		if !pause(ctx, backoff(attempt)) {
			return nil, context.Cause(ctx)
		}
	}
}

func (t *task) tryStableOffsets(ctx context.Context, req *kmsg.OffsetFetchRequest) ([]Offset, error) {
	resp, err := req.RequestWith(ctx, t.g.client)
	if err != nil {
		return nil, fmt.Errorf("fetch offsets: %w", err)
	}
	code := resp.ErrorCode
	found := map[string]int64{}
	for _, rt := range resp.Topics {
		for _, p := range rt.Partitions {
			found[rt.Topic] = p.Offset
			code = max(code, p.ErrorCode)
		}
	}
	for _, g := range resp.Groups {
		code = max(code, g.ErrorCode)
		for _, rt := range g.Topics {
			topic := rt.Topic
			for name, id := range t.g.s.topicIDs {
				if topic == "" && id == rt.TopicID {
					topic = name
				}
			}
			for _, p := range rt.Partitions {
				found[topic] = p.Offset
				code = max(code, p.ErrorCode)
			}
		}
	}
	if err := kerr.ErrorForCode(code); err != nil {
		return nil, fmt.Errorf("fetch offsets: %w", err)
	}
	var offsets []Offset
	for _, topic := range t.g.s.topics {
		o := Offset{Topic: topic, Partition: t.partition, Offset: -2}
		if at, ok := found[topic]; ok && at >= 0 {
			o.Offset, o.committed = at, true
		}
		offsets = append(offsets, o)
	}
	return offsets, nil
}

// seek lets the consumer go on at offsets, after a restart of the task.
func (t *task) seek(offsets []Offset) error {
	to := map[string]map[int32]kgo.EpochOffset{}
	for _, o := range offsets {
		to[o.Topic] = map[int32]kgo.EpochOffset{t.partition: {Epoch: -1, Offset: o.Offset}}
	}
	sought := make(chan struct{})
	t.g.do(t.soft, func() {
		t.g.client.SetOffsets(to)
		close(sought)
	})
	select {
	case <-sought:
		return nil
	case <-t.soft.Done():
		return context.Cause(t.soft)
	}
}
