package expr

import (
	"sync"
	"testing"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
)

const sample = `{"sensor_id":"sensor-0421","timestamp":1767225600123,"temperature":87.25,"humidity":41.5,"pressure":1013.25,"battery":0.87,"status":"ok","firmware":"2.14.3","site":"plant-7","location":{"lat":52.520008,"lon":13.404954,"floor":3,"room":"b-12"},"samples":[87.1,87.2,87.3,87.4],"note":"calibrated in spring, next due in autumn"}`

func recordEnv(tb testing.TB, value string) *Env {
	tb.Helper()
	_, members, err := rawjson.Check([]byte(value), nil)
	if err != nil {
		tb.Fatal(err)
	}
	return &Env{Value: []byte(value), Members: members, Key: []byte("k1"), KeyFormat: Text, Topic: "levels", Partition: 3, Offset: 42, Timestamp: 1700000000000, Now: 1700000001000}
}

func mustCompile(tb testing.TB, text string, want Want) *Expr {
	tb.Helper()
	e, err := Compile(text, Record, want)
	if err != nil {
		tb.Fatalf("Compile(%s): %v", text, err)
	}
	return e
}

func leaf(text string) *Tree { return &Tree{Kind: Leaf, Text: text} }

func tree(members ...any) *Tree {
	t := &Tree{Kind: Map}
	for i := 0; i < len(members); i += 2 {
		t.Names = append(t.Names, members[i].(string))
		switch m := members[i+1].(type) {
		case string:
			t.Items = append(t.Items, leaf(m))
		case *Tree:
			t.Items = append(t.Items, m)
		}
	}
	return t
}

var benchMessage = tree("value", tree("sensor_id", "value.sensor_id", "timestamp", "value.timestamp", "fahrenheit", "value.temperature * 9 / 5 + 32", "alert", "true"))

// A compiled expression is shared by goroutines that each have their Env.
func TestExprIsSharedByGoroutines(t *testing.T) {
	e := mustCompile(t, `sortBy(filter(value.users, .age > value.i || .n matches value.texts[1]), .n) | map({let n = .n; upper(n) + string(len(value.list))})`, Any)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			env := recordEnv(t, record)
			for range 200 {
				if out, err := e.AppendJSON(nil, env); string(out) != `["ANN6","BOB6"]` || err != nil {
					t.Error(string(out), err)
					return
				}
			}
		})
	}
	group.Wait()
}

func BenchmarkFilter(b *testing.B) {
	env := recordEnv(b, sample)
	e := mustCompile(b, "value.temperature > 85", Condition)
	b.ReportAllocs()
	for b.Loop() {
		if ok, err := e.Bool(env); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
}

func BenchmarkMessage(b *testing.B) {
	env := recordEnv(b, sample)
	m, errs := CompileMessage(benchMessage, Record)
	if errs != nil {
		b.Fatal(errs[0].Err)
	}
	dst := make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := m.AppendValue(dst, env, JSON); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFilterAndMessage is a transformer of a filter that 29 % of its records pass and a message of four members.
func BenchmarkFilterAndMessage(b *testing.B) {
	pass := recordEnv(b, sample)
	fail := recordEnv(b, `{"sensor_id":"sensor-0421","timestamp":1767225600123,"temperature":71.25,`+sample[len(`{"sensor_id":"sensor-0421","timestamp":1767225600123,"temperature":87.25,`):])
	e := mustCompile(b, "value.temperature > 85", Condition)
	m, errs := CompileMessage(benchMessage, Record)
	if errs != nil {
		b.Fatal(errs[0].Err)
	}
	dst := make([]byte, 0, 1024)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		env := fail
		if i++; i%100 < 29 {
			env = pass
		}
		ok, err := e.Bool(env)
		if ok {
			_, _, err = m.AppendValue(dst, env, JSON)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTemplate(b *testing.B) {
	env := recordEnv(b, sample)
	t, err := CompileTemplate("alerts-{{ value.site }}-{{ value.location.floor }}", Record)
	if err != nil {
		b.Fatal(err)
	}
	dst := make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := t.Append(dst, env); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	for b.Loop() {
		mustCompile(b, `value.temperature > 85 && value.site in ["plant-1", "plant-7"]`, Condition)
	}
}
