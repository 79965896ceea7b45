package engine_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flechtwerk/flechtwerk/engine"
	"github.com/flechtwerk/flechtwerk/engine/enginetest"
	"github.com/flechtwerk/flechtwerk/engine/pipeline"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// gathered is a commit interval within which a test writes what is to be one batch.
func gathered(o *engine.Options) { o.CommitInterval = time.Second }

// batch starts spec on a first record, and then writes values as one batch of records of one key.
func (r *rig) batch(dir, in string, spec stageSpec, values ...string) *instance {
	r.t.Helper()
	r.put(in, 0, "k", []byte(`"first"`))
	i := r.startWith(dir, gathered, spec)
	i.log.await(r.t, "0 commit 1", 1)
	records := make([]*kgo.Record, len(values))
	for n, v := range values {
		records[n] = &kgo.Record{Topic: in, Key: []byte("k"), Value: []byte(v)}
	}
	if err := r.cl.ProduceSync(r.t.Context(), records...).FirstErr(); err != nil {
		r.t.Fatal(err)
	}
	return i
}

// quoted is a JSON text of n bytes.
func quoted(n int) string { return `"` + strings.Repeat("x", n-2) + `"` }

// lengths are what outputs of count are, as number:bytes of the input.
func lengths(records []*kgo.Record) []string {
	var out []string
	for _, rec := range records {
		number, value, _ := strings.Cut(string(rec.Value), ":")
		out = append(out, fmt.Sprintf("%s:%d", number, len(value)))
	}
	return out
}

// S5: a state that its changelog does not take ends the process under `fail` and names key, size and remedy; nothing moves.
// Under `skip` its record alone is passed over.
func TestS5StateTooLarge(t *testing.T) {
	r := newRig(t)
	in := r.topic("in", 1)
	out := &stream.Topic{Name: r.topic("out", 1)}
	r.topic("changelog", 1, "cleanup.policy=compact", "max.message.bytes=2000")
	spec := r.simple(in, out)
	number := count(out)
	spec.handle = func(rec *stream.Record, state []byte) ([]stream.Message, []byte, error) {
		messages, next, err := number(rec, state)
		if len(rec.Value) > 500 {
			next = append(next[:len(next)-1], fmt.Sprintf(`,"large":%s}`, rec.Value)...)
		}
		return messages, next, err
	}
	dir := t.TempDir()
	i := r.batch(dir, in, spec, "1", quoted(3000))
	err := i.wait()
	var of *engine.RecordError
	if !errors.As(err, &of) || of.Offset != 2 {
		t.Fatalf("error %v, want that of the record at offset 2", err)
	}
	for _, want := range []string{`key "k"`, "30", "2000", r.id + "-changelog", "max.message.bytes"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not say %q", err, want)
		}
	}
	if at := r.committed(r.id, in, 0); at != 1 {
		t.Errorf("committed offset %d, want 1", at)
	}
	spec.onError = pipeline.Skip
	// A state that a later record of the batch makes smaller again is never written.
	r.put(in, 0, "k", []byte(quoted(1500)))
	r.put(in, 0, "k", []byte(quoted(3001)))
	i = r.startWith(dir, gathered, spec)
	if got := lengths(r.read(out.Name, 4)); !slices.Equal(got, []string{"1:7", "2:1", "3:3000", "4:1500"}) {
		t.Errorf("outputs %q", got)
	}
	i.stopped()
	r.checkFold(dir, 1)
	r.checkOffsets(in, 1, 5)
	if i.log.count("warning state.large") == 0 {
		t.Errorf("no warning at half of the limit; effects:\n%s", i.log)
	}
}

// An output that its topic does not take, found by the client: topic, key, size and remedy are named.
func TestS5OutputTooLarge(t *testing.T) {
	r := newRig(t)
	in := r.topic("in", 1)
	out := &stream.Topic{Name: r.topic("out", 1, "max.message.bytes=2000")}
	spec := r.simple(in, out)
	i := r.batch("", in, spec, "1", quoted(3000), "3")
	err := i.wait()
	var of *engine.RecordError
	if !errors.As(err, &of) || of.Offset != 2 {
		t.Fatalf("error %v, want that of the record at offset 2", err)
	}
	for _, want := range []string{`key "k"`, "300", "2000", out.Name, "max.message.bytes"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not say %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "xxx") {
		t.Errorf("error %q shows the payload", err)
	}
	spec.onError = pipeline.Skip
	i = r.startWith("", gathered, spec)
	if got := lengths(r.read(out.Name, 3)); !slices.Equal(got, []string{"1:7", "2:1", "3:1"}) {
		t.Errorf("outputs %q", got)
	}
	i.stopped()
	r.checkOffsets(in, 1, 4)
}

// Many records that are each small enough are written, however little the topic takes at once.
func TestS5ManySmallOutputs(t *testing.T) {
	for _, bytes := range []int{1000, 200} {
		t.Run(strconv.Itoa(bytes), func(t *testing.T) {
			r := newRig(t)
			in := r.topic("in", 1)
			out := &stream.Topic{Name: r.topic("out", 1, "max.message.bytes="+strconv.Itoa(bytes))}
			l := r.load(in, 1, 3, 200)
			l.wait()
			i := r.start("", r.simple(in, out))
			r.checkCounters(out.Name, 200)
			i.stopped()
		})
	}
}

// limit changes what a topic takes while the engine runs.
func (r *rig) limit(topic string, bytes int) {
	r.t.Helper()
	value := fmt.Sprint(bytes)
	resp, err := kadm.NewClient(r.cl).AlterTopicConfigs(r.t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &value}}, topic)
	if err == nil {
		_, err = resp.On(topic, func(a *kadm.AlterConfigsResponse) error { return a.Err })
	}
	if err != nil {
		r.t.Fatal(err)
	}
	// A broker takes a moment; it refuses by the new limit once it does.
	probe := r.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	for {
		err := probe.ProduceSync(r.t.Context(), &kgo.Record{Topic: topic, Partition: 1, Value: make([]byte, bytes+1)}).FirstErr()
		if errors.Is(err, kerr.MessageTooLarge) {
			return
		}
		if err != nil {
			r.t.Fatal(err)
		}
	}
}

// A broker refuses a batch as a whole. The engine finds the one record that is to blame: those beside it are written.
func TestV1RefusedRecordIsFoundAmongOthers(t *testing.T) {
	for _, policy := range []pipeline.Policy{pipeline.Fail, pipeline.Skip} {
		t.Run(policy.String(), func(t *testing.T) {
			r := newRig(t)
			in := r.topic("in", 1)
			out := &stream.Topic{Name: r.topic("out", 2)}
			number := count(out)
			spec := r.simple(in, out)
			spec.onError = policy
			spec.handle = func(rec *stream.Record, state []byte) ([]stream.Message, []byte, error) {
				messages, next, err := number(rec, state)
				if err == nil {
					messages[0].Partition = 0
				}
				return messages, next, err
			}
			dir := t.TempDir()
			r.put(in, 0, "k", []byte(`"first"`))
			i := r.startWith(dir, gathered, spec)
			i.log.await(t, "0 commit 1", 1)
			r.limit(out.Name, 2000)
			records := []*kgo.Record{}
			for _, v := range []string{"1", quoted(700), "3", quoted(3000), quoted(701), quoted(702)} {
				records = append(records, &kgo.Record{Topic: in, Key: []byte("k"), Value: []byte(v)})
			}
			if err := r.cl.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
				t.Fatal(err)
			}
			if policy == pipeline.Fail {
				var of *engine.RecordError
				if err := i.wait(); !errors.As(err, &of) || of.Offset != 4 || !strings.Contains(err.Error(), out.Name) {
					t.Fatalf("error %v, want that of the record at offset 4", err)
				}
				return
			}
			r.read(out.Name, 6)
			i.stopped()
			got := enginetest.ReadCommitted(t, r.opts(), out.Name)
			got = slices.DeleteFunc(got, func(rec *kgo.Record) bool { return rec.Partition != 0 })
			if got := lengths(got); !slices.Equal(got, []string{"1:7", "2:1", "3:700", "4:1", "5:701", "6:702"}) {
				t.Errorf("outputs %q; effects:\n%s", got, i.log)
			}
			if n := i.log.count("0 failed"); n != 1 {
				t.Errorf("%d records failed, want 1; effects:\n%s", n, i.log)
			}
			r.checkFold(dir, 1)
		})
	}
}

// A message for a partition that its topic does not have follows on_error; the task does not try for ever.
func TestV1PartitionThatIsNotThere(t *testing.T) {
	r := newRig(t)
	in := r.topic("in", 1)
	out := &stream.Topic{Name: r.topic("out", 2)}
	number := count(out)
	spec := r.simple(in, out)
	spec.handle = func(rec *stream.Record, state []byte) ([]stream.Message, []byte, error) {
		messages, next, err := number(rec, state)
		if err == nil && bytes.Equal(rec.Value, []byte("9")) {
			messages[0].Partition = 9
		}
		return messages, next, err
	}
	i := r.batch("", in, spec, "1", "9", "2")
	var of *engine.RecordError
	if err := i.wait(); !errors.As(err, &of) || of.Offset != 2 || !strings.Contains(err.Error(), "partition 9") || !strings.Contains(err.Error(), out.Name) {
		t.Fatalf("error %v, want that of the record at offset 2, with partition and topic", err)
	}
	spec.onError = pipeline.Skip
	i = r.startWith("", gathered, spec)
	if got := lengths(r.read(out.Name, 3)); !slices.Equal(got, []string{"1:7", "2:1", "3:1"}) {
		t.Errorf("outputs %q", got)
	}
	i.stopped()
}

// An output without a key for a compacted topic: the broker refuses the whole batch, and the one record is found.
func TestV1NullKeyForACompactedTopic(t *testing.T) {
	if !realTier() {
		t.Skip("the fake cluster takes records without a key on compacted topics")
	}
	r := newRig(t)
	in := r.topic("in", 1)
	out := &stream.Topic{Name: r.topic("out", 1, "cleanup.policy=compact")}
	number := count(out)
	spec := r.simple(in, out)
	spec.onError = pipeline.Skip
	spec.handle = func(rec *stream.Record, state []byte) ([]stream.Message, []byte, error) {
		messages, next, err := number(rec, state)
		if err == nil && bytes.Equal(rec.Value, []byte("9")) {
			messages[0].Key = nil
		}
		return messages, next, err
	}
	i := r.batch("", in, spec, "1", "9", "2")
	if got := values(r.read(out.Name, 3)); !slices.Equal(got, []string{`1:"first"`, "2:1", "3:2"}) {
		t.Errorf("outputs %q", got)
	}
	i.stopped()
}
