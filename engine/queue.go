package engine

import (
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// recordOverhead is what a record weighs in a queue beside its key and value, in bytes.
const recordOverhead = 100

// queue holds the fetched records of one task until it takes them. It is bounded (E8): when it holds twice what a
// transaction takes, its partitions are paused until half of that is gone. The group's polling goroutine puts, the task
// takes.
type queue struct {
	g         *group
	partition int32
	topics    []string

	maxRecords, maxBytes int

	mu      sync.Mutex
	taking  bool // puts are kept; otherwise they are dropped
	paused  bool
	inputs  [][][]*kgo.Record // by input, in declaration order: what was put, less what was taken
	records int
	bytes   int

	filled chan struct{} // holds a token when something was put
}

func newQueue(g *group, partition int32) *queue {
	q := &queue{g: g, partition: partition, maxRecords: g.s.engine.o.BatchRecords, maxBytes: g.s.engine.o.BatchBytes,
		filled: make(chan struct{}, 1), paused: true}
	for _, in := range g.s.inputs {
		q.topics = append(q.topics, in.Topic.Name)
	}
	q.inputs = make([][][]*kgo.Record, len(q.topics))
	return q
}

// weight is what a record counts for against byte budgets.
func weight(r *kgo.Record) int { return len(r.Key) + len(r.Value) + recordOverhead }

// put adds fetched records of one topic. The slice is the queue's from now on.
func (q *queue) put(topic string, records []*kgo.Record) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.taking {
		return
	}
	for i, name := range q.topics {
		if name == topic {
			q.inputs[i] = append(q.inputs[i], records)
		}
	}
	for _, r := range records {
		q.bytes += weight(r)
	}
	q.records += len(records)
	if !q.paused && (q.records >= 2*q.maxRecords || q.bytes >= 2*q.maxBytes) {
		q.paused = true
		q.g.client.PauseFetchPartitions(q.own())
	}
	select {
	case q.filled <- struct{}{}:
	default:
	}
}

func (q *queue) own() map[string][]int32 {
	own := make(map[string][]int32, len(q.topics))
	for _, topic := range q.topics {
		own[topic] = []int32{q.partition}
	}
	return own
}

// open lets records in.
func (q *queue) open() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.taking, q.paused = true, false
	if len(q.topics) > 0 {
		q.g.client.ResumeFetchPartitions(q.own())
	}
}

// shut drops what is queued and whatever still comes, until open.
func (q *queue) shut() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.taking, q.paused = false, true
	if len(q.topics) > 0 {
		q.g.client.PauseFetchPartitions(q.own())
	}
	for i := range q.inputs {
		q.inputs[i] = nil
	}
	q.records, q.bytes = 0, 0
}

// fill is how much waits.
func (q *queue) fill() (records int, full bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.records, q.records >= q.maxRecords || q.bytes >= q.maxBytes
}

// wait returns when a batch is due: something waits and the time has come, or enough waits and the floor has passed. It
// answers false when stop is done.
func (q *queue) wait(stop <-chan struct{}, due, floor time.Time) bool {
	for {
		records, full := q.fill()
		at := due
		if full {
			at = floor
		}
		var timer <-chan time.Time
		if records > 0 {
			pause := time.Until(at)
			if pause <= 0 {
				return true
			}
			timer = time.After(pause)
		}
		select {
		case <-stop:
			return false
		case <-timer:
		case <-q.filled:
		}
	}
}

// take calls each for the records of the next batch: inputs in their order, each by offset.
func (q *queue) take(each func(input int, r *kgo.Record)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	records, bytes := 0, 0
	room := func() bool { return records < q.maxRecords && (bytes < q.maxBytes || records == 0) }
	for i := range q.inputs {
		emptied := 0
		for j, waiting := range q.inputs[i] {
			n := 0
			for ; n < len(waiting) && room(); n++ {
				r := waiting[n]
				waiting[n] = nil
				each(i, r)
				bytes += weight(r)
				records++
			}
			if n < len(waiting) {
				q.inputs[i][j] = waiting[n:]
				break
			}
			emptied++
		}
		q.inputs[i] = slices.Delete(q.inputs[i], 0, emptied)
	}
	q.records -= records
	q.bytes -= bytes
	if q.paused && q.taking && q.records <= q.maxRecords && q.bytes <= q.maxBytes {
		q.paused = false
		q.g.client.ResumeFetchPartitions(q.own())
	}
}
