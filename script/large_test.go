package script

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
)

// allocated is how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Of a large value a script pays for what it touches: to read a member costs nothing of its size, to write it back one copy.
func TestLargeValuesAreNotParsed(t *testing.T) {
	value := largeValue(100 << 10)(0)
	size := uint64(len(value))
	for name, c := range map[string]struct {
		body string
		most uint64
	}{
		"read":            {"if (msg.value.temperature > 1000) throw 1", 8 << 10},
		"read after wait": {"await 0; if (msg.value.temperature > 1000) throw 1", 16 << 10},
		"read deep":       {"if (msg.value.history.length > 1000) throw 1", 4 * size},
		"spread":          {"yield Message({ value: { ...msg.value, mean: msg.value.temperature / 2 } })", 2 * size},
		"changed":         {"msg.value.temperature = 5; yield Message({ value: msg.value })", 2 * size},
		"passed":          {"yield Message({ value: msg.value })", 2 * size},
		"rest":            {"const { temperature, ...rest } = msg.value; if (temperature > 1000) throw 1", 4 * size},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTransform(t, Env{}, c.body)
			run := func() {
				b := newBatch(t, nil, input{"k", value}, input{"k", value}, input{"k", value}, input{"k", value})
				if err := tr.Run(t.Context(), b); err != nil {
					t.Fatal(err)
				}
			}
			idle := allocated(func() { newBatch(t, nil, input{"k", value}, input{"k", value}, input{"k", value}, input{"k", value}) })
			run()
			each := (max(allocated(run), idle) - idle) / 4
			if t.Logf("%d bytes of a value of %d", each, size); each > c.most {
				t.Errorf("%d bytes were allocated for a value of %d; %d are the most", each, size, c.most)
			}
		})
	}
}

// A large state of which each record changes one member is written once for a batch, and parsed for none.
func TestLargeStatesAreWrittenOncePerBatch(t *testing.T) {
	state := strings.TrimSuffix(largeValue(1<<20)(0), "}") + `,"count":0}`
	size := uint64(len(state))
	store := storeMap{"k": state}
	tr := newTransform(t, Env{}, "state.count += 1; yield State(state)")
	inputs := make([]input, 200)
	for i := range inputs {
		inputs[i] = input{"k", `{"a":1}`}
	}
	total := allocated(func() {
		b := newBatch(t, store, inputs...)
		if err := tr.Run(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if len(b.Changes) != 1 || !strings.HasSuffix(string(b.Changes[0].Value), `,"count":200}`) {
			t.Error("the state was not written once, with its last value")
		}
	})
	if t.Logf("%d bytes for %d records and a state of %d", total, len(inputs), size); total > 12*size {
		t.Errorf("%d bytes were allocated for %d records and a state of %d", total, len(inputs), size)
	}
}

// endless is a body of n copies of a text.
type endless struct {
	text string
	n    int
	rest string
}

func (e *endless) Read(p []byte) (int, error) {
	if e.rest == "" {
		if e.n == 0 {
			return 0, io.EOF
		}
		e.n, e.rest = e.n-1, e.text
	}
	n := copy(p, e.rest)
	e.rest = e.rest[n:]
	return n, nil
}

// What walks a body holds the body's bytes and the item that it is at, whatever the number of items.
func TestLargeBodiesAreWalkedInBoundedMemory(t *testing.T) {
	const rows = 200_000
	line := "sensor-0001;21.5;" + strings.Repeat("x", 82) + "\n" // 100 bytes: 20 MB in all
	for name, c := range map[string]struct{ walk, text string }{
		"lines":  {"(await fetch('x')).lines()", line},
		"csv":    {"(await fetch('x')).csv({ delimiter: ';', columns: ['id', 'level', 'note'] })", line},
		"ndjson": {"(await fetch('x')).ndjson()", `{"id":"sensor-0001","note":"` + strings.Repeat("x", 70) + "\"}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var held []uint64
			env := Env{
				Fetch: func(context.Context, *FetchRequest) (*FetchResponse, error) {
					return &FetchResponse{Status: 200, URL: "x", Shown: "x", Body: io.NopCloser(&endless{text: c.text, n: rows})}, nil
				},
				Console: func(string, string) {
					var m runtime.MemStats
					runtime.GC()
					runtime.ReadMemStats(&m)
					held = append(held, m.HeapAlloc)
				},
			}
			tr := newTransform(t, env, "let n = 0; for (const item of await "+c.walk+") if (n++ % 50000 === 0) console.log(n); yield Message({ value: n })")
			b := newBatch(t, nil, input{"k", "{}"})
			if err := tr.Run(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			expect(t, effects(b), fmt.Sprintf("out k=%d\n", rows))
			if len(held) != rows/50000 {
				t.Fatal(len(held))
			}
			t.Logf("%d bytes of a body of %d", held, rows*len(c.text))
			for _, later := range held[1:] {
				if later > held[0]+1<<20 {
					t.Errorf("the heap grew from %d to %d bytes while the body was walked", held[0], later)
				}
			}
		})
	}
}
