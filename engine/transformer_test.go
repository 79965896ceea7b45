package engine_test

import (
	"fmt"
	"testing"

	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// T2, T6, S2: outputs, last state and offsets go together, and a restart goes on where the commit left off.
func TestT2OneTransactionPerBatchAndS2Restart(t *testing.T) {
	r := newRig(t)
	in := r.topic("in", 2)
	out := &stream.Topic{Name: r.topic("out", 2), Value: stream.String, Key: stream.String}
	spec := stageSpec{app: r.id, inputs: []string{in}, output: out, handle: count(out), formats: stream.Topic{Key: stream.String}}
	for i := range 10 {
		r.put(in, int32(i%2), fmt.Sprintf("k%d", i%2), fmt.Appendf(nil, "%d", i))
	}
	dir := t.TempDir()
	a := r.start(dir, spec)
	got := r.read(out.Name, 10)
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	for i := 10; i < 20; i++ {
		r.put(in, int32(i%2), fmt.Sprintf("k%d", i%2), fmt.Appendf(nil, "%d", i))
	}
	b := r.start(dir, spec)
	got = r.read(out.Name, 20)
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, rec := range got {
		seen[string(rec.Key)]++
		var n, v int
		if _, err := fmt.Sscanf(string(rec.Value), "%d:%d", &n, &v); err != nil || n != seen[string(rec.Key)] {
			t.Errorf("key %s: %s, want number %d", rec.Key, rec.Value, seen[string(rec.Key)])
		}
	}
	for p := range int32(2) {
		if at := r.committed(r.id, in, p); at != 10 {
			t.Errorf("committed offset of partition %d is %d, want 10", p, at)
		}
	}
	t.Log(b.log)
}
