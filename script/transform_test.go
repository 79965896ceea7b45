package script

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

func TestMain(m *testing.M) {
	os.Exit(m.Run())
}

func bodyText(body string) stream.Text {
	return stream.Text{File: "tanks.yaml", Line: 31, Column: 7, Indent: 6, Text: body}
}

type storeMap map[string]string

func (s storeMap) State(key string) ([]byte, error) {
	if v, ok := s[key]; ok {
		return []byte(v), nil
	}
	return nil, nil
}

type input struct{ key, value string }

// shapeless leaves out the shapes of records.
var shapeless = false

func newBatch(t testing.TB, store storeMap, inputs ...input) *stream.Batch {
	in := &stream.Input{Name: "in", Topic: stream.Topic{Name: "in", Key: stream.String, Value: stream.JSON}}
	b := &stream.Batch{}
	if store != nil {
		b.States = store
	}
	for i, rec := range inputs {
		r := stream.Record{Input: in, Offset: int64(i), Timestamp: 1000 + int64(i), Key: []byte(rec.key), StateKey: rec.key}
		if rec.value != "" {
			var shapes rawjson.Shapes
			kind, members, shape, err := shapes.Check([]byte(rec.value), nil)
			if err != nil {
				t.Fatal(err)
			}
			if r.Value, r.Kind, r.Members = []byte(rec.value), kind, members; !shapeless {
				r.Shape = shape
			}
		}
		b.Records = append(b.Records, r)
	}
	b.Fail = func(_ int, err error) error { return err }
	return b
}

func effects(b *stream.Batch) string {
	var s strings.Builder
	for _, m := range b.Messages {
		fmt.Fprintf(&s, "%s %s=%s\n", m.Topic.Name, m.Key, m.Value)
	}
	for _, c := range b.Changes {
		fmt.Fprintf(&s, "state %s=%s\n", c.Key, c.Value)
	}
	return s.String()
}

var out = []*stream.Topic{{Name: "out", Key: stream.String}}

func mustCompile(t testing.TB, s Source) *Program {
	t.Helper()
	p, err := Compile(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestStateIsCountedPerKey(t *testing.T) {
	p := mustCompile(t, Source{Body: bodyText(`state.count += 1; state.sum += msg.value.temperature; yield State(state); yield Message({ value: { ...msg.value, count: state.count, mean: state.sum / state.count } });`)})
	tr, err := p.NewTransform(Env{Stage: "s", Outputs: out, Initial: []byte(`{"count":0,"sum":0}`), Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	b := newBatch(t, storeMap{}, input{"a", `{"temperature":80}`}, input{"a", `{"temperature":90.5}`}, input{"b", `{"temperature":1}`})
	if err := tr.Run(context.Background(), b); err != nil {
		t.Fatal(err)
	}
	want := `out a={"temperature":80,"count":1,"mean":80}
out a={"temperature":90.5,"count":2,"mean":85.25}
out b={"temperature":1,"count":1,"mean":1}
state a={"count":2,"sum":170.5}
state b={"count":1,"sum":1}
`
	if got := effects(b); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestErrorsShowTheUsersPlace(t *testing.T) {
	p := mustCompile(t, Source{Body: bodyText("const é = null;\nif (msg.value.a)  é.foo();\nconst no = { a: 1 };yield no;")})
	tr, err := p.NewTransform(Env{Stage: "s", Outputs: out})
	if err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]string{
		`{"a":1}`: "TypeError: Cannot read property 'foo' of undefined or null (tanks.yaml:32:27)",
		`{"a":0}`: "a plain object was yielded, which is neither a Message nor a State (tanks.yaml:33:27)",
	} {
		err = tr.Run(context.Background(), newBatch(t, nil, input{"a", value}))
		var e *Error
		if !errors.As(err, &e) || e.Error() != want {
			t.Errorf("%s: got %v, want %s", value, err, want)
		}
	}
}
