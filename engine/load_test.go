package engine_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flechtwerk/flechtwerk/engine/enginetest"
	"github.com/flechtwerk/flechtwerk/store"
)

// The requests that faults are installed on.
const (
	produceRequest     = kmsg.Produce
	endTxn             = kmsg.EndTxn
	txnOffsetCommit    = kmsg.TxnOffsetCommit
	addOffsetsToTxn    = kmsg.AddOffsetsToTxn
	heartbeat          = kmsg.Heartbeat
	initProducerID     = kmsg.InitProducerID
	offsetFetch        = kmsg.OffsetFetch
	listOffsets        = kmsg.ListOffsets
	offsetCommit       = kmsg.OffsetCommit
	addPartitionsToTxn = kmsg.AddPartitionsToTxn
)

// load is a stream of records: record i has key k{i%keys}, and value i; the key's number decides the partition.
type load struct {
	r     *rig
	group sync.WaitGroup
	stop  context.CancelFunc

	mu   sync.Mutex
	sent int
}

// load begins to write n records; with n 0 it goes on until stopped.
func (r *rig) load(topic string, partitions int32, keys, n int) *load {
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{r: r, stop: cancel}
	cl := r.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MaxBufferedRecords(200))
	l.group.Go(func() {
		for i := 0; (n == 0 || i < n) && ctx.Err() == nil; i++ {
			k := i % keys
			rec := &kgo.Record{Topic: topic, Partition: int32(k) % partitions, Key: []byte("k" + strconv.Itoa(k)), Value: strconv.AppendInt(nil, int64(i), 10)}
			cl.Produce(context.Background(), rec, func(_ *kgo.Record, err error) {
				l.mu.Lock()
				defer l.mu.Unlock()
				if l.sent++; err != nil {
					r.t.Errorf("write the load: %v", err)
				}
			})
			if n == 0 && i%20 == 0 {
				// An endless load is not to be a test of speed: one request at a time.
				if err := cl.Flush(ctx); err != nil {
					break
				}
			}
		}
		if err := cl.Flush(context.Background()); err != nil {
			r.t.Errorf("write the load: %v", err)
		}
	})
	r.t.Cleanup(func() { l.end() })
	return l
}

// wait waits until all is written.
func (l *load) wait() int {
	l.group.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sent
}

// end stops an endless load and answers how many records there are.
func (l *load) end() int {
	l.stop()
	return l.wait()
}

// checkCounters reads n outputs of count over a load: of each key 1, 2, 3, … in order, made of its records in order.
func (r *rig) checkCounters(topic string, n int) {
	r.t.Helper()
	records := r.read(topic, n)
	if len(records) != n {
		r.t.Errorf("%s has %d records, want %d", topic, len(records), n)
	}
	last := map[string]int{}
	value := map[string]int{}
	for _, rec := range records {
		key := string(rec.Key)
		number, of, _ := strings.Cut(string(rec.Value), ":")
		if number != strconv.Itoa(last[key]+1) {
			r.t.Fatalf("%s/%d at offset %d, key %s: number %s comes after %d", topic, rec.Partition, rec.Offset, key, number, last[key])
		}
		last[key]++
		v, err := strconv.Atoi(of)
		if before, ok := value[key]; err != nil || ok && v <= before {
			r.t.Fatalf("%s/%d at offset %d, key %s: record %s comes after %d", topic, rec.Partition, rec.Offset, key, of, before)
		}
		value[key] = v
	}
}

// checkOffsets checks that the committed offsets of a topic that holds n records and no markers are its ends.
func (r *rig) checkOffsets(topic string, partitions int32, n int) {
	r.t.Helper()
	ends, err := kadm.NewClient(r.cl).ListEndOffsets(r.t.Context(), topic)
	if err != nil {
		r.t.Fatal(err)
	}
	sum := 0
	for p := range partitions {
		end, _ := ends.Lookup(topic, p)
		if at := r.committed(r.id, topic, p); at != end.Offset {
			r.t.Errorf("committed offset of %s/%d is %d, want %d", topic, p, at, end.Offset)
		}
		sum += int(end.Offset)
	}
	if sum != n {
		r.t.Errorf("%s has %d records, want %d", topic, sum, n)
	}
}

// stored is what the local store in dir holds of an application, after its process has ended.
func stored(t *testing.T, dir, app string, partitions int32) map[string]string {
	t.Helper()
	db, err := store.Open(store.Config{Dir: dir, Memory: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	m := map[string]string{}
	for p := range partitions {
		states, failure := db.Partition(app, p).All()
		for key, value := range states {
			m[key] = string(value)
		}
		if err := failure(); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// checkFold checks S1: the local store holds what the committed changelog folds to.
func (r *rig) checkFold(dir string, partitions int32) {
	r.t.Helper()
	want := enginetest.Fold(r.t, r.opts(), r.id+"-changelog")
	got := stored(r.t, dir, r.id, partitions)
	if fmt.Sprint(got) != fmt.Sprint(want) {
		r.t.Errorf("the store holds %v, the changelog folds to %v", got, want)
	}
}

// ofTask are the effects of one task so far, without its number.
func (l *effects) ofTask(task int32) []string {
	var out []string
	for _, line := range l.all() {
		if rest, ok := strings.CutPrefix(line, fmt.Sprintf("%d ", task)); ok {
			out = append(out, rest)
		}
	}
	return out
}

// count is how many effects begin with prefix.
func (l *effects) count(prefix string) int {
	n := 0
	for _, line := range l.all() {
		if strings.HasPrefix(line, prefix) {
			n++
		}
	}
	return n
}

// stopped ends an instance and fails the test on an error.
func (i *instance) stopped() {
	i.r.t.Helper()
	if err := i.stop(); err != nil {
		i.r.t.Errorf("the engine ended with %v; effects:\n%s", err, i.log)
	}
}

// foreign is a producer of a task's transactional id that is not of the engine.
func (r *rig) foreign(task int32) *kgo.Client {
	r.t.Helper()
	return r.client(kgo.TransactionalID(fmt.Sprintf("%s-%d", r.id, task)), kgo.RecordPartitioner(kgo.ManualPartitioner()))
}
