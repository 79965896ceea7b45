package rawjson

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// agrees checks that a Shapes that has seen whatever it has seen answers as Check does, and that a Shape tells the truth.
func agrees(t *testing.T, s *Shapes, data []byte) *Shape {
	t.Helper()
	before := []Member{{1, 2, 3, 4, true}}
	kind, members, err := Check(data, slices.Clone(before))
	kind2, members2, shape, err2 := s.Check(data, slices.Clone(before))
	if fmt.Sprint(err) != fmt.Sprint(err2) || kind != kind2 {
		t.Fatalf("%q: %v %v, with shapes %v %v", data, kind, err, kind2, err2)
	}
	if err != nil {
		if shape != nil {
			t.Fatalf("%q is wrong and has a shape", data)
		}
		return nil
	}
	if diff := cmp.Diff(members, members2); diff != "" {
		t.Fatalf("%q: members (-plain +shapes)\n%s", data, diff)
	}
	if shape == nil {
		return nil
	}
	members = members[1:]
	compact, seen, ordered := "", map[string]int{}, true
	for i, m := range members {
		name := m.Name(data)
		if shape.Names()[i] != name {
			t.Fatalf("%q: member %d is %q, the shape says %q", data, i, name, shape.Names()[i])
		}
		seen[name] = i
		ordered = ordered && !m.Escaped && name != "" && (name[0] < '0' || name[0] > '9')
		compact += string(",{"[min(1, max(0, 1-i))]) + string(data[m.NameStart-1:m.NameEnd+1]) + ":" + string(data[m.Start:m.End])
	}
	for name, i := range seen {
		if got := shape.Find(name); got != i {
			t.Fatalf("%q: Find(%q) = %d, want %d", data, name, got, i)
		}
	}
	if _, ok := seen["no such name"]; !ok && shape.Find("no such name") >= 0 {
		t.Fatalf("%q: a name that is not there was found", data)
	}
	if got, want := shape.Compact(), bytes.Equal(data, []byte(compact+"}")); got != want {
		t.Fatalf("%q: Compact %v, want %v (%s)", data, got, want, compact)
	}
	if got, want := shape.Doubled(), len(seen) < len(members); got != want {
		t.Fatalf("%q: Doubled %v, want %v", data, got, want)
	}
	if got, want := shape.Ordered(), ordered && len(seen) == len(members); got != want {
		t.Fatalf("%q: Ordered %v, want %v", data, got, want)
	}
	return shape
}

func TestEqualShapesAreOne(t *testing.T) {
	var s Shapes
	first := agrees(t, &s, []byte(`{"a":1,"long name with many bytes":"x","b":[1,{"c":"d"}]}`))
	again := agrees(t, &s, []byte(`{"a":null,"long name with many bytes":"a longer \"text\" é","b":{}}`))
	if first == nil || first != again {
		t.Error("the same members in the same order have two shapes")
	}
	for name, text := range map[string]string{
		"a member more": `{"a":1,"long name with many bytes":"x","b":[],"c":1}`,
		"one less":      `{"a":1,"long name with many bytes":"x"}`,
		"other names":   `{"a":1,"long name with other bytes":"x","b":[]}`,
		"other space":   `{"a":1,"long name with many bytes":"x", "b":[]}`,
		"space behind":  `{"a":1,"long name with many bytes":"x","b":[]} `,
		"escapes":       `{"\u0061":1,"long name with many bytes":"x","b":[]}`,
	} {
		if other := agrees(t, &s, []byte(text)); other == nil || other == first {
			t.Errorf("%s: taken for the first shape, or for none", name)
		}
	}
	if agrees(t, &s, []byte(`{"a":1,"long name with many bytes":"x","b":01}`)) != nil {
		t.Error("a wrong value passed")
	}
	if back := agrees(t, &s, []byte(`{"a":1,"long name with many bytes":"x","b":false}`)); back != first {
		t.Error("the first shape was forgotten though there was room")
	}
}

// Topics of many kinds of records, and of records whose names are data, must not cost more and more.
func TestLearningIsBounded(t *testing.T) {
	var s Shapes
	learnt := 0
	for n := range 5000 {
		if agrees(t, &s, fmt.Appendf(nil, `{"id-%d":1}`, n)) != nil {
			learnt++
		}
	}
	if len(s.known) > maxShapes || learnt > 100 {
		t.Errorf("%d shapes are kept, %d were learnt of texts that never repeat", len(s.known), learnt)
	}
	text := []byte(`{"from":"now on","all":"alike"}`)
	for range longestRest + 1 {
		agrees(t, &s, text)
	}
	if agrees(t, &s, text) == nil {
		t.Error("a shape that comes again and again is never learnt")
	}
	many := "{" + strings.Repeat(`"x":1,`, MaxShaped) + `"y":2}`
	if agrees(t, &s, []byte(many)) != nil {
		t.Error("a text with too many members has a shape")
	}
}

func FuzzShapes(f *testing.F) {
	for i, text := range texts {
		f.Add([]byte(text), []byte(texts[(i+7)%len(texts)]), []byte(`{"a":1,"b":2}`))
	}
	f.Add([]byte(`{"a":1,"b":2}`), []byte(`{"a":1,"c":2}`), []byte(`{"a":1}`))
	f.Add([]byte(`{"a":1,"bbbbbbbbbbbbbbbbbbbbb":2}`), []byte(`{"a":1.25e3,"bbbbbbbbbbbbbbbbbbbbb":-0.5}`), []byte(`{ "a": 1 }`))
	f.Fuzz(func(t *testing.T, a, b, c []byte) {
		var s Shapes
		for _, text := range [][]byte{a, a, b, a, c, b, c, a} {
			agrees(t, &s, text)
		}
	})
}

// readings are records of one producer, with values of many lengths.
func readings(n int) (all [][]byte) {
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		t := 55 + 50*rng.Float64()
		all = append(all, fmt.Appendf(nil, `{"sensor_id":"sensor-%04d","timestamp":"2026-01-05T06:00:%02d.%03dZ","sequence":%d,"temperature":%.2f,"humidity":%.1f,`+
			`"pressure":%.2f,"battery":%d,"status":"%s","firmware":"2.14.%d","site":"hall-%02d north","location":{"lat":%.5f,"lon":%.5f,"floor":%d},`+
			`"samples":[%.2f,%.2f,%.2f,%.2f,%.2f,%.2f,%.2f,%.2f]}`,
			rng.IntN(1000), rng.IntN(60), rng.IntN(1000), i, t, 20+60*rng.Float64(), 980+50*rng.Float64(), rng.IntN(101), []string{"ok", "degraded"}[rng.IntN(2)],
			rng.IntN(10), rng.IntN(40), 52+rng.Float64(), 13+rng.Float64(), rng.IntN(7), t-0.4, t-0.1, t+0.2, t+0.3, t-0.2, t+0.1, t, t+0.4))
	}
	return all
}

func BenchmarkShapes(b *testing.B) {
	all := readings(1000)
	members := make([]Member, 0, 2*MaxShaped)
	var s Shapes
	b.SetBytes(int64(len(all[0])))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, _, _, err := s.Check(all[i%len(all)], members[:0]); err != nil {
			b.Fatal(err)
		}
	}
}
