package engine_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flechtwerk/flechtwerk/engine/enginetest"
	"github.com/flechtwerk/flechtwerk/engine/stream"
	"github.com/flechtwerk/flechtwerk/store"
)

// restored is what the last restore of a task told: how many records from which offset on.
func (i *instance) restored(task int32) (records, from int64) {
	i.r.t.Helper()
	for _, line := range i.log.ofTask(task) {
		_, _ = fmt.Sscanf(line, "restored %d from %d", &records, &from)
	}
	return records, from
}

// counted runs a counting stage once over n more records of keys k0 to k4 and answers the instance, stopped.
func (r *rig) counted(dir, in string, out *stream.Topic, n, total int) *instance {
	r.t.Helper()
	l := r.load(in, 1, 5, n)
	l.wait()
	i := r.start(dir, r.simple(in, out))
	if got := r.read(out.Name, total); len(got) != total {
		r.t.Errorf("%d outputs, want %d", len(got), total)
	}
	i.stopped()
	return i
}

// S1, S2: a restart with its state folder reads the changelog's tail; one without it reads the whole; both go on alike.
func TestS2TailOrWholeAndS1Fold(t *testing.T) {
	r := newRig(t)
	in := r.topic("in", 1)
	out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String}
	dir := t.TempDir()
	for n := range 3 {
		r.counted(dir, in, out, 50, 50*(n+1))
		r.checkFold(dir, 1)
	}
	i := r.counted(dir, in, out, 10, 160)
	if records, from := i.restored(0); records != 1 || from < 15 {
		t.Errorf("with its folder it restored %d records from offset %d, want the takeover record alone", records, from)
	}
	r.checkFold(dir, 1)
	other := t.TempDir()
	i = r.counted(other, in, out, 10, 170)
	if records, from := i.restored(0); records < 15 || from != 0 {
		t.Errorf("without a folder it restored %d records from offset %d, want all", records, from)
	}
	r.checkFold(other, 1)
	// The first folder has missed what the other one did.
	i = r.counted(dir, in, out, 10, 180)
	if records, from := i.restored(0); records < 5 || from == 0 {
		t.Errorf("with an old folder it restored %d records from offset %d, want the tail", records, from)
	}
	r.checkFold(dir, 1)
	r.checkCounterValues(out.Name, 180)
	if n := i.log.count("warning"); n != 0 {
		t.Errorf("there are warnings; effects:\n%s", i.log)
	}
}

// checkCounterValues checks that the counters of each key are 1, 2, 3, … whatever the records hold.
func (r *rig) checkCounterValues(topic string, n int) {
	r.t.Helper()
	last := map[string]int{}
	records := r.read(topic, n)
	for _, rec := range records {
		var number int
		if _, err := fmt.Sscanf(string(rec.Value), "%d:", &number); err != nil || number != last[string(rec.Key)]+1 {
			r.t.Fatalf("key %s at offset %d: %s comes after %d", rec.Key, rec.Offset, rec.Value, last[string(rec.Key)])
		}
		last[string(rec.Key)]++
	}
}

// S3: deletes of a changelog, ours and those of others: null, empty, and every way to write an empty object.
func TestS3DeletesInTheChangelog(t *testing.T) {
	r := newRig(t)
	in := r.topic("in", 1)
	out := &stream.Topic{Name: r.topic("out", 1)}
	changelog := r.topic("changelog", 1, "cleanup.policy=compact")
	r.setCommitted(in, 0, 0)
	deletes := map[string][]byte{"null": nil, "empty": {}, "object": []byte("{}"), "spaced": []byte(" { \n} "), "json null": []byte("null")}
	keys := slices.Sorted(maps.Keys(deletes))
	for _, key := range keys {
		r.put(changelog, 0, key, []byte(`{"n":5}`))
	}
	for _, key := range keys {
		if err := r.cl.ProduceSync(t.Context(), &kgo.Record{Topic: changelog, Key: []byte(key), Value: deletes[key]}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	r.put(changelog, 0, "kept", []byte(`{"n":5}`))
	for _, key := range append(keys, "kept") {
		r.put(in, 0, key, []byte("0"))
	}
	dir := t.TempDir()
	i := r.start(dir, r.simple(in, out))
	for _, rec := range r.read(out.Name, len(keys)+1) {
		want := "1:0"
		if string(rec.Key) == "kept" {
			want = "6:0"
		}
		if string(rec.Value) != want {
			t.Errorf("after a delete by %q the output is %s, want %s", rec.Key, rec.Value, want)
		}
	}
	i.stopped()
}

// A changelog value that is no JSON is a state that the body cannot read, not the end of the restore.
func TestS3ForeignValues(t *testing.T) {
	r := newRig(t)
	in := r.topic("in", 1)
	out := &stream.Topic{Name: r.topic("out", 1)}
	changelog := r.topic("changelog", 1, "cleanup.policy=compact")
	r.setCommitted(in, 0, 0)
	for n, value := range []string{"}{", "\xff", `{"a"`, strings.Repeat("[", 60), "nul"} {
		r.put(changelog, 0, fmt.Sprintf("odd%d", n), []byte(value))
	}
	r.put(in, 0, "k", []byte("0"))
	i := r.start("", r.simple(in, out))
	if got := values(r.read(out.Name, 1)); !slices.Equal(got, []string{"1:0"}) {
		t.Errorf("outputs %q", got)
	}
	i.stopped()
}

// S4: a changelog key that is no state key stops the task and names partition and offset.
func TestS4KeyThatCannotBeDecoded(t *testing.T) {
	for name, key := range map[string][]byte{"not UTF-8": []byte("\xff\xfe"), "no key": nil} {
		t.Run(name, func(t *testing.T) {
			if realTier() && key == nil {
				t.Skip("a real broker takes no record without a key on a compacted topic")
			}
			r := newRig(t)
			in := r.topic("in", 3)
			out := &stream.Topic{Name: r.topic("out", 1)}
			changelog := r.topic("changelog", 3, "cleanup.policy=compact")
			for p := range int32(3) {
				r.setCommitted(in, p, 0)
			}
			r.put(changelog, 2, "k", []byte(`{"n":5}`))
			if err := r.cl.ProduceSync(t.Context(), &kgo.Record{Topic: changelog, Partition: 2, Key: key, Value: []byte("PAYLOAD-MARKER")}).FirstErr(); err != nil {
				t.Fatal(err)
			}
			err := r.start("", r.simple(in, out)).wait()
			if err == nil || !strings.Contains(err.Error(), changelog+"/2 at offset 1") || strings.Contains(err.Error(), "MARKER") {
				t.Errorf("error %v, want that of %s/2 at offset 1, without the payload", err, changelog)
			}
		})
	}
}

// checkWhole checks that a start with the folder dir restores everything, with a warning of the given code, and goes on.
func (r *rig) checkWhole(dir, in string, out *stream.Topic, total int, code string) {
	r.t.Helper()
	i := r.counted(dir, in, out, 10, total+10)
	if _, from := i.restored(0); from != r.start0() {
		r.t.Errorf("it restored from offset %d, want the start of the log", from)
	}
	if i.log.count("warning "+code) != 1 {
		r.t.Errorf("no warning %s; effects:\n%s", code, i.log)
	}
	r.checkFold(dir, 1)
}

// start0 is where the changelog's partition 0 begins.
func (r *rig) start0() int64 {
	r.t.Helper()
	starts, err := kadm.NewClient(r.cl).ListStartOffsets(r.t.Context(), r.id+"-changelog")
	if err != nil {
		r.t.Fatal(err)
	}
	start, _ := starts.Lookup(r.id+"-changelog", 0)
	return start.Offset
}

// changeCheckpoint rewrites the checkpoint of a stopped instance.
func (r *rig) changeCheckpoint(dir string, change func(*store.Checkpoint)) {
	r.t.Helper()
	db, err := store.Open(store.Config{Dir: dir, Memory: 8 << 20})
	if err != nil {
		r.t.Fatal(err)
	}
	defer db.Close()
	p := db.Partition(r.id, 0)
	cp, ok, err := p.Checkpoint()
	if err != nil || !ok {
		r.t.Fatalf("no checkpoint: %v", err)
	}
	change(&cp)
	// What the changelog does not know must not survive a whole restore.
	stale := func(yield func(string, []byte) bool) { yield("stale", []byte(`{"n":99}`)) }
	if err := p.Apply(stale, cp); err != nil {
		r.t.Fatal(err)
	}
}

// E9: a checkpoint that cannot be trusted: of another topic, outside the log, or too old. The local state is filled anew.
func TestE9CheckpointThatCannotBeTrusted(t *testing.T) {
	for code, change := range map[string]func(*store.Checkpoint){
		"state.topic_id": func(c *store.Checkpoint) { c.Topic[3]++ },
		"state.offset":   func(c *store.Checkpoint) { c.Next += 1000 },
		"state.age":      func(c *store.Checkpoint) { c.Written = c.Written.Add(-24*time.Hour + 5*time.Minute) },
	} {
		t.Run(code, func(t *testing.T) {
			r := newRig(t)
			in := r.topic("in", 1)
			out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String}
			dir := t.TempDir()
			r.counted(dir, in, out, 20, 20)
			r.changeCheckpoint(dir, change)
			r.checkWhole(dir, in, out, 20, code)
			r.checkCounterValues(out.Name, 30)
		})
	}
}

// E9: a log that begins after the checkpoint.
func TestE9LogBeginsAfterTheCheckpoint(t *testing.T) {
	needFake(t)
	r := newRig(t)
	in := r.topic("in", 1)
	out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String}
	dir := t.TempDir()
	r.counted(dir, in, out, 20, 20)
	r.counted(t.TempDir(), in, out, 20, 40)
	if err := r.fake.Cluster.DeleteRecords(r.id+"-changelog", 0, r.start0()+8); err != nil {
		t.Fatal(err)
	}
	r.checkWhole(dir, in, out, 40, "state.offset")
}

// E9: a checkpoint a little younger than that is trusted, as is one of yesterday's crash.
func TestE9LocalStateSurvivesACrash(t *testing.T) {
	r := newRig(t)
	in := r.topic("in", 1)
	out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String}
	dir := t.TempDir()
	l := r.load(in, 1, 5, 0)
	a := r.start(dir, r.simple(in, out))
	a.log.await(t, "0 commit", 5)
	a.wire.cut() // what is in flight is never answered
	a.stopped()
	b := r.start(dir, r.simple(in, out))
	n := l.end()
	r.checkCounters(out.Name, n)
	b.stopped()
	if _, from := b.restored(0); from == 0 {
		t.Errorf("the local state was wiped; effects:\n%s", b.log)
	}
	if n := b.log.count("warning"); n != 0 {
		t.Errorf("there are warnings; effects:\n%s", b.log)
	}
	r.checkFold(dir, 1)
}

// E9: a changelog that was deleted and made again has another id: the old local state is not mixed with it.
func TestE9ChangelogMadeAgain(t *testing.T) {
	r := newRig(t)
	in := r.topic("in", 1)
	out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String}
	dir := t.TempDir()
	r.counted(dir, in, out, 20, 20)
	if _, err := kadm.NewClient(r.cl).DeleteTopics(t.Context(), r.id+"-changelog"); err != nil {
		t.Fatal(err)
	}
	for {
		found, err := kadm.NewClient(r.cl).ListTopics(t.Context(), r.id+"-changelog")
		if err != nil {
			t.Fatal(err)
		}
		if !found.Has(r.id+"-changelog") || found[r.id+"-changelog"].Err != nil {
			break
		}
	}
	i := r.counted(dir, in, out, 5, 25)
	if i.log.count("warning state.topic_id") != 1 {
		t.Errorf("no warning; effects:\n%s", i.log)
	}
	for n, rec := range enginetest.ReadCommitted(t, r.opts(), out.Name) {
		if n >= 20 && !strings.HasPrefix(string(rec.Value), "1:") {
			t.Errorf("output %s is made of a state that the changelog does not hold", rec.Value)
		}
	}
	r.checkFold(dir, 1)
}
