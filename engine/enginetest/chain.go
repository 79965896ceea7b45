package enginetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Chain is a workload whose results show every way in which a stream processor can go wrong: for each key a chain of
// records, and as state the hash over all of them so far.
//
//  1. Input i of a key (from 1) carries i and a number x. The body computes h = H(h, x) on the state's h and yields
//     State({n: n+1, h}) and a Message({i, n, h}).
//  2. So output i of a key is right only if every record before it was handled once, in order, on the latest state: the
//     chain of hashes is known beforehand.
//  3. H is FNV's step on 32 bits, h = (h ^ x) * 16777619, which JavaScript and Go compute alike.
type Chain struct {
	Keys    int
	Records int // per key
	Seed    uint64
	Pad     int // bytes of filling in each input

	// Body computes the chains in another way than the usual one, and Stage has further lines of the transformer, if not "".
	Body, Stage string
}

// The basis of the chain, and what a key's state is before its first record.
const (
	chainBasis = 2166136261
	chainPrime = 16777619
)

// chainBody is the transformer's body.
const chainBody = `const h = Math.imul(state.h ^ msg.value.x, 16777619) >>> 0;
const n = state.n + 1;
yield State({ n, h });
yield Message({ value: { i: msg.value.i, n, h } });
`

// Step is H, for who computes it outside of the body.
func Step(h, x uint32) uint32 { return (h ^ x) * chainPrime }

// Pipeline is a pipeline of one transformer, "chain", that computes the chains from topic in to topic out.
func (c Chain) Pipeline(name, in, out string, partitions int) string {
	body, stage := c.Body, ""
	if body == "" {
		body = chainBody
	}
	if c.Stage != "" {
		stage = "\n    " + strings.ReplaceAll(c.Stage, "\n", "\n    ")
	}
	return fmt.Sprintf(`pipeline: %s
topics:
  %s: { partitions: %d, config: { retention.ms: -1 } }
  %s: { partitions: %d, config: { retention.ms: -1 } }
transformers:
  chain:
    input_topics: %s
    output_topics: %s
    state: { n: 0, h: %d }%s
    transform: |
      %s`, name, in, partitions, out, partitions, in, out, chainBasis, stage,
		strings.TrimSuffix(strings.ReplaceAll(body, "\n", "\n      "), "      "))
}

// Inputs are the input records for topic: those of one key in order, the keys mixed, the same for equal Chains. They are
// placed by key (Partition is -1) and have fixed times.
func (c Chain) Inputs(topic string) []*kgo.Record {
	records := make([]*kgo.Record, 0, c.Keys*c.Records)
	rng := rand.New(rand.NewPCG(c.Seed, 1))
	pad := strings.Repeat(".", c.Pad)
	next, alive := make([]int, c.Keys), make([]int, c.Keys)
	for k := range alive {
		alive[k] = k
	}
	for len(alive) > 0 {
		at := rng.IntN(len(alive))
		k := alive[at]
		next[k]++
		value := fmt.Appendf(nil, `{"i":%d,"x":%d,"pad":"%s"}`, next[k], c.x(k, next[k]), pad)
		records = append(records, &kgo.Record{Topic: topic, Partition: -1, Key: []byte(c.Key(k)), Value: value,
			Timestamp: time.UnixMilli(1_700_000_000_000 + int64(len(records)))})
		if next[k] == c.Records {
			alive[at] = alive[len(alive)-1]
			alive = alive[:len(alive)-1]
		}
	}
	return records
}

// Key is the name of key k.
func (c Chain) Key(k int) string { return fmt.Sprintf("key-%d", k) }

// x is the number that input i of key k carries: 31 random bits.
func (c Chain) x(k, i int) uint32 {
	z := c.Seed + uint64(k)<<32 + uint64(i)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return uint32(z>>33) & 0x7fffffff
}

// hashes are the chain of key k: hashes[i] after i records.
func (c Chain) hashes(k int) []uint32 {
	h := make([]uint32, c.Records+1)
	h[0] = chainBasis
	for i := 1; i <= c.Records; i++ {
		h[i] = Step(h[i-1], c.x(k, i))
	}
	return h
}

// Progress says what is expected to be there.
type Progress uint8

// What a check expects.
const (
	Complete   Progress = iota // every record of the workload was handled
	Unfinished                 // some were, of each key a beginning of its chain
)

type chainOutput struct {
	I, N int
	H    uint32
}

// CheckOutput checks the outputs, as ReadCommitted gives them: of each key each element once, in order, computed on the right
// state. The error lists what is lost, doubled, out of order or stale.
func (c Chain) CheckOutput(records []*kgo.Record, progress Progress) error {
	byKey := map[string][]*kgo.Record{}
	for _, r := range records {
		byKey[string(r.Key)] = append(byKey[string(r.Key)], r)
	}
	var p problems
	for k := range c.Keys {
		c.checkKey(&p, k, byKey[c.Key(k)], progress)
		delete(byKey, c.Key(k))
	}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		p.add("key %q does not belong to the workload", key)
	}
	return p.err("output")
}

func (c Chain) checkKey(p *problems, k int, records []*kgo.Record, progress Progress) {
	key, hashes := c.Key(k), c.hashes(k)
	seen := make([]int, c.Records+2)
	next := 1
	for _, r := range records {
		where := fmt.Sprintf("key %s at partition %d offset %d", key, r.Partition, r.Offset)
		if first := records[0].Partition; r.Partition != first {
			p.add("%s: other outputs of the key are in partition %d", where, first)
		}
		var out chainOutput
		if err := json.Unmarshal(r.Value, &out); err != nil || out.I < 1 || out.I > c.Records {
			p.add("%s: %.80q is no output of the workload", where, r.Value)
			continue
		}
		i := out.I
		seen[i]++
		switch {
		case seen[i] > 1:
			p.add("%s: element %d is doubled, for the %d. time", where, i, seen[i])
		case i < next:
			p.add("%s: element %d is out of order, it comes after element %d", where, i, next-1)
		default:
			next = i + 1
		}
		if out.N != i || out.H != hashes[i] {
			p.add("%s: element %d is stale: it was computed on %s, want the state after element %d", where, i,
				c.origin(k, hashes, out), i-1)
		}
	}
	end := c.Records
	if progress == Unfinished {
		end = next - 1
	}
	for i := 1; i <= end; i++ {
		from := i
		for i <= end && seen[i] == 0 {
			i++
		}
		if i > from {
			p.add("key %s: %s lost; %d records of it were read", key, span(from, i-1), len(records))
		}
	}
}

// origin tells which state an output was computed on, as far as its hash tells.
func (c Chain) origin(k int, hashes []uint32, out chainOutput) string {
	for j, h := range hashes {
		if (h^c.x(k, out.I))*chainPrime == out.H {
			return fmt.Sprintf("the state after element %d (n %d)", j, out.N-1)
		}
	}
	return fmt.Sprintf("a state that is not of this chain (n %d)", out.N-1)
}

func span(from, to int) string {
	if from == to {
		return fmt.Sprintf("element %d is", from)
	}
	return fmt.Sprintf("elements %d to %d are", from, to)
}

// CheckState checks the states by key, as Fold reads them from the changelog or as the store holds them: for each key the
// state after its last record, or, if Unfinished, after some record.
func (c Chain) CheckState(states map[string]string, progress Progress) error {
	var p problems
	left := maps.Clone(states)
	for k := range c.Keys {
		key, hashes := c.Key(k), c.hashes(k)
		text, ok := left[key]
		delete(left, key)
		if !ok {
			if progress == Complete {
				p.add("key %s has no state", key)
			}
			continue
		}
		var state chainOutput
		if err := json.Unmarshal([]byte(text), &state); err != nil {
			p.add("key %s: %.80q is no state of the workload", key, text)
			continue
		}
		at := slices.Index(hashes, state.H)
		switch {
		case at < 0:
			p.add("key %s: the state (n %d) is not of this chain", key, state.N)
		case at != state.N:
			p.add("key %s: the state has the hash after element %d, but n %d", key, at, state.N)
		case progress == Complete && at != c.Records:
			p.add("key %s: the state is the one after element %d, want %d", key, at, c.Records)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(left)) {
		p.add("key %q does not belong to the workload", key)
	}
	return p.err("state")
}

// CheckAgreement checks that outputs and states, both committed, tell of the same progress: the state of a key is the one
// after its last output.
func (c Chain) CheckAgreement(records []*kgo.Record, states map[string]string) error {
	last := map[string]chainOutput{}
	for _, r := range records {
		var out chainOutput
		if err := json.Unmarshal(r.Value, &out); err == nil && out.I >= last[string(r.Key)].I {
			last[string(r.Key)] = out
		}
	}
	var p problems
	for k := range c.Keys {
		key := c.Key(k)
		var state chainOutput
		if text, ok := states[key]; ok {
			if err := json.Unmarshal([]byte(text), &state); err != nil {
				p.add("key %s: %.80q is no state of the workload", key, text)
				continue
			}
		}
		if out := last[key]; state.N != out.N || state.H != out.H {
			p.add("key %s: the last output is element %d, the state is the one after element %d", key, out.N, state.N)
		}
	}
	return p.err("outputs and states")
}

// problems collects what is wrong and shows the first of it.
type problems struct {
	all []string
}

func (p *problems) add(format string, args ...any) {
	p.all = append(p.all, fmt.Sprintf(format, args...))
}

func (p *problems) err(what string) error {
	const shown = 20
	if len(p.all) == 0 {
		return nil
	}
	text := strings.Join(p.all[:min(shown, len(p.all))], "\n  ")
	if more := len(p.all) - shown; more > 0 {
		text += fmt.Sprintf("\n  and %d more", more)
	}
	return errors.New(what + " of the chain:\n  " + text)
}
