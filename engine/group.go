package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// group is a stage's membership in its consumer group: it turns assignments into tasks and routes fetched records to them.
//
// Goroutines: run polls and never waits for a task; kgo calls assigned, revoked and lost one after another on a goroutine of
// its own; every task has one goroutine (task.life). Callbacks fence (bounded), flag and wait (bounded), and do nothing else:
// while one runs the group stands still, though heartbeats go on.
type group struct {
	s      *stage
	client *kgo.Client
	made   chan struct{}   // closed when client is set: kgo may call back before its constructor returns
	hard   context.Context // done when tasks must end at once
	kill   context.CancelCauseFunc

	mu     sync.Mutex
	tasks  map[int32]*task
	joined bool
	closed bool // no new tasks
	wg     sync.WaitGroup

	ops  chan func() // run by the polling goroutine
	wake struct {
		sync.Mutex
		cancel context.CancelFunc
	}
}

func newGroup(s *stage) (*group, error) {
	g := &group{s: s, tasks: map[int32]*task{}, ops: make(chan func(), 64), made: make(chan struct{})}
	g.hard, g.kill = context.WithCancelCause(context.Background())
	opts := []kgo.Opt{
		kgo.ConsumerGroup(s.app),
		kgo.ConsumeTopics(s.topics...),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.Balancers(copartitioned{}),
		kgo.DisableAutoCommit(),
		kgo.SessionTimeout(s.engine.o.Kafka.SessionTimeout),
		kgo.HeartbeatInterval(s.engine.o.Kafka.SessionTimeout / 4),
		kgo.RebalanceTimeout(rebalanceTimeout),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchMaxBytes(fetchBytes),
		kgo.FetchMaxWait(fetchWait),
		kgo.OnPartitionsAssigned(g.assigned),
		kgo.OnPartitionsRevoked(g.revoked),
		kgo.OnPartitionsLost(g.lost),
		kgo.AdjustFetchOffsetsFn(g.fetched),
	}
	if id := s.engine.o.InstanceID; id != "" {
		opts = append(opts, kgo.InstanceID(id))
	}
	client, err := s.engine.kafka.client(opts...)
	if err != nil {
		return nil, err
	}
	g.client = client
	close(g.made)
	return g, nil
}

func (g *group) membership() membership {
	m := membership{group: g.s.app, client: g.client, topicID: func(topic string) [16]byte { return g.s.topicIDs[topic] }}
	if id := g.s.engine.o.InstanceID; id != "" {
		m.instance = &id
	}
	return m
}

// run polls until ctx is done, then stops the tasks and leaves the group.
func (g *group) run(ctx context.Context) error {
	var err error
	for ctx.Err() == nil && err == nil {
		poll, cancel := context.WithCancel(ctx)
		g.wake.Lock()
		g.wake.cancel = cancel
		g.wake.Unlock()
		if len(g.ops) > 0 {
			cancel()
		}
		fetches := g.client.PollFetches(poll)
		cancel()
		err = g.route(fetches)
		for more := true; more; {
			select {
			case op := <-g.ops:
				op()
			default:
				more = false
			}
		}
	}
	g.shutdown()
	return err
}

// do runs op on the polling goroutine, between two polls, unless ctx is done first.
func (g *group) do(ctx context.Context, op func()) {
	select {
	case g.ops <- op:
	case <-ctx.Done():
		return
	}
	g.wake.Lock()
	defer g.wake.Unlock()
	if g.wake.cancel != nil {
		g.wake.cancel()
	}
}

// route hands records to their tasks. Records of a task that is gone are dropped: they were never committed (R5).
func (g *group) route(fetches kgo.Fetches) error {
	var failure error
	fetches.EachError(func(topic string, partition int32, err error) {
		if failure == nil {
			failure = g.fetchError(topic, partition, err)
		}
	})
	if failure != nil {
		return failure
	}
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		if len(p.Records) == 0 {
			return
		}
		g.mu.Lock()
		t := g.tasks[p.Partition]
		g.mu.Unlock()
		if t != nil {
			t.queue.put(p.Topic, p.Records)
		}
	})
	return nil
}

// fetchError answers what cannot be waited out. kgo repeats everything else by itself.
func (g *group) fetchError(topic string, partition int32, err error) error {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, kgo.ErrClientClosed):
		return nil
	case errors.Is(err, kerr.OffsetOutOfRange):
		return fmt.Errorf("%w: %s/%d: the committed offset of group %s is no longer in the log (its records were deleted before they were read); "+
			"set the group's offset with Kafka's own tools to go on without them: %w", ErrSurroundings, topic, partition, g.s.app, err)
	case errors.Is(err, kerr.InvalidSessionTimeout):
		return fmt.Errorf("%w: kafka.session_timeout is %v, which the broker does not take (its group.min.session.timeout.ms and group.max.session.timeout.ms): %w",
			ErrSurroundings, g.s.engine.o.Kafka.SessionTimeout, err)
	case errors.Is(err, kerr.FencedInstanceID), errors.Is(err, kerr.UnreleasedInstanceID):
		return fmt.Errorf("%w: instance.id %s: another process of group %s has the same one: %w", ErrSurroundings, g.s.engine.o.InstanceID, g.s.app, err)
	case topic == "":
		if denied(err) {
			return fmt.Errorf("%w: group %s: %w", ErrSurroundings, g.s.app, err)
		}
		g.s.warn("kafka.group", fmt.Sprintf("group %s: %v", g.s.app, err))
		return nil
	case denied(err), errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID):
		return fmt.Errorf("%w: %s/%d: %w", ErrSurroundings, topic, partition, err)
	}
	if loss := (*kgo.ErrDataLoss)(nil); errors.As(err, &loss) {
		return fmt.Errorf("%w: %s/%d: the broker lost records that were committed: %w", ErrSurroundings, topic, partition, err)
	}
	g.s.warn("kafka.fetch", fmt.Sprintf("%s/%d: %v", topic, partition, err))
	return nil
}

func (s *stage) warn(code, text string) {
	s.engine.o.Events.Warning(WarningInfo{Pipeline: s.pipeline.Name, Stage: s.name, Code: code, Text: text})
}

// grown judges a partition number that was not there at the start. A stage of one input and without state takes it up.
func (s *stage) grown(p int32, added map[string][]int32) error {
	if p < s.partitions || s.changelog == "" && len(s.topics) == 1 {
		return nil
	}
	var topics []string
	for topic, partitions := range added {
		if slices.Contains(partitions, p) {
			topics = append(topics, topic)
		}
	}
	slices.Sort(topics)
	what := "the inputs' partitions must be the same; give all of them the same count and start again"
	if s.changelog != "" {
		what = fmt.Sprintf("changelog %s has %d, and a key's state cannot move with its records; use a topic of the new size and another application_id", s.changelog, s.partitions)
	}
	return fmt.Errorf("%w: %s/%s: %s has grown from %d partitions to at least %d: %s", ErrSurroundings, s.pipeline.Name, s.name,
		strings.Join(topics, ", "), s.partitions, p+1, what)
}

// assigned makes a task of each new partition number and fences it, before kgo fetches offsets (E3).
func (g *group) assigned(ctx context.Context, cl *kgo.Client, added map[string][]int32) {
	<-g.made
	// Nothing is fetched for a task before it runs.
	cl.PauseFetchPartitions(added)
	var fresh []*task
	g.mu.Lock()
	g.joined = true
	for _, p := range numbers(added) {
		if err := g.s.grown(p, added); err != nil {
			go g.s.engine.fail(err)
			continue
		}
		if g.closed || g.tasks[p] != nil {
			continue
		}
		t := newTask(g, p)
		g.tasks[p] = t
		fresh = append(fresh, t)
	}
	g.mu.Unlock()
	bound, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	var fences sync.WaitGroup
	for _, t := range fresh {
		g.s.engine.o.Events.TaskAssigned(t.info)
		fences.Go(func() { t.fence(bound) })
	}
	fences.Wait()
	for _, t := range fresh {
		g.wg.Go(func() { t.life() })
	}
}

// fetched learns where each new task's inputs begin. It runs after assigned and before the first fetch.
func (g *group) fetched(_ context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	at("offset-fetch")
	byTask := map[int32][]Offset{}
	for topic, partitions := range offsets {
		for p, o := range partitions {
			byTask[p] = append(byTask[p], Offset{Topic: topic, Partition: p, Offset: o.EpochOffset().Offset, committed: o.EpochOffset().Offset >= 0})
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for p, os := range byTask {
		if t := g.tasks[p]; t != nil {
			t.offsetsFetched(os)
		}
	}
	return offsets, nil
}

// revoked ends tasks that go to another member: each finishes or aborts the transaction that it is at.
func (g *group) revoked(_ context.Context, _ *kgo.Client, gone map[string][]int32) {
	if len(gone) > 0 {
		at("revoke")
	}
	g.stop(numbers(gone), rebalanceTimeout/3, func(t *task) { g.s.engine.o.Events.TaskRevoked(t.info) })
}

// lost ends tasks that another member may have already: what they are at cannot commit any more.
func (g *group) lost(_ context.Context, _ *kgo.Client, gone map[string][]int32) {
	g.stop(numbers(gone), 0, func(t *task) { g.s.engine.o.Events.TaskLost(t.info) })
}

// stop ends tasks and waits for them; after grace they are ended by force.
func (g *group) stop(partitions []int32, grace time.Duration, told func(*task)) {
	var gone []*task
	g.mu.Lock()
	for _, p := range partitions {
		if t := g.tasks[p]; t != nil {
			gone = append(gone, t)
		}
	}
	g.mu.Unlock()
	for _, t := range gone {
		told(t)
		t.stop(grace)
	}
	for _, t := range gone {
		<-t.done
	}
	g.mu.Lock()
	for _, t := range gone {
		if g.tasks[t.partition] == t {
			delete(g.tasks, t.partition)
		}
	}
	g.mu.Unlock()
}

// commitOffsets commits offsets outside of any transaction.
func (g *group) commitOffsets(ctx context.Context, offsets []commitOffset) error {
	to := make(map[string]map[int32]kgo.EpochOffset, len(offsets))
	for _, o := range offsets {
		to[o.Topic] = map[int32]kgo.EpochOffset{o.Partition: {Epoch: o.epoch, Offset: o.Offset.Offset}}
	}
	for attempt := 0; ; attempt++ {
		var failure error
		g.client.CommitOffsetsSync(ctx, to, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
			if failure = err; err != nil {
				return
			}
			for _, t := range resp.Topics {
				for _, p := range t.Partitions {
					if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
						failure = fmt.Errorf("%s/%d: %w", t.Topic, p.Partition, err)
					}
				}
			}
		})
		if failure == nil || !mayResend(failure) || attempt == maxResends {
			return failure
		}
		if !pause(ctx, backoff(attempt)) {
			return context.Cause(ctx)
		}
	}
}

// shutdown drains the tasks and leaves the group, so that others need not wait for the session to time out.
func (g *group) shutdown() {
	g.mu.Lock()
	g.closed = true
	var all []int32
	for p := range g.tasks {
		all = append(all, p)
	}
	g.mu.Unlock()
	g.stop(all, g.s.engine.o.ShutdownTimeout, func(*task) {})
	g.kill(errStopped)
	g.wg.Wait()
	at("leave")
	if g.s.engine.o.InstanceID == "" {
		ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
		defer cancel()
		if err := g.client.LeaveGroupContext(ctx); err != nil {
			g.s.warn("kafka.leave", fmt.Sprintf("leave group %s: %v", g.s.app, err))
		}
	}
	g.client.CloseAllowingRebalance()
}

func (g *group) status() (joined bool, tasks []TaskStatus) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, t := range g.tasks {
		tasks = append(tasks, t.status())
	}
	slices.SortFunc(tasks, func(a, b TaskStatus) int { return int(a.Task - b.Task) })
	return g.joined, tasks
}

// numbers are the partition numbers of an assignment, each once: a task is a number across all topics of its stage.
func numbers(assignment map[string][]int32) []int32 {
	var all []int32
	for _, partitions := range assignment {
		all = append(all, partitions...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}
