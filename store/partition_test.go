package store

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/google/go-cmp/cmp"
)

func TestGetAppendAndHas(t *testing.T) {
	p := open(t, Config{InMemory: true}).Partition("alerts", 7)
	big := []byte(strings.Repeat("0123456789abcdef", 256<<10)) // 4 MiB
	want := map[string]string{
		"": "empty key", "k": "1", "empty": "", "größe": "ü", "a/b": "x", "\x00timer/5/k": "t", "\xff\xff": "last", "big": string(big),
	}
	changes := map[string][]byte{}
	for key, value := range want {
		changes[key] = []byte(value)
	}
	apply(t, p, 5, changes)
	for key, value := range want {
		got, err := p.Get(key)
		if err != nil || got == nil || string(got) != value {
			t.Errorf("get %q: %.20q, %v", key, got, err)
		}
		got, found, err := p.Append([]byte("before "), key)
		if err != nil || !found || string(got) != "before "+value {
			t.Errorf("append %q: %.20q, %v, %v", key, got, found, err)
		}
	}
	if got, err := p.Get("kk"); err != nil || got != nil {
		t.Errorf("get of what is not there: %q, %v", got, err)
	}
	if got, found, err := p.Append([]byte("before"), "kk"); err != nil || found || string(got) != "before" {
		t.Errorf("append of what is not there: %q, %v, %v", got, found, err)
	}
	if diff := cmp.Diff(want, all(t, p)); diff != "" {
		t.Errorf("all (-want +got):\n%.500s", diff)
	}
}

func TestGetAnswersACopy(t *testing.T) {
	p := open(t, Config{InMemory: true}).Partition("alerts", 0)
	value := []byte("value")
	apply(t, p, 1, map[string][]byte{"k": value})
	copy(value, "VALUE")
	got, err := p.Get("k")
	if err != nil || string(got) != "value" {
		t.Fatalf("the store kept the caller's slice: %q, %v", got, err)
	}
	copy(got, "XXXXX")
	if again, err := p.Get("k"); err != nil || string(again) != "value" {
		t.Fatalf("the caller has the store's slice: %q, %v", again, err)
	}
}

func TestApplyChangesAndDeletes(t *testing.T) {
	p := open(t, Config{InMemory: true}).Partition("alerts", 0)
	apply(t, p, 1, map[string][]byte{"a": []byte("1"), "b": []byte("2"), "c": []byte("3")})
	apply(t, p, 2, map[string][]byte{"a": []byte("10"), "b": nil, "not there": nil})
	if got, want := all(t, p), (map[string]string{"a": "10", "c": "3"}); !maps.Equal(got, want) {
		t.Errorf("state %v", got)
	}
	if n := next(t, p); n != 2 {
		t.Errorf("checkpoint %d", n)
	}
	// A restore hands over the changelog as it is, keys and deletes repeated.
	err := p.Apply(func(yield func(string, []byte) bool) {
		_ = yield("a", nil) && yield("a", []byte("11")) && yield("c", []byte("4")) && yield("c", nil)
	}, at(3))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := all(t, p), (map[string]string{"a": "11"}); !maps.Equal(got, want) {
		t.Errorf("the last change of a key does not count: %v", got)
	}
}

func TestE2StateAndCheckpointAreOneBatch(t *testing.T) {
	db := open(t, Config{InMemory: true})
	p := db.Partition("alerts", 0)
	batches := func() int64 {
		var n int64
		it, err := db.pebble.NewIter(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = it.Close() }()
		for ok := it.First(); ok; ok = it.Next() {
			n++
		}
		return n
	}
	apply(t, p, 4, map[string][]byte{"a": []byte("1")})
	if n := batches(); n != 2 {
		t.Fatalf("%d entries for one state and one checkpoint", n)
	}
	apply(t, p, 5, nil)
	if n := next(t, p); n != 5 {
		t.Errorf("a batch without state changes left the checkpoint at %d", n)
	}
	// An iteration that panics half-way must leave nothing.
	func() {
		defer func() { _ = recover() }()
		_ = p.Apply(func(yield func(string, []byte) bool) {
			yield("a", []byte("2"))
			panic("half-way")
		}, at(6))
	}()
	if got := all(t, p)["a"]; got != "1" || next(t, p) != 5 {
		t.Errorf("half a batch was applied: a=%s, checkpoint %d", got, next(t, p))
	}
}

func TestPartitionsDoNotMeet(t *testing.T) {
	db := open(t, Config{InMemory: true})
	type id struct {
		stage     string
		partition int32
	}
	ids := []id{
		{"a", 0}, {"a", 1}, {"a", -1}, {"a", 256}, {"a", 1<<31 - 1}, {"aa", 0}, {"b", 0}, {"", 0}, {"a\x00\x00", 0},
		{strings.Repeat("a", 127), 0}, {strings.Repeat("a", 128), 0}, {strings.Repeat("a", 300), 1},
	}
	for i, id := range ids {
		apply(t, db.Partition(id.stage, id.partition), int64(i), map[string][]byte{
			"": fmt.Append(nil, i), "k": fmt.Append(nil, i), "\xff": fmt.Append(nil, i),
		})
	}
	cleared := slices.Index(ids, id{"a", 1})
	if err := db.Partition("a", 1).Clear(); err != nil {
		t.Fatal(err)
	}
	for i, id := range ids {
		p := db.Partition(id.stage, id.partition)
		want, checkpoint := map[string]string{"": fmt.Sprint(i), "k": fmt.Sprint(i), "\xff": fmt.Sprint(i)}, int64(i)
		if i == cleared {
			want, checkpoint = map[string]string{}, -1
		}
		if got := all(t, p); !maps.Equal(got, want) || next(t, p) != checkpoint {
			t.Errorf("%.10q/%d holds %q at %d, want %q", id.stage, id.partition, got, next(t, p), want)
		}
	}
}

func TestClearThenApply(t *testing.T) {
	dir := t.TempDir()
	db := open(t, Config{Dir: dir})
	p := db.Partition("alerts", 0)
	apply(t, p, 9, map[string][]byte{"old": []byte("1"), "k": []byte("1")})
	if err := p.Clear(); err != nil {
		t.Fatal(err)
	}
	apply(t, p, 2, map[string][]byte{"k": []byte("2")})
	closeDB(t, db)
	p = open(t, Config{Dir: dir}).Partition("alerts", 0)
	if got := all(t, p); !maps.Equal(got, map[string]string{"k": "2"}) || next(t, p) != 2 {
		t.Errorf("%v at %d", got, next(t, p))
	}
}

func TestAllIsOrderedAndSeesOneMoment(t *testing.T) {
	p := open(t, Config{InMemory: true}).Partition("alerts", 0)
	changes := map[string][]byte{}
	for i := range 1000 {
		changes[fmt.Sprintf("k%03d", i)] = fmt.Append(nil, i)
	}
	apply(t, p, 1, changes)
	var keys []string
	states, failure := p.All()
	for key := range states {
		if len(keys) == 0 {
			apply(t, p, 2, map[string][]byte{"k500": nil, "k999x": []byte("new")})
		}
		keys = append(keys, key)
	}
	if err := failure(); err != nil || len(keys) != 1000 || !slices.IsSorted(keys) {
		t.Fatalf("%d keys, sorted %v: %v", len(keys), slices.IsSorted(keys), err)
	}
	n := 0
	for range states {
		if n++; n == 3 {
			break
		}
	}
	if err := failure(); err != nil || n != 3 {
		t.Errorf("a loop that ends early: %d turns, %v", n, err)
	}
	if got := all(t, p); len(got) != 1000 || got["k999x"] != "new" {
		t.Errorf("the next loop does not see the change")
	}
}

func TestCheckpointRoundTrip(t *testing.T) {
	p := open(t, Config{InMemory: true}).Partition("alerts", 0)
	if c, exists, err := p.Checkpoint(); exists || err != nil {
		t.Fatalf("a new partition has %+v, %v", c, err)
	}
	for _, want := range []Checkpoint{
		{},
		at(1 << 40),
		{Next: -1, LeaderEpoch: -1, Written: time.UnixMilli(0), Inputs: []InputOffset{{Topic: strings.Repeat("t", 249), Partition: 1<<31 - 1, Offset: 1<<63 - 1}}},
	} {
		if err := p.Apply(maps.All(map[string][]byte{}), want); err != nil {
			t.Fatal(err)
		}
		got, exists, err := p.Checkpoint()
		if err != nil || !exists {
			t.Fatalf("%+v: %v, %v", want, exists, err)
		}
		if diff := cmp.Diff(want, got, cmp.Comparer(time.Time.Equal)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func TestUnreadableCheckpoint(t *testing.T) {
	db := open(t, Config{InMemory: true})
	p := db.Partition("alerts", 0)
	c := at(7)
	good := c.append(nil)
	cases := [][]byte{{}, {checkpointVersion}, append([]byte{checkpointVersion + 1}, good[1:]...), append(good[:len(good):len(good)], 0)}
	for i := range good {
		cases = append(cases, good[:i])
	}
	endless := bytes.Clone(good[:17])
	for range 4 {
		endless = append(endless, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01)
	}
	for _, data := range append(cases, endless) {
		if err := db.pebble.Set(p.checkpoint, data, pebble.NoSync); err != nil {
			t.Fatal(err)
		}
		if got, exists, err := p.Checkpoint(); exists || !errors.Is(err, ErrCheckpoint) || !strings.Contains(err.Error(), "alerts/0") {
			t.Errorf("%x is %+v, %v, %v", data, got, exists, err)
		}
	}
	if err := p.Clear(); err != nil {
		t.Fatal(err)
	}
	if _, exists, err := p.Checkpoint(); exists || err != nil {
		t.Errorf("after Clear: %v, %v", exists, err)
	}
}

// benchPartition holds the state of 100,000 keys, the older half of it in tables.
func benchPartition(b *testing.B) (*Partition, []string) {
	b.Helper()
	db := open(b, Config{Dir: b.TempDir()})
	p := db.Partition("alerts", 0)
	keys := make([]string, 100_000)
	changes := map[string][]byte{}
	for i := range keys {
		keys[i] = fmt.Sprintf("sensor-%06d", i*7919%len(keys))
		changes[keys[i]] = []byte(`{"count":12345,"sum":1069311.25}`)
		if len(changes) == 1000 {
			apply(b, p, int64(i), changes)
			clear(changes)
		}
		if i == len(keys)/2 {
			if err := db.pebble.Flush(); err != nil {
				b.Fatal(err)
			}
		}
	}
	return p, keys
}

func BenchmarkGet(b *testing.B) {
	p, keys := benchPartition(b)
	for name, suffix := range map[string]string{"present": "", "absent": "?"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var buffer []byte
			var err error
			i := 0
			for b.Loop() {
				key := keys[i%1000]
				if suffix != "" {
					key = "sensor-none"
				}
				if buffer, _, err = p.Append(buffer[:0], key); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
	}
}

func BenchmarkApply(b *testing.B) {
	p, keys := benchPartition(b)
	value := []byte(`{"count":12345,"sum":1069311.25}`)
	for _, size := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			b.ReportAllocs()
			n := int64(0)
			for b.Loop() {
				n++
				err := p.Apply(func(yield func(string, []byte) bool) {
					for _, key := range keys[:size] {
						if !yield(key, value) {
							return
						}
					}
				}, at(n))
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(size), "ns/change")
		})
	}
}
