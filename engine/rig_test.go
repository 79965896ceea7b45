package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flechtwerk/flechtwerk/engine"
	"github.com/flechtwerk/flechtwerk/engine/enginetest"
	"github.com/flechtwerk/flechtwerk/engine/pipeline"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// TestMain lets more tests run side by side than there are processors: most of their time they wait.
func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", "6"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// rig is a cluster and what tests do with it. The same tests run on the fake cluster and, with FLECHTWERK_TIER=kafka, on a
// real one; tests that need faults have fake set only on the first.
type rig struct {
	t    *testing.T
	fake *enginetest.Fake // nil on a real Kafka
	kafk engine.Kafka
	cl   *kgo.Client
	id   string

	instances []*instance // in the order of their starts
}

// effects are those of all instances so far.
func (r *rig) effects() string {
	var b strings.Builder
	for n, i := range r.instances {
		fmt.Fprintf(&b, "\neffects of instance %d:\n%s", n, i.log)
	}
	return b.String()
}

// realTier tells whether tests run on a real Kafka.
func realTier() bool { return os.Getenv("FLECHTWERK_TIER") == "kafka" }

// newRig makes a rig. The test runs beside others: each has names, and on the fake tier a cluster, of its own.
func newRig(t *testing.T) *rig {
	t.Helper()
	t.Parallel()
	return newRigOn(t, enginetest.FakeConfig{})
}

// newRigOn is newRig with a fake of another kind.
func newRigOn(t *testing.T, config enginetest.FakeConfig) *rig {
	t.Helper()
	r := &rig{t: t, id: fmt.Sprintf("%s-%d", strings.ToLower(strings.Map(letters, t.Name())), time.Now().UnixNano()%1e9)}
	if realTier() {
		r.kafk.Brokers = []string{enginetest.Kafka(t)}
		r.kafk.Dial = (&net.Dialer{}).DialContext
	} else {
		r.fake = enginetest.NewFake(t, config)
		r.kafk.Brokers = r.fake.Addrs()
		r.kafk.Dial = r.fake.Dial
	}
	r.kafk.SessionTimeout = 2 * time.Second
	r.cl = r.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	return r
}

// opts are what a client of the test's own needs to reach the cluster.
func (r *rig) opts() []kgo.Opt {
	return []kgo.Opt{kgo.SeedBrokers(r.kafk.Brokers...), kgo.Dialer(r.kafk.Dial), kgo.MetadataMinAge(20 * time.Millisecond)}
}

// client is a client of the test's own; it ends with the test.
func (r *rig) client(opts ...kgo.Opt) *kgo.Client {
	r.t.Helper()
	cl, err := kgo.NewClient(append(r.opts(), opts...)...)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(cl.Close)
	return cl
}

// wire is the network of one instance. Cut, it is to the cluster as if the process had died, though it goes on thinking.
type wire struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu    sync.Mutex
	down  bool
	conns map[net.Conn]bool
}

var errCut = errors.New("the test has cut the network")

func (w *wire) connect(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	down := w.down
	w.mu.Unlock()
	if down {
		return nil, errCut
	}
	c, err := w.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down {
		c.Close()
		return nil, errCut
	}
	w.conns[c] = true
	return c, nil
}

// kill closes what is open now.
func (w *wire) kill() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(w.conns)
	for c := range w.conns {
		c.Close()
	}
	clear(w.conns)
	return n
}

// cut closes everything and lets nothing through until heal.
func (w *wire) cut() {
	w.mu.Lock()
	w.down = true
	w.mu.Unlock()
	w.kill()
}

func (w *wire) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = false
}

// needFake skips a test on the real tier that plays with the broker's insides.
func needFake(t *testing.T) {
	if realTier() {
		t.Skip("faults of this kind need the fake cluster")
	}
}

func letters(r rune) rune {
	if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' {
		return r
	}
	return '-'
}

// topic makes a topic, which keeps its records for ever as those of enginetest.CreateTopic do.
func (r *rig) topic(name string, partitions int32, config ...string) string {
	r.t.Helper()
	full, forever := r.id+"-"+name, "-1"
	settings := map[string]*string{"retention.ms": &forever}
	for _, c := range config {
		k, v, ok := strings.Cut(c, "=")
		if !ok {
			r.t.Fatalf("config %q is not written name=value", c)
		}
		settings[k] = &v
	}
	if _, err := kadm.NewClient(r.cl).CreateTopic(r.t.Context(), partitions, 1, settings, full); err != nil {
		r.t.Fatalf("create topic %s: %v", full, err)
	}
	// A real broker answers before it knows the topic itself.
	for deadline := time.Now().Add(30 * time.Second); ; {
		found, err := kadm.NewClient(r.cl).ListTopics(r.t.Context(), full)
		if err == nil && found[full].Err == nil && len(found[full].Partitions) == int(partitions) {
			return full
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("topic %s does not appear: %v", full, err)
		}
	}
}

// put writes one record. A nil value is a tombstone.
func (r *rig) put(topic string, partition int32, key string, value []byte) {
	r.t.Helper()
	rec := &kgo.Record{Topic: topic, Partition: partition, Key: []byte(key), Value: value}
	if err := r.cl.ProduceSync(r.t.Context(), rec).FirstErr(); err != nil {
		r.t.Fatalf("produce to %s: %v", topic, err)
	}
}

// read consumes a topic read_committed until it has n records, in the order of each partition.
func (r *rig) read(topic string, n int) []*kgo.Record {
	r.t.Helper()
	cl := r.client(kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond))
	defer cl.Close()
	ctx, cancel := context.WithTimeout(r.t.Context(), 30*time.Second)
	defer cancel()
	var out []*kgo.Record
	for len(out) < n {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			r.t.Fatalf("%s: %d records, want %d%s", topic, len(out), n, r.effects())
		}
		out = append(out, fetches.Records()...)
	}
	return out
}

// committed is the group's offset of a partition, or -1.
func (r *rig) committed(group, topic string, partition int32) int64 {
	r.t.Helper()
	offsets, err := kadm.NewClient(r.cl).FetchOffsets(r.t.Context(), group)
	if err != nil {
		r.t.Fatal(err)
	}
	o, ok := offsets.Lookup(topic, partition)
	if !ok {
		return -1
	}
	return o.At
}

// setCommitted gives the group an offset, as a stage has one whose changelog holds state.
func (r *rig) setCommitted(topic string, partition int32, offset int64) {
	r.t.Helper()
	var offsets kadm.Offsets
	offsets.AddOffset(topic, partition, offset, -1)
	if err := kadm.NewClient(r.cl).CommitAllOffsets(r.t.Context(), r.id, offsets); err != nil {
		r.t.Fatal(err)
	}
}

// handler is a transformer's body in Go: what one record becomes.
type handler func(r *stream.Record, state []byte) (out []stream.Message, next []byte, err error)

// transform runs a handler as stream.Transform says.
type transform struct {
	handle   handler
	before   func(context.Context)
	stateful bool
}

func (h *transform) Forget() {}
func (h *transform) Close()  {}

func (h *transform) Run(ctx context.Context, b *stream.Batch) error {
	if h.before != nil {
		h.before(ctx)
	}
	overlay := map[string][]byte{}
	from := map[string]int{}
	for i := range b.Records {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		r := &b.Records[i]
		var state []byte
		if h.stateful {
			var ok bool
			if state, ok = overlay[r.StateKey]; !ok {
				stored, err := b.States.State(r.StateKey)
				if err != nil {
					return err
				}
				state = append([]byte(nil), stored...)
			}
		}
		out, next, err := h.handle(r, state)
		if err != nil {
			if err := b.Fail(i, err); err != nil {
				return err
			}
			continue
		}
		for j := range out {
			out[j].From = i
		}
		b.Messages = append(b.Messages, out...)
		if h.stateful && string(next) != string(state) {
			overlay[strings.Clone(r.StateKey)] = next
			from[strings.Clone(r.StateKey)] = i
		}
	}
	for key, value := range overlay {
		stored, err := b.States.State(key)
		if err != nil {
			return err
		}
		if string(stored) != string(value) {
			b.Changes = append(b.Changes, stream.Change{Key: key, Value: value, From: from[key]})
		}
	}
	return nil
}

// stageSpec is one transformer of a test.
type stageSpec struct {
	app       string
	inputs    []string
	output    *stream.Topic
	handle    handler
	stateless bool
	onError   pipeline.Policy
	onInvalid pipeline.Policy
	formats   stream.Topic
	change    func(*pipeline.Transformer)
	before    func(context.Context) // runs before a batch is handled
}

// count is a handler that numbers the records of each key and sends `n:value` on.
func count(output *stream.Topic) handler {
	return func(r *stream.Record, state []byte) ([]stream.Message, []byte, error) {
		var s struct {
			N int `json:"n"`
		}
		if state != nil {
			if err := json.Unmarshal(state, &s); err != nil {
				return nil, nil, err
			}
		}
		if string(r.Value) == `"bad"` {
			return nil, nil, errors.New("the body does not like this record")
		}
		s.N++
		next, err := json.Marshal(s)
		out := []stream.Message{{Topic: output, Partition: stream.AnyPartition, Key: r.Key, Value: fmt.Appendf(nil, "%d:%s", s.N, r.Value), Timestamp: r.Timestamp}}
		return out, next, err
	}
}

// instance is one engine under way.
type instance struct {
	r      *rig
	wire   *wire
	Engine *engine.Engine
	cancel context.CancelFunc
	ended  chan struct{}
	err    error
	log    *effects
}

// start runs stages as one process would. Every instance has a state folder of its own unless dir is given.
func (r *rig) start(dir string, specs ...stageSpec) *instance {
	return r.startWith(dir, nil, specs...)
}

func (r *rig) startWith(dir string, change func(*engine.Options), specs ...stageSpec) *instance {
	r.t.Helper()
	p := &pipeline.Pipeline{Name: "test", File: "test.yaml", Vars: []byte("{}")}
	bodies := map[string]*transform{}
	for i, s := range specs {
		t := &pipeline.Transformer{Name: fmt.Sprintf("stage%d", i), ApplicationID: s.app, OnError: s.onError, OnInvalid: s.onInvalid, HasState: !s.stateless, Timeout: time.Minute}
		t.Transform.Text.Text = "in Go"
		for _, in := range s.inputs {
			topic := s.formats
			topic.Name = in
			t.Inputs = append(t.Inputs, &stream.Input{Name: in, Topic: topic})
			t.InputTopics = append(t.InputTopics, &pipeline.Topic{Topic: topic})
		}
		if s.output != nil {
			t.OutputTopics = []*pipeline.Topic{{Topic: *s.output}}
		}
		if s.change != nil {
			s.change(t)
		}
		p.Transformers = append(p.Transformers, t)
		bodies[t.Name] = &transform{handle: s.handle, before: s.before, stateful: !s.stateless}
	}
	if dir == "" {
		dir = r.t.TempDir()
	}
	o := engine.Options{Kafka: r.kafk, State: engine.State{Dir: dir, Memory: 8 << 20}, CommitInterval: 10 * time.Millisecond}
	o.Handlers.Transform = func(_ *pipeline.Pipeline, t *pipeline.Transformer) (engine.Body, error) {
		return engine.Body{New: func() (stream.Transform, error) { return bodies[t.Name], nil }, Stateful: bodies[t.Name].stateful}, nil
	}
	return r.launch(o, change, p)
}

func (r *rig) launch(o engine.Options, change func(*engine.Options), p *pipeline.Pipeline) *instance {
	r.t.Helper()
	i := &instance{r: r, ended: make(chan struct{}), log: newEffects()}
	i.wire = &wire{dial: r.kafk.Dial, conns: map[net.Conn]bool{}}
	o.Kafka.Dial = i.wire.connect
	o.Events = i.log.events()
	if change != nil {
		change(&o)
	}
	e, err := engine.New([]*pipeline.Pipeline{p}, o)
	if err != nil {
		r.t.Fatal(err)
	}
	i.Engine = e
	ctx, cancel := context.WithCancel(context.Background())
	i.cancel = cancel
	r.instances = append(r.instances, i)
	go func() {
		defer close(i.ended)
		i.err = e.Run(ctx)
		i.log.add("ended: %v", i.err)
	}()
	r.t.Cleanup(func() {
		i.wire.heal()
		cancel()
		<-i.ended
	})
	return i
}

// stop ends the instance as SIGTERM does.
func (i *instance) stop() error {
	i.r.t.Helper()
	i.cancel()
	return i.wait()
}

// wait waits for the instance's own end.
func (i *instance) wait() error {
	i.r.t.Helper()
	select {
	case <-i.ended:
		return i.err
	case <-time.After(60 * time.Second):
		i.r.t.Fatalf("the engine did not end; effects so far:\n%s", i.log)
		return nil
	}
}

// effects is the ordered list of what an instance did.
type effects struct {
	mu    sync.Mutex
	lines []string
	more  chan struct{}
}

func newEffects() *effects { return &effects{more: make(chan struct{})} }

func (l *effects) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
	close(l.more)
	l.more = make(chan struct{})
}

func (l *effects) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "\n")
}

func (l *effects) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.lines...)
}

// await waits until a line that begins with prefix has come n times.
func (l *effects) await(t *testing.T, prefix string, n int) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		l.mu.Lock()
		found := 0
		for _, line := range l.lines {
			if strings.HasPrefix(line, prefix) {
				found++
			}
		}
		more := l.more
		ended := len(l.lines) > 0 && strings.HasPrefix(l.lines[len(l.lines)-1], "ended")
		l.mu.Unlock()
		if found >= n {
			return
		}
		if ended {
			t.Fatalf("%q came %d times, want %d; effects:\n%s", prefix, found, n, l)
		}
		select {
		case <-more:
		case <-deadline:
			t.Fatalf("%q came %d times, want %d; effects:\n%s", prefix, found, n, l)
		}
	}
}

func (l *effects) events() engine.Events {
	return engine.Events{
		TaskAssigned:    func(i engine.TaskInfo) { l.add("%d assigned", i.Task) },
		TaskFenced:      func(i engine.TaskInfo) { l.add("%d fence", i.Task) },
		OffsetsFetched:  func(i engine.OffsetsInfo) { l.add("%d offsets fetched", i.Task) },
		TakeoverWritten: func(i engine.TaskInfo) { l.add("%d takeover", i.Task) },
		RestoreProgress: func(i engine.RestoreInfo) {
			if i.Done {
				l.add("%d restored %d from %d", i.Task, i.Records, i.From)
			}
		},
		TaskRunning:    func(i engine.TaskInfo) { l.add("%d running", i.Task) },
		TaskRevoked:    func(i engine.TaskInfo) { l.add("%d revoked", i.Task) },
		TaskLost:       func(i engine.TaskInfo) { l.add("%d lost", i.Task) },
		TaskStopped:    func(i engine.TaskInfo) { l.add("%d stopped", i.Task) },
		TaskRestarting: func(i engine.TaskInfo) { l.add("%d restarting: %v", i.Task, i.Err) },

		TransactionBegun:     func(i engine.TransactionInfo) { l.add("%d begin", i.Task) },
		TransactionProduced:  func(i engine.TransactionInfo) { l.add("%d produced %d changed %d", i.Task, i.Messages, i.Changes) },
		OffsetsSent:          func(i engine.TransactionInfo) { l.add("%d offsets %v", i.Task, lastOffsets(i.Offsets)) },
		TransactionCommitted: func(i engine.TransactionInfo) { l.add("%d commit %d", i.Task, i.Records) },
		TransactionAborted:   func(i engine.TransactionInfo) { l.add("%d abort: %v", i.Task, i.Err) },
		StateApplied:         func(i engine.TransactionInfo) { l.add("%d apply", i.Task) },
		OffsetsCommitted:     func(i engine.TransactionInfo) { l.add("%d offsets alone %v", i.Task, lastOffsets(i.Offsets)) },

		RecordInvalid: func(i engine.RecordInfo) {
			l.add("%d invalid at %d skipped %v", i.Task, i.Offset, i.Policy == pipeline.Skip)
		},
		RecordFailed: func(i engine.RecordInfo) {
			l.add("%d failed at %d skipped %v", i.Task, i.Offset, i.Policy == pipeline.Skip)
		},
		PollStarted: func(i engine.PollInfo) { l.add("%d poll %s", i.Task, i.Config) },
		PollEnded:   func(i engine.PollInfo) { l.add("%d polled %s pages %d err %v", i.Task, i.Config, i.Pages, i.Err) },
		Warning:     func(i engine.WarningInfo) { l.add("warning %s: %s", i.Code, i.Text) },
	}
}

func lastOffsets(offsets []engine.Offset) []int64 {
	var out []int64
	for _, o := range offsets {
		out = append(out, o.Offset)
	}
	return out
}
