package enginetest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

var testChain = Chain{Keys: 3, Records: 40, Seed: 7}

// outcome is what a correct run of the chain leaves.
func outcome(c Chain) ([]*kgo.Record, map[string]string) {
	var records []*kgo.Record
	states := map[string]string{}
	done := map[string]int{}
	for at, in := range c.Inputs("in") {
		key := string(in.Key)
		done[key]++
		var k int
		fmt.Sscanf(key, "key-%d", &k)
		i, h := done[key], c.hashes(k)[done[key]]
		records = append(records, &kgo.Record{Topic: "out", Partition: int32(k % 2), Offset: int64(at), Key: in.Key,
			Value: fmt.Appendf(nil, `{"i":%d,"n":%d,"h":%d}`, i, i, h)})
		states[key] = fmt.Sprintf(`{"n":%d,"h":%d}`, i, h)
	}
	return records, states
}

// The hash is the one that `Math.imul(h ^ x, 16777619) >>> 0` gives; the numbers are from a JavaScript engine.
func TestChainHashIsJavaScripts(t *testing.T) {
	h := uint32(chainBasis)
	var got []uint32
	for _, x := range []uint32{1, 2147483647, 12345, 1 << 30, 0} {
		h = (h ^ x) * chainPrime
		got = append(got, h)
	}
	if want := []uint32{67918732, 2475417865, 1964658320, 678014128, 1314576656}; !slices.Equal(got, want) {
		t.Errorf("got %d, want %d", got, want)
	}
}

func TestChainInputs(t *testing.T) {
	c := testChain
	first, again := c.Inputs("in"), c.Inputs("in")
	if len(first) != 120 {
		t.Fatalf("%d inputs", len(first))
	}
	if !slices.EqualFunc(first, again, func(a, b *kgo.Record) bool {
		return string(a.Value) == string(b.Value) && a.Timestamp.Equal(b.Timestamp)
	}) {
		t.Error("equal chains have unequal inputs")
	}
	for k := range c.Keys {
		i := 0
		for _, r := range first {
			if string(r.Key) != c.Key(k) {
				continue
			}
			if i++; !strings.HasPrefix(string(r.Value), fmt.Sprintf(`{"i":%d,"x":%d,`, i, c.x(k, i))) {
				t.Fatalf("input %d of key %d is %s", i, k, r.Value)
			}
		}
	}
	if string(first[0].Key) == string(first[1].Key) && string(first[1].Key) == string(first[2].Key) && string(first[2].Key) == string(first[3].Key) {
		t.Error("the keys are not mixed")
	}
	if want := "      yield Message({ value: { i: msg.value.i, n, h } });\n"; !strings.HasSuffix(c.Pipeline("p", "in", "out", 4), want) {
		t.Errorf("the pipeline ends otherwise:\n%s", c.Pipeline("p", "in", "out", 4))
	}
}

func TestChainAcceptsWhatIsRight(t *testing.T) {
	records, states := outcome(testChain)
	for _, progress := range []Progress{Complete, Unfinished} {
		if err := testChain.CheckOutput(records, progress); err != nil {
			t.Error(err)
		}
		if err := testChain.CheckState(states, progress); err != nil {
			t.Error(err)
		}
	}
	if err := testChain.CheckAgreement(records, states); err != nil {
		t.Error(err)
	}
	if err := testChain.CheckOutput(records[:50], Unfinished); err != nil {
		t.Error(err)
	}
	if err := testChain.CheckOutput(nil, Unfinished); err != nil {
		t.Error(err)
	}
}

func TestChainDetects(t *testing.T) {
	c := testChain
	// indexes in the output of the elements of key-1
	all, right := outcome(c)
	var at []int
	for i, r := range all {
		if string(r.Key) == "key-1" {
			at = append(at, i)
		}
	}
	value := func(i, n int, h uint32) []byte { return fmt.Appendf(nil, `{"i":%d,"n":%d,"h":%d}`, i, n, h) }
	replace := func(records []*kgo.Record, i int, change func(*kgo.Record)) []*kgo.Record {
		r := *records[i]
		change(&r)
		records[i] = &r
		return records
	}
	for name, test := range map[string]struct {
		change func([]*kgo.Record) []*kgo.Record
		want   string
		always bool // also to be seen when the run is unfinished
	}{
		"lost":          {func(r []*kgo.Record) []*kgo.Record { return slices.Delete(r, at[9], at[9]+1) }, "key key-1: element 10 is lost", true},
		"lost at end":   {func(r []*kgo.Record) []*kgo.Record { return slices.Delete(r, at[39], at[39]+1) }, "key key-1: element 40 is lost; 39 records of it were read", false},
		"lost key":      {func([]*kgo.Record) []*kgo.Record { return nil }, "key key-2: elements 1 to 40 are lost; 0 records", false},
		"doubled":       {func(r []*kgo.Record) []*kgo.Record { return slices.Insert(r, at[9]+1, r[at[9]]) }, "element 10 is doubled, for the 2. time", true},
		"doubled later": {func(r []*kgo.Record) []*kgo.Record { return append(r, r[at[0]]) }, "element 1 is doubled", true},
		"reordered":     {func(r []*kgo.Record) []*kgo.Record { r[at[4]], r[at[5]] = r[at[5]], r[at[4]]; return r }, "element 5 is out of order, it comes after element 6", true},
		"stale": {func(r []*kgo.Record) []*kgo.Record {
			return replace(r, at[9], func(r *kgo.Record) { r.Value = value(10, 8, (c.hashes(1)[7]^c.x(1, 10))*chainPrime) })
		}, "element 10 is stale: it was computed on the state after element 7 (n 7), want the state after element 9", true},
		"foreign state": {func(r []*kgo.Record) []*kgo.Record {
			return replace(r, at[9], func(r *kgo.Record) { r.Value = value(10, 10, 1) })
		}, "on a state that is not of this chain", true},
		"twice counted": {func(r []*kgo.Record) []*kgo.Record {
			return replace(r, at[9], func(r *kgo.Record) { r.Value = value(10, 11, c.hashes(1)[10]) })
		}, "element 10 is stale", true},
		"two partitions": {func(r []*kgo.Record) []*kgo.Record { return replace(r, at[9], func(r *kgo.Record) { r.Partition = 5 }) }, "other outputs of the key are in partition 1", true},
		"foreign key":    {func(r []*kgo.Record) []*kgo.Record { return append(r, &kgo.Record{Key: []byte("x")}) }, `key "x" does not belong`, true},
		"foreign value": {func(r []*kgo.Record) []*kgo.Record {
			return replace(r, at[9], func(r *kgo.Record) { r.Value = []byte("?") })
		}, `"?" is no output`, true},
	} {
		t.Run(name, func(t *testing.T) {
			progress := []Progress{Complete}
			if test.always {
				progress = append(progress, Unfinished)
			}
			for _, p := range progress {
				err := c.CheckOutput(test.change(slices.Clone(all)), p)
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("got %v\nwant %q", err, test.want)
				}
			}
		})
	}
	for name, test := range map[string]struct {
		change func(map[string]string)
		want   string
	}{
		"lost state":    {func(m map[string]string) { delete(m, "key-1") }, "key key-1 has no state"},
		"stale state":   {func(m map[string]string) { m["key-1"] = fmt.Sprintf(`{"n":39,"h":%d}`, c.hashes(1)[39]) }, "key key-1: the state is the one after element 39, want 40"},
		"wrong count":   {func(m map[string]string) { m["key-1"] = fmt.Sprintf(`{"n":39,"h":%d}`, c.hashes(1)[40]) }, "the hash after element 40, but n 39"},
		"foreign hash":  {func(m map[string]string) { m["key-1"] = `{"n":40,"h":1}` }, "key key-1: the state (n 40) is not of this chain"},
		"foreign key":   {func(m map[string]string) { m["x"] = `{}` }, `key "x" does not belong`},
		"foreign value": {func(m map[string]string) { m["key-1"] = `?` }, `"?" is no state`},
	} {
		t.Run(name, func(t *testing.T) {
			states := maps.Clone(right)
			test.change(states)
			if err := c.CheckState(states, Complete); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v\nwant %q", err, test.want)
			}
			if name != "foreign key" {
				if err := c.CheckAgreement(all, states); err == nil || !strings.Contains(err.Error(), "key-1") {
					t.Errorf("outputs and states: got %v", err)
				}
			}
		})
	}
}

func TestProblemsAreNotEndless(t *testing.T) {
	var p problems
	for i := range 25 {
		p.add("problem %d", i)
	}
	if text := p.err("output").Error(); !strings.HasSuffix(text, "problem 19\n  and 5 more") {
		t.Error(text)
	}
}
