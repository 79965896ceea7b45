package engine

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flechtwerk/flechtwerk/engine/pipeline"
	"github.com/flechtwerk/flechtwerk/engine/rawjson"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// commitFloor is the least time between two transactions of a task: the next one's first produce would otherwise wait on the
// broker for the last one's markers.
const commitFloor = 10 * time.Millisecond

func newTransformerStage(e *Engine, p *pipeline.Pipeline, t *pipeline.Transformer) (*stage, error) {
	s := &stage{engine: e, pipeline: p, name: t.Name, kind: "transformer", app: t.ApplicationID, inputs: t.Inputs, outputs: t.OutputTopics}
	s.info = StageInfo{Pipeline: p.Name, Stage: t.Name, ApplicationID: s.app}
	for _, in := range t.Inputs {
		s.topics = append(s.topics, in.Topic.Name)
	}
	if len(t.ConfigTopics) > 0 {
		s.configTopics = t.ConfigTopics
		s.configs = &configs{s: s, topics: t.ConfigTopics, policy: t.OnInvalid}
		if err := s.configs.start(); err != nil {
			return nil, err
		}
	}
	var body Body
	if t.Message != nil {
		body.New = func() (stream.Transform, error) { return newDeclared(e, p, t) }
	} else {
		var err error
		if body, err = e.o.Handlers.Transform(p, t); err != nil {
			return nil, err
		}
	}
	stateful := t.HasState || body.Stateful
	if stateful {
		s.changelog = changelogTopic(s.app)
	}
	s.newWorker = func(task *task) (worker, error) {
		transform, err := body.New()
		if err != nil {
			return nil, err
		}
		look, err := newLook(e, p)
		if err != nil {
			return nil, err
		}
		return &batches{task: task, spec: t, transform: transform, look: look, stateful: stateful, shapes: make([]rawjson.Shapes, len(t.Inputs))}, nil
	}
	return s, nil
}

// batches is a transformer's work: take, run, commit, apply, again.
type batches struct {
	task      *task
	spec      *pipeline.Transformer
	transform stream.Transform
	look      *look
	stateful  bool

	waiting []waiting       // the records of the batch under way
	decoded int             // of these
	took    BatchInfo       // what is told of them
	told    bool            // once all are decoded
	batch   stream.Batch    // what is decoded, and what became of it
	rebuilt []stream.Record // the records of a batch that is run again without some
	tx      transaction     // reused
	inputs  []position      // by input
	values  []byte          // the state read last
	members slab
	shapes  []rawjson.Shapes // by input
	// failures are how often records of the batch have failed in a row, where they run again.
	failures map[int]int
}

// position is how far one input was handled.
type position struct {
	next  int64 // -1 when nothing was taken yet
	epoch int32
}

func (b *batches) begin(_ context.Context, _ []Offset) error {
	b.transform.Forget()
	b.inputs = make([]position, len(b.spec.Inputs))
	for i := range b.inputs {
		b.inputs[i].next = -1
	}
	return nil
}

func (b *batches) drop() {
	b.transform.Forget()
	b.batch.Reset()
	b.forgo()
}

func (b *batches) close() { b.transform.Close() }

func (b *batches) run(soft, hard context.Context) error {
	if b.spec.OnError == pipeline.Retry {
		b.failures = map[int]int{}
		b.batch.Again = &stream.Again{Failed: b.failedAgain, Stop: soft.Done(), Resume: func() error { return b.resume(soft) }}
	}
	var last, ended time.Time // of the transaction before
	for b.task.queue.wait(soft.Done(), last.Add(b.task.g.s.engine.o.CommitInterval), ended.Add(commitFloor)) {
		last = time.Now()
		if err := b.step(soft, hard); err != nil {
			if hard.Err() != nil {
				return nil
			}
			return err
		}
		ended = time.Now()
	}
	return nil
}

// step takes one batch through: decode and policies, run, transaction, apply. With on_error: retry a record whose body fails runs
// again within its batch (stream.Again). What else fails, such as a filter, lets all of the batch run again. Either happens as
// often as it takes, each time after a longer pause. Nothing commits meanwhile, and only this task waits. It answers nil when the
// task is to stop first.
func (b *batches) step(soft, ctx context.Context) error {
	b.batch.Reset()
	b.take()
	for failures := 0; ; failures++ {
		clear(b.failures)
		err := b.attempt(ctx)
		again := (*retryError)(nil)
		if !errors.As(err, &again) {
			return err
		}
		b.transform.Forget()
		if !again.paused {
			pause(soft, growing(b.spec.Retry, failures))
		}
		if soft.Err() != nil {
			return nil
		}
		b.again()
	}
}

// attempt runs the body over what was taken, and commits.
func (b *batches) attempt(ctx context.Context) error {
	if err := b.handle(ctx); err != nil {
		return err
	}
	b.forgo()
	b.task.producer.alone = false
	for {
		err := b.commit(ctx, b.took.Records)
		refused := (*recordError)(nil)
		if !errors.As(err, &refused) {
			return err
		}
		if p := b.task.producer; refused.among && !p.alone {
			// Which of several it was shows when each is sent by itself.
			p.alone = true
			continue
		}
		// The broker refuses a record for what it is. Its input follows on_error, and the batch runs again without it: what
		// was made after it may rest on its state.
		if err := b.exclude(ctx, refused); err != nil {
			return err
		}
	}
}

// again empties what the last run left, and keeps the records.
func (b *batches) again() {
	b.rebuilt = append(b.rebuilt[:0], b.batch.Records...)
	b.batch.Reset()
	b.batch.Records = append(b.batch.Records, b.rebuilt...)
	clear(b.rebuilt)
}

// retryError is the failure of a record that is to be tried again, with all of its batch.
type retryError struct {
	err    error
	paused bool // there was a pause already
}

func (e *retryError) Error() string { return e.err.Error() }
func (e *retryError) Unwrap() error { return e.err }

// handle runs the body over the batch and tells how long it took.
func (b *batches) handle(ctx context.Context) error {
	began := time.Now()
	b.batch.Fail = b.failed
	if b.stateful {
		b.batch.States = b
	}
	if configs := b.task.g.s.configs; configs != nil {
		b.batch.Configs, _ = configs.now()
	}
	if err := b.runBody(ctx); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if again := (*retryError)(nil); errors.As(err, &again) {
			return err
		}
		return &fatalError{err}
	}
	if !b.told {
		b.told = true
		b.task.events().BatchTaken(b.took)
	}
	info := BatchInfo{TaskInfo: b.task.info, Records: len(b.batch.Records)}
	info.Duration = time.Since(began)
	b.task.events().BatchRun(info)
	at("after-run")
	return nil
}

// runBody runs the body over the records that are decoded and over those that are not yet.
func (b *batches) runBody(ctx context.Context) error {
	b.batch.More = b.more
	b.look.tick()
	_, gradual := b.transform.(stream.Gradual)
	for more := true; more && !(gradual && len(b.batch.Records) > 0); {
		var err error
		if more, err = b.more(); err != nil {
			return err
		}
	}
	if len(b.batch.Records) == 0 {
		return nil
	}
	return b.transform.Run(ctx, &b.batch)
}

// State reads what the batch starts from (stream.States).
func (b *batches) State(key string) ([]byte, error) {
	values, _, err := b.task.local.Append(b.values[:0], key)
	b.values = values
	if len(values) == 0 {
		return nil, err
	}
	return values, err
}

// failedAgain tells of a record that is to run again, and answers the pause before it does.
func (b *batches) failedAgain(i int, err error) time.Duration {
	r := &b.batch.Records[i]
	b.tell(r.Input.Topic.Name, r.Offset, err)
	b.failures[i]++
	return growing(b.spec.Retry, b.failures[i]-1)
}

// resume tells whether records may run again. Where configs have changed meanwhile, perhaps to mend what failed, the whole batch
// begins anew with these (T8).
func (b *batches) resume(soft context.Context) error {
	if soft.Err() != nil {
		return &retryError{context.Cause(soft), true}
	}
	if configs := b.task.g.s.configs; configs != nil {
		if now, _ := configs.now(); now != b.batch.Configs {
			return &retryError{errors.New("the configs have changed"), true}
		}
	}
	return nil
}

// failed is the on_error policy for record i of the batch.
func (b *batches) failed(i int, err error) error {
	r := &b.batch.Records[i]
	return b.onError(r.Input.Topic.Name, r.Offset, r.Key, err)
}

// onError is the policy for a record whose filter, key or body fails.
func (b *batches) onError(topic string, offset int64, key []byte, err error) error {
	err = b.spec.Placed(err)
	b.tell(topic, offset, err)
	switch b.spec.OnError {
	case pipeline.Skip:
		return nil
	case pipeline.Retry:
		return &retryError{err: err}
	case pipeline.Fail, pipeline.DeadLetter: // a transformer has no dead letters yet, and validate says so
	}
	return &fatalError{&RecordError{Topic: topic, Partition: b.task.partition, Offset: offset, Key: string(key), Err: err}}
}

func (b *batches) tell(topic string, offset int64, err error) {
	info := RecordInfo{TaskInfo: b.task.info, Topic: topic, Partition: b.task.partition, Offset: offset, Policy: b.spec.OnError}
	info.Err = err
	b.task.events().RecordFailed(info)
}

// RecordError is an error that one input record caused. It never shows the payload (V2).
type RecordError struct {
	Topic     string
	Partition int32
	Offset    int64
	Key       string
	Err       error
}

func (e *RecordError) Error() string {
	return fmt.Sprintf("%s/%d at offset %d, key %s: %v", e.Topic, e.Partition, e.Offset, shortKey(e.Key), e.Err)
}

func (e *RecordError) Unwrap() error { return e.Err }

// shortKey quotes a key for a message, cut to what a line can hold.
func shortKey(key string) string {
	const most = 100
	if len(key) > most {
		return strconv.Quote(key[:most]) + "…"
	}
	return strconv.Quote(key)
}

// exclude takes the input of a refused output out of the batch and runs the rest again.
func (b *batches) exclude(ctx context.Context, refused *recordError) error {
	var from int
	var topic string
	why := refused.err
	if refused.index < len(b.batch.Messages) {
		m := &b.batch.Messages[refused.index]
		from, topic = m.From, m.Topic.Name
		if errors.Is(why, kerr.MessageTooLarge) {
			why = tooLarge(topic, m.Key, len(m.Key)+len(m.Value), int(b.task.g.s.maxMessage(topic)))
		}
	} else {
		c := &b.batch.Changes[refused.index-len(b.batch.Messages)]
		from, topic = c.From, b.task.g.s.changelog
	}
	if coded := (*codedError)(nil); !errors.As(why, &coded) {
		why = fmt.Errorf("the broker refused its record for topic %s: %w", topic, why)
	}
	if err := b.failed(from, why); err != nil {
		return err
	}
	b.rebuilt = append(b.rebuilt[:0], b.batch.Records[:from]...)
	b.rebuilt = append(b.rebuilt, b.batch.Records[from+1:]...)
	b.batch.Reset()
	b.batch.Records = append(b.batch.Records, b.rebuilt...)
	clear(b.rebuilt)
	b.transform.Forget()
	return b.handle(ctx)
}

// commit writes the batch in one transaction, or only its offsets if it left nothing else, and applies its changes to the
// store. taken is how many records the offsets stand for.
func (b *batches) commit(ctx context.Context, taken int) error {
	t := b.task
	tx := &b.tx
	tx.messages, tx.changes = b.batch.Messages, b.batch.Changes
	tx.changelog, tx.partition = t.g.s.changelog, t.partition
	tx.offsets = tx.offsets[:0]
	for i := range b.inputs {
		if p := &b.inputs[i]; p.next >= 0 {
			tx.offsets = append(tx.offsets, commitOffset{Offset: Offset{Topic: b.spec.Inputs[i].Topic.Name, Partition: t.partition, Offset: p.next}, epoch: p.epoch})
		}
	}
	if len(tx.messages)+len(tx.changes) == 0 {
		return b.commitOffsets(ctx, tx, taken)
	}
	for i := range tx.changes {
		if err := t.g.s.fits(&tx.changes[i]); err != nil {
			return &recordError{index: len(tx.messages) + i, err: err}
		}
	}
	return t.commit(ctx, tx, transactionInfo(t.info, tx, taken))
}

// batchOverhead is what a record batch of one record takes beside key and value, in bytes: its header, and the record's own.
const batchOverhead = 61 + 20

// fits tells whether the changelog takes a state, and warns when half of what it takes is reached (S5).
func (s *stage) fits(c *stream.Change) error {
	size := len(c.Key) + len(c.Value) + batchOverhead
	if s.maxState <= 0 || 2*size < s.maxState {
		return nil
	}
	if size <= s.maxState {
		s.warn("state.large", fmt.Sprintf("the state of key %s has %d bytes, and changelog %s takes %d", shortKey(c.Key), len(c.Value), s.changelog, s.maxState))
		return nil
	}
	return &codedError{code: "state.too_large", text: fmt.Sprintf("the state of key %s makes a record of %d bytes, and changelog %s takes %d; keep less per key, or raise max.message.bytes of the changelog",
		shortKey(c.Key), size, s.changelog, s.maxState)}
}

// changes are a transaction's state changes as the store takes them.
func changes(of []stream.Change) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for i := range of {
			if !yield(of[i].Key, of[i].Value) {
				return
			}
		}
	}
}

// commitOffsets commits offsets alone. A transactional client would drop a transaction without records, so this goes the
// way of any consumer, while no transaction is open; the group's generation guards it.
func (b *batches) commitOffsets(ctx context.Context, tx *transaction, taken int) error {
	t := b.task
	began := time.Now()
	err := t.g.commitOffsets(ctx, tx.offsets)
	info := transactionInfo(t.info, tx, taken)
	info.Duration = time.Since(began)
	if err != nil {
		return fmt.Errorf("commit offsets: %w", err)
	}
	t.events().OffsetsCommitted(info)
	return nil
}

func transactionInfo(task TaskInfo, tx *transaction, records int) TransactionInfo {
	info := TransactionInfo{TaskInfo: task, Records: records, Messages: len(tx.messages), Changes: len(tx.changes)}
	for i := range tx.messages {
		m := &tx.messages[i]
		info.Bytes += int64(len(m.Key) + len(m.Value))
		last := len(info.Outputs) - 1
		if last >= 0 && info.Outputs[last].Topic == m.Topic.Name {
			info.Outputs[last].Count++
			continue
		}
		found := false
		for j := range info.Outputs {
			if info.Outputs[j].Topic == m.Topic.Name {
				info.Outputs[j].Count++
				found = true
			}
		}
		if !found {
			info.Outputs = append(info.Outputs, TopicCount{m.Topic.Name, 1})
		}
	}
	for i := range tx.changes {
		info.States = append(info.States, tx.changes[i].Key)
	}
	for _, o := range tx.offsets {
		info.Offsets = append(info.Offsets, o.Offset)
	}
	return info
}

// take takes the records of the next batch from the queue. Their offsets are covered whatever becomes of them (T6).
func (b *batches) take() {
	b.forgo()
	releasing, ok := b.transform.(stream.Releasing)
	b.members.renew(ok && releasing.Releases())
	info := BatchInfo{TaskInfo: b.task.info}
	b.task.queue.take(func(input int, r *kgo.Record) {
		b.inputs[input] = position{next: r.Offset + 1, epoch: r.LeaderEpoch}
		b.waiting = append(b.waiting, waiting{r, input})
		info.Bytes += len(r.Key) + len(r.Value)
	})
	info.Records = len(b.waiting)
	b.took, b.told = info, false
}

// forgo drops the records that are taken.
func (b *batches) forgo() {
	clear(b.waiting)
	b.waiting, b.decoded = b.waiting[:0], 0
}

// waiting is a record that is taken.
type waiting struct {
	record *kgo.Record
	input  int
}

// portion is how many records are decoded at once: with what is found out about them they fit into a processor's cache beside
// what a body needs.
const portion = 64

// more moves the next taken records into b.batch: decoded, judged by on_invalid, filtered, with state keys. It answers false
// when there are none left (stream.Batch.More). After an error it begins at the same record again.
func (b *batches) more() (bool, error) {
	before := len(b.batch.Records)
	for b.decoded < len(b.waiting) && len(b.batch.Records) == before {
		for end := min(b.decoded+portion, len(b.waiting)); b.decoded < end; b.decoded++ {
			if err := b.prepare(b.waiting[b.decoded]); err != nil {
				return false, err
			}
		}
	}
	return len(b.batch.Records) > before, nil
}

// prepare decodes one record and judges it.
func (b *batches) prepare(w waiting) error {
	n := len(b.batch.Records)
	b.batch.Records = append(b.batch.Records, stream.Record{})
	rec := &b.batch.Records[n]
	drop := func() { // the next one takes its place
		b.members.back(rec.Members)
		b.batch.Records = b.batch.Records[:n]
	}
	invalid := b.decode(w.input, w.record, rec)
	b.took.Newest = max(b.took.Newest, rec.Timestamp)
	if invalid != nil {
		drop()
		return b.onInvalid(w.record, invalid)
	}
	switch keep, failure := b.look.admit(rec, b.spec, b.stateful); {
	case failure != nil:
		drop()
		return b.onError(w.record.Topic, w.record.Offset, w.record.Key, failure)
	case !keep:
		drop()
		b.took.Filtered++
	}
	return nil
}

// onInvalid is the policy for a record that cannot be decoded (T7, V1).
func (b *batches) onInvalid(r *kgo.Record, invalid error) error {
	skip := b.spec.OnInvalid == pipeline.Skip
	info := RecordInfo{TaskInfo: b.task.info, Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Policy: b.spec.OnInvalid}
	info.Err = invalid
	b.task.events().RecordInvalid(info)
	if skip {
		return nil
	}
	return &fatalError{&RecordError{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Key: string(r.Key),
		Err: fmt.Errorf("%w; mend the producer, or say on_invalid: skip for %s", invalid, b.spec.Name)}}
}
