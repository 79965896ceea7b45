package engine_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flechtwerk/flechtwerk/engine"
	"github.com/flechtwerk/flechtwerk/engine/enginetest"
	"github.com/flechtwerk/flechtwerk/engine/expr"
	"github.com/flechtwerk/flechtwerk/engine/pipeline"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// slow lets an instance gather all records that are there into one batch.
func slow(o *engine.Options) { o.CommitInterval = 300 * time.Millisecond }

// echo is a stateless handler that sends each record on.
func echo(out *stream.Topic) handler {
	return func(r *stream.Record, _ []byte) ([]stream.Message, []byte, error) {
		if string(r.Value) == `"bad"` {
			return nil, nil, errors.New("the body does not like this record")
		}
		return []stream.Message{{Topic: out, Partition: stream.AnyPartition, Key: r.Key, Value: r.Value, Headers: r.Headers, Timestamp: r.Timestamp}}, nil, nil
	}
}

func values(records []*kgo.Record) []string {
	var out []string
	for _, r := range records {
		out = append(out, string(r.Value))
	}
	return out
}

// T1, T9: within a batch the first input comes before the second, each by offset, and outputs keep that order.
func TestT1InputsInDeclarationOrderAndT9OutputsInInputOrder(t *testing.T) {
	r := newRig(t)
	a, b := r.topic("a", 1), r.topic("b", 1)
	out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String}
	var want []string
	for i, topic := range []string{a, b} {
		for j := range 4 {
			want = append(want, fmt.Sprintf("%d:%s/%d", i*4+j+1, topic, j))
		}
	}
	spec := r.simple("", out)
	spec.inputs = []string{a, b}
	number := count(out)
	spec.handle = func(rec *stream.Record, state []byte) ([]stream.Message, []byte, error) {
		messages, next, err := number(rec, state)
		if err == nil {
			n, _, _ := strings.Cut(string(messages[0].Value), ":")
			messages[0].Value = fmt.Appendf(nil, "%s:%s/%s", n, rec.Input.Topic.Name, rec.Value)
		}
		return messages, next, err
	}
	// The first batch is due at once; the second gathers what comes meanwhile.
	r.put(a, 0, "first", nil)
	i := r.startWith("", func(o *engine.Options) { o.CommitInterval = 2 * time.Second }, spec)
	i.log.await(t, "0 commit 1", 1)
	for _, topic := range []string{b, a} {
		for i := range 4 {
			r.put(topic, 0, "k", []byte(strconv.Itoa(i)))
		}
	}
	got := values(r.read(out.Name, 9))[1:]
	i.stopped()
	if i.log.count("0 commit 8") != 1 {
		t.Fatalf("the records were not one batch; effects:\n%s", i.log)
	}
	if !slices.Equal(got, want) {
		t.Errorf("outputs are\n%v, want\n%v", got, want)
	}
}

// T2, T6, S2: outputs, last state and offsets go together, and a restart goes on where the commit left off.
func TestT2OneTransactionPerBatchAndS2Restart(t *testing.T) {
	r := newRig(t)
	in := r.topic("in", 2)
	out := &stream.Topic{Name: r.topic("out", 2), Value: stream.String, Key: stream.String}
	spec := r.simple(in, out)
	for i := range 10 {
		r.put(in, int32(i%2), fmt.Sprintf("k%d", i%2), fmt.Appendf(nil, "%d", i))
	}
	dir := t.TempDir()
	a := r.start(dir, spec)
	r.read(out.Name, 10)
	a.stopped()
	for i := 10; i < 20; i++ {
		r.put(in, int32(i%2), fmt.Sprintf("k%d", i%2), fmt.Appendf(nil, "%d", i))
	}
	b := r.start(dir, spec)
	r.checkCounters(out.Name, 20)
	b.stopped()
	r.checkOffsets(in, 2, 20)
	r.checkFold(dir, 2)
}

// T2: what a batch holds becomes visible as a whole: the output's transaction is open until offsets and state are in it.
func TestT2NothingIsVisibleBeforeTheEnd(t *testing.T) {
	needFake(t)
	r := newRig(t)
	in := r.topic("in", 1)
	out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String}
	held, release := r.fake.Hold(enginetest.Which{Key: endTxn, TxnID: r.id + "-0", Skip: 1})
	defer release()
	for i := range 5 {
		r.put(in, 0, "k", []byte(strconv.Itoa(i)))
	}
	i := r.startWith("", slow, r.simple(in, out))
	held.Wait(t, 1)
	if got := enginetest.ReadAll(t, r.opts(), out.Name); len(got) != 5 {
		t.Errorf("%d records are written before the end, want 5", len(got))
	}
	if got := enginetest.ReadCommitted(t, r.opts(), out.Name); len(got) != 0 {
		t.Errorf("%d records are visible before the end", len(got))
	}
	if got := enginetest.Fold(t, r.opts(), r.id+"-changelog"); len(got) != 0 {
		t.Errorf("state %v is visible before the end", got)
	}
	if i.log.count("0 apply") != 0 {
		t.Error("the store was changed before the end")
	}
	release()
	r.checkCounters(out.Name, 5)
	i.stopped()
}

// changelogOf are the changelog's records as readers see them, without the engine's own.
func (r *rig) changelogOf() []string {
	var out []string
	for _, rec := range enginetest.ReadCommitted(r.t, r.opts(), r.id+"-changelog") {
		if len(rec.Key) > 0 && rec.Key[0] == 0 {
			continue
		}
		value := string(rec.Value)
		if rec.Value == nil {
			value = "null"
		}
		out = append(out, string(rec.Key)+"="+value)
	}
	return out
}

// setState is a handler whose records are the new state; an empty one deletes.
func setState(rec *stream.Record, _ []byte) ([]stream.Message, []byte, error) {
	if len(rec.Value) == 0 {
		return nil, nil, nil
	}
	return nil, append([]byte(nil), rec.Value...), nil
}

// T2, T3, T5: of several states of a key only the last is written, none if it is the stored one, and a delete of what is
// absent writes nothing.
func TestT3LastStateOnceAndT5Deletes(t *testing.T) {
	r := newRig(t)
	in := r.topic("in", 1)
	out := &stream.Topic{Name: r.topic("out", 1)}
	spec := r.simple(in, out)
	spec.handle = setState
	spec.formats.Value = stream.Bytes
	dir := t.TempDir()
	step := func(want []string, records ...string) {
		t.Helper()
		for _, rec := range records {
			key, value, _ := strings.Cut(rec, "=")
			r.put(in, 0, key, []byte(value))
		}
		i := r.startWith(dir, slow, spec)
		i.log.await(t, "0 offsets", 2) // fetched, then committed one way or the other
		i.stopped()
		if got := r.changelogOf(); !slices.Equal(got, want) {
			t.Fatalf("the changelog is %q, want %q; effects:\n%s", got, want, i.log)
		}
		r.checkFold(dir, 1)
	}
	step([]string{`a={"n":3}`}, `a={"n":1}`, `a={"n":2}`, `a={"n":3}`)
	step([]string{`a={"n":3}`}, `a={"n":4}`, `a={"n":3}`)
	step([]string{`a={"n":3}`}, `b=`)
	step([]string{`a={"n":3}`, `a=null`}, `a={"n":4}`, `a=`)
	step([]string{`a={"n":3}`, `a=null`}, `a=`, `c={"n":1}`, `c=`)
}

// T5: a stage without state has no changelog, opens no store, and commits all the same.
func TestT5StatelessStageHasNoChangelog(t *testing.T) {
	r := newRig(t)
	in := r.topic("in", 2)
	out := &stream.Topic{Name: r.topic("out", 1)}
	spec := r.simple(in, out)
	spec.handle, spec.stateless = echo(out), true
	for i := range 6 {
		r.put(in, int32(i%2), "k", []byte(strconv.Itoa(i)))
	}
	i := r.start("", spec)
	if got := r.read(out.Name, 6); len(got) != 6 {
		t.Errorf("%d records, want 6", len(got))
	}
	i.stopped()
	r.checkOffsets(in, 2, 6)
	topics, err := kadm.NewClient(r.cl).ListTopics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if topics.Has(r.id + "-changelog") {
		t.Error("there is a changelog")
	}
	for _, line := range i.log.all() {
		if strings.Contains(line, "takeover") || strings.Contains(line, "restored") {
			t.Errorf("effect %q of a stage without state", line)
		}
	}
}

// T6: the committed offset is one beyond the last handled record, whatever became of it.
func TestT6OffsetsCoverEveryRecord(t *testing.T) {
	positive, err := expr.Compile("value.n > 0", expr.Record, expr.Condition)
	if err != nil {
		t.Fatal(err)
	}
	good, filtered, invalid, bad := `{"n":1}`, `{"n":-1}`, `{"n":`, `"bad"`
	for name, c := range map[string]struct {
		records []string
		filter  bool
		outputs int
	}{
		"filtered":         {[]string{filtered, filtered}, true, 0},
		"filtered at end":  {[]string{good, filtered}, true, 1},
		"invalid":          {[]string{invalid, invalid}, false, 0},
		"invalid at end":   {[]string{good, invalid}, false, 1},
		"failed":           {[]string{bad, bad}, false, 0},
		"failed at end":    {[]string{good, bad}, false, 1},
		"failed at start":  {[]string{bad, good}, false, 1},
		"all of them":      {[]string{good, bad, filtered, invalid, good, invalid, filtered, bad}, true, 2},
		"nothing but gaps": {[]string{bad, invalid, filtered}, true, 0},
	} {
		for _, kind := range []string{"stateful", "stateless"} {
			t.Run(name+", "+kind, func(t *testing.T) {
				r := newRig(t)
				in := r.topic("in", 1)
				out := &stream.Topic{Name: r.topic("out", 1)}
				spec := r.simple(in, out)
				if spec.stateless = kind == "stateless"; spec.stateless {
					spec.handle = echo(out)
				}
				spec.onError, spec.onInvalid = pipeline.Skip, pipeline.Skip
				if c.filter {
					spec.change = func(t *pipeline.Transformer) { t.Filter = positive }
				}
				for _, rec := range c.records {
					r.put(in, 0, "k", []byte(rec))
				}
				i := r.startWith("", slow, spec)
				enginetest.WaitOffsets(t, r.opts(), r.id, map[string]map[int32]int64{in: {0: int64(len(c.records))}})
				i.stopped()
				r.checkOffsets(in, 1, len(c.records))
				if got := enginetest.ReadCommitted(t, r.opts(), out.Name); len(got) != c.outputs {
					t.Errorf("%d outputs, want %d; effects:\n%s", len(got), c.outputs, i.log)
				}
			})
		}
	}
}

// T7, V1: an invalid record under `fail` ends the process; neither its offset nor those before it in the batch move, and
// nothing of the batch comes out.
func TestT7InvalidFailsBeforeTheTransaction(t *testing.T) {
	r := newRig(t)
	in := r.topic("in", 1)
	out := &stream.Topic{Name: r.topic("out", 1)}
	for _, value := range []string{"1", "2", `{"n":`, "4"} {
		r.put(in, 0, "k", []byte(value))
	}
	i := r.startWith("", slow, r.simple(in, out))
	err := i.wait()
	var of *engine.RecordError
	if !errors.As(err, &of) || of.Offset != 2 || of.Topic != in || of.Partition != 0 || of.Key != "k" {
		t.Fatalf("error %v, want that of the record at offset 2", err)
	}
	if errors.Is(err, engine.ErrSurroundings) || errors.Is(err, engine.ErrPipeline) {
		t.Errorf("error %v is of another exit status than 1", err)
	}
	if !strings.Contains(err.Error(), "on_invalid: skip") {
		t.Errorf("error %q names no remedy", err)
	}
	if at := r.committed(r.id, in, 0); at > 0 {
		t.Errorf("committed offset %d, want none", at)
	}
	if got := enginetest.ReadAll(t, r.opts(), out.Name); len(got) != 0 {
		t.Errorf("%d outputs of the batch", len(got))
	}
	if i.log.count("0 begin") != 0 {
		t.Errorf("a transaction was begun; effects:\n%s", i.log)
	}
}

// E10: a record whose body fails under `fail` ends the process, and nothing of its batch comes out.
func TestE10FailedRecordReachesNoOutput(t *testing.T) {
	r := newRig(t)
	in := r.topic("in", 1)
	out := &stream.Topic{Name: r.topic("out", 1)}
	for _, value := range []string{"1", `"bad"`, "3"} {
		r.put(in, 0, "k", []byte(value))
	}
	i := r.startWith("", slow, r.simple(in, out))
	var of *engine.RecordError
	if err := i.wait(); !errors.As(err, &of) || of.Offset != 1 || !strings.Contains(err.Error(), "does not like this record") {
		t.Fatalf("error %v, want that of the record at offset 1", err)
	}
	if at := r.committed(r.id, in, 0); at > 0 {
		t.Errorf("committed offset %d, want none", at)
	}
	if got := enginetest.ReadAll(t, r.opts(), out.Name); len(got) != 0 {
		t.Errorf("%d outputs of the batch", len(got))
	}
	if got := r.changelogOf(); len(got) != 0 {
		t.Errorf("state %q of the batch", got)
	}
}

// V1, E10: a skipped record leaves neither output nor state, and those around it are as if it had not been there.
func TestV1SkipLeavesNothingOfTheRecord(t *testing.T) {
	r := newRig(t)
	in := r.topic("in", 1)
	out := &stream.Topic{Name: r.topic("out", 1)}
	for _, value := range []string{"1", `"bad"`, "2", `{"n":`, "3"} {
		r.put(in, 0, "k", []byte(value))
	}
	spec := r.simple(in, out)
	spec.onError, spec.onInvalid = pipeline.Skip, pipeline.Skip
	dir := t.TempDir()
	i := r.startWith(dir, slow, spec)
	if got := values(r.read(out.Name, 3)); !slices.Equal(got, []string{"1:1", "2:2", "3:3"}) {
		t.Errorf("outputs %q", got)
	}
	i.stopped()
	r.checkFold(dir, 1)
	for _, want := range []string{"0 failed at 1 skipped true", "0 invalid at 3 skipped true"} {
		if i.log.count(want) != 1 {
			t.Errorf("no effect %q; effects:\n%s", want, i.log)
		}
	}
}

// V2: an error names the record and shows nothing of what it holds.
func TestV2ErrorNamesTheRecordNeverThePayload(t *testing.T) {
	const marker = "PAYLOAD-MARKER"
	fails, err := expr.Compile(`value.text matches value.pattern`, expr.Record, expr.Condition)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		value   string
		formats stream.Topic
		filter  *expr.Expr
	}{
		"half an object":   {`{"secret":"` + marker, stream.Topic{}, nil},
		"trailing text":    {`{"secret":1} ` + marker, stream.Topic{}, nil},
		"no JSON":          {marker, stream.Topic{}, nil},
		"bad escape":       {`{"` + marker + `\q":1}`, stream.Topic{}, nil},
		"bad UTF-8":        {marker + "\xff", stream.Topic{Value: stream.String}, nil},
		"bad UTF-8 JSON":   {`{"a":"` + marker + "\xff\"}", stream.Topic{}, nil},
		"failed filter":    {`{"text":"` + marker + `","pattern":"(` + marker + `"}`, stream.Topic{}, fails},
		"duplicate member": {`{"` + marker + `":1,,}`, stream.Topic{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			in := r.topic("in", 2)
			out := &stream.Topic{Name: r.topic("out", 1)}
			spec := r.simple(in, out)
			spec.formats.Value = c.formats.Value
			spec.change = func(t *pipeline.Transformer) { t.Filter = c.filter }
			r.put(in, 1, "the-key", []byte("1"))
			r.put(in, 1, "the-key", []byte(c.value))
			i := r.start("", spec)
			err := i.wait()
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range []string{in + "/1", "offset 1", `"the-key"`, "test/stage0"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
			if strings.Contains(err.Error(), marker) {
				t.Errorf("error %q shows the payload", err)
			}
			if strings.Contains(i.log.String(), marker) {
				t.Errorf("an event shows the payload; effects:\n%s", i.log)
			}
		})
	}
}

// seen is what a body was given.
type seen struct {
	mu      sync.Mutex
	records []stream.Record
}

func (s *seen) see(out *stream.Topic) handler {
	next := echo(out)
	return func(r *stream.Record, state []byte) ([]stream.Message, []byte, error) {
		s.mu.Lock()
		s.records = append(s.records, *r)
		s.mu.Unlock()
		return next(r, state)
	}
}

// W2, W3: null keys, empty and null values, times and headers, in and out.
func TestW2NullsAndW3TimesAndHeaders(t *testing.T) {
	r := newRig(t)
	in := r.topic("in", 1)
	out := &stream.Topic{Name: r.topic("out", 1)}
	s := &seen{}
	spec := r.simple(in, out)
	spec.handle, spec.stateless = s.see(out), true
	headers := []kgo.RecordHeader{{Key: "b", Value: []byte("1")}, {Key: "a", Value: []byte("2")}, {Key: "b", Value: []byte("\xff\x00")}, {Key: "n", Value: nil}, {Key: "e", Value: []byte{}}}
	sent := []*kgo.Record{
		{Topic: in, Key: nil, Value: []byte(`{"a":1}`), Timestamp: time.UnixMilli(1_234_567_890_123)},
		{Topic: in, Key: []byte{}, Value: []byte{}, Timestamp: time.UnixMilli(1)},
		{Topic: in, Key: []byte("k"), Value: nil, Timestamp: time.UnixMilli(4_102_444_800_000 - 4_000_000_000_000)},
		{Topic: in, Key: []byte("k"), Value: []byte(`{"n":1e-06,"m":200.0,"big":9223372036854775808}`), Headers: headers, Timestamp: time.UnixMilli(1_700_000_000_000)},
	}
	if err := r.cl.ProduceSync(t.Context(), sent...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	i := r.start("", spec)
	got := r.read(out.Name, len(sent))
	i.stopped()
	for n, rec := range got {
		want := sent[n]
		if string(rec.Key) != string(want.Key) || (rec.Key == nil) != (want.Key == nil) {
			t.Errorf("record %d has key %q, want %q", n, rec.Key, want.Key)
		}
		if !rec.Timestamp.Equal(want.Timestamp) {
			t.Errorf("record %d has time %v, want %v", n, rec.Timestamp, want.Timestamp)
		}
		value := string(want.Value)
		if want.Value != nil && value == "" {
			value = "{}"
		}
		if string(rec.Value) != value || (rec.Value == nil) != (want.Value == nil) {
			t.Errorf("record %d has value %q, want %q", n, rec.Value, value)
		}
		if fmt.Sprint(rec.Headers) != fmt.Sprint(want.Headers) {
			t.Errorf("record %d has headers %v, want %v", n, rec.Headers, want.Headers)
		}
		for h := range rec.Headers {
			if (rec.Headers[h].Value == nil) != (want.Headers[h].Value == nil) {
				t.Errorf("record %d, header %d: a null is no empty text", n, h)
			}
		}
	}
	for n, rec := range s.records {
		if (rec.Key == nil) != (sent[n].Key == nil) || (rec.Value == nil) != (sent[n].Value == nil) || rec.Timestamp != sent[n].Timestamp.UnixMilli() {
			t.Errorf("the body was given record %d as %q %q at %d", n, rec.Key, rec.Value, rec.Timestamp)
		}
	}
}

// W4: a JSON value in invalid UTF-8 is invalid, in a member's name as in a text.
func TestW4InvalidUTF8IsInvalid(t *testing.T) {
	r := newRig(t)
	in := r.topic("in", 1)
	out := &stream.Topic{Name: r.topic("out", 1)}
	spec := r.simple(in, out)
	spec.onInvalid = pipeline.Skip
	for _, value := range []string{"{\"a\":\"\xff\"}", "{\"\xc3\":1}", "{\"a\":\"\xed\xa0\x80\"}", "1"} {
		r.put(in, 0, "k", []byte(value))
	}
	i := r.start("", spec)
	if got := values(r.read(out.Name, 1)); !slices.Equal(got, []string{"1:1"}) {
		t.Errorf("outputs %q", got)
	}
	i.stopped()
	if n := i.log.count("0 invalid"); n != 3 {
		t.Errorf("%d invalid records, want 3; effects:\n%s", n, i.log)
	}
}

// A record without a key has no state: it follows on_error.
func TestE10RecordWithoutAStateKey(t *testing.T) {
	r := newRig(t)
	in := r.topic("in", 1)
	out := &stream.Topic{Name: r.topic("out", 1)}
	if err := r.cl.ProduceSync(t.Context(), &kgo.Record{Topic: in, Value: []byte("1")}, &kgo.Record{Topic: in, Key: []byte("\x00takeover"), Value: []byte("2")},
		&kgo.Record{Topic: in, Key: []byte("k"), Value: []byte("3")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	spec := r.simple(in, out)
	a := r.start("", spec)
	if err := a.wait(); err == nil || !strings.Contains(err.Error(), "state key") {
		t.Fatalf("error %v, want that of a record without a state key", err)
	}
	spec.onError = pipeline.Skip
	b := r.start("", spec)
	if got := values(r.read(out.Name, 1)); !slices.Equal(got, []string{"1:3"}) {
		t.Errorf("outputs %q", got)
	}
	b.stopped()
}

// A batch is bounded in records and in bytes, and no record is too large for one.
func TestE8BatchesAreBounded(t *testing.T) {
	for name, change := range map[string]func(*engine.Options){
		"records": func(o *engine.Options) { o.BatchRecords = 3 },
		"bytes":   func(o *engine.Options) { o.BatchBytes = 10 },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			in := r.topic("in", 1)
			out := &stream.Topic{Name: r.topic("out", 1)}
			l := r.load(in, 1, 2, 30)
			l.wait()
			i := r.startWith("", change, r.simple(in, out))
			r.checkCounters(out.Name, 30)
			i.stopped()
			for _, line := range i.log.all() {
				var n int
				if _, err := fmt.Sscanf(line, "0 commit %d", &n); err == nil && n > 3 {
					t.Errorf("a transaction of %d records", n)
				}
			}
			r.checkOffsets(in, 1, 30)
		})
	}
}

// Two stages of one process work side by side, the second on what the first commits.
func TestTwoStagesInARow(t *testing.T) {
	r := newRig(t)
	in := r.topic("in", 2)
	middle := &stream.Topic{Name: r.topic("middle", 2), Key: stream.String}
	out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String}
	first := r.simple(in, middle)
	first.handle, first.stateless, first.app = echo(middle), true, r.id+"-first"
	second := r.simple(middle.Name, out)
	second.app = r.id + "-second"
	l := r.load(in, 2, 4, 100)
	i := r.start("", first, second)
	l.wait()
	r.checkCounters(out.Name, 100)
	i.stopped()
}
