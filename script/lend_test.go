package script

import (
	"context"
	"fmt"
	"testing"

	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// Only a body that cannot get hold of msg.value or state may be given the same object for every record.
func TestObjectsAreLentOnlyToBodiesThatLetGo(t *testing.T) {
	const value, state = true, true
	for body, want := range map[string][2]bool{
		`yield Message({ value: msg.value });`:                                                                       {value, state},
		`yield Message({ value: { ...msg.value, a: msg.value.b.c, d: msg.value['e'] } });`:                           {value, state},
		`state.n += msg.value.n; state['m'] = 1; state.n++; delete state.m; yield State(state);`:                     {value, state},
		`const { a, b: { c = 1 } } = msg.value; yield Message({ value: { a, c } });`:                                 {value, state},
		`for (const x of msg.value.list) yield Message({ value: x });`:                                               {value, state},
		`msg.value.list.forEach(x => { x.y = 1; }); yield Message({ value: msg.value });`:                            {value, state},
		`const v = msg.value; yield Message({ value: v });`:                                                          {value, state},
		`const { value: v } = msg; v.n = 1; yield Message({ value: { ...v, m: v.n } });`:                             {value, state},
		`let v = msg.value; yield Message({ value: v });`:                                                            {!value, state},
		`const v = msg.value; yield Message({ value: { v } });`:                                                      {!value, state},
		`const v = msg.value; const f = () => v.n; yield Message({ value: f() });`:                                   {!value, state},
		`function f() { return v.n; } const v = msg.value; yield Message({ value: f() });`:                           {!value, state},
		`const { a, ...rest } = msg.value; yield Message({ value: rest });`:                                          {!value, state},
		`const { a } = { a: msg.value }; yield Message({ value: a });`:                                               {!value, state},
		`const list = [1].map(x => msg.value.n + x); yield Message({ value: list });`:                                {!value, state},
		`function f() { return state.n; } yield Message({ value: f() });`:                                            {value, !state},
		`yield Message({ value: msg.value.valueOf() });`:                                                             {!value, state},
		`yield Message({ value: msg.value['valueOf']() });`:                                                          {!value, state},
		`yield Message({ value: msg.value.valueOf?.() });`:                                                           {!value, state},
		`yield Message({ value: msg.value?.valueOf() });`:                                                            {!value, state},
		"yield Message({ value: msg.value.f`x` });":                                                                  {!value, state},
		`yield Message({ value: [msg.value] });`:                                                                     {!value, state},
		`yield Message({ value: { inner: msg.value } });`:                                                            {!value, state},
		`state.last = msg.value; yield State(state);`:                                                                {!value, state},
		`msg.value.state = state; yield State({ n: 1 });`:                                                            {value, !state},
		`const s = State(state); yield s;`:                                                                           {value, !state},
		`state = { n: 1 }; yield State(state);`:                                                                      {value, !state},
		`yield State({ state });`:                                                                                    {value, !state},
		`const x = {}; ({ a: x.a } = msg.value); yield Message({ value: x });`:                                       {!value, state},
		`yield Message({ value: JSON.stringify(msg.value) });`:                                                       {!value, state},
		`const r = await fetch('http://x/' + msg.value.id); yield Message({ value: r.status }); yield State(state);`: {!value, !state},
	} {
		p := mustCompile(t, Source{Body: bodyText(body)})
		if got := [2]bool{p.lendsValue, p.lendsState}; got != want {
			t.Errorf("%s\nlends msg.value and state: %v, want %v", body, got, want)
		}
	}
}

// What a call makes of a lent object is its own, also when the next record has come.
func TestCopiesOfLentObjectsAreTheirOwn(t *testing.T) {
	bothWays(t, func(t *testing.T) {
		c := conform{
			body: `state.inner.n += 1;
				const copy = { ...msg.value, n: state.inner.n }, own = { ...state };
				msg.value.a.touched = true;
				state.last = copy.a;
				yield State(state);
				state.inner.n = -1;
				yield Message({ value: { ...copy, own } });
				yield Message({ value: msg.value });`,
			initial: `{"inner":{"n":0}}`,
			in:      []string{`{"a":{"x":1},"b":[1]}`, `{"a":{"x":2},"b":[2]}`, `{"a":{"x":3},"b":[3]}`},
		}
		c.want = `→ {"a":{"x":1,"touched":true},"b":[1],"n":1,"own":{"inner":{"n":-1}}}
→ {"a":{"x":1,"touched":true},"b":[1]}
→ {"a":{"x":2,"touched":true},"b":[2],"n":2,"own":{"inner":{"n":-1},"last":{"x":1,"touched":true}}}
→ {"a":{"x":2,"touched":true},"b":[2]}
→ {"a":{"x":3,"touched":true},"b":[3],"n":3,"own":{"inner":{"n":-1},"last":{"x":2,"touched":true}}}
→ {"a":{"x":3,"touched":true},"b":[3]}
state k={"inner":{"n":3},"last":{"x":3,"touched":true}}`
		if got := c.run(t); got != c.want {
			t.Errorf("got\n%s\nwant\n%s", got, c.want)
		}
	})
}

// A copy that a script keeps over batches does not need the members of the record that it was made of: their memory is another
// record's by then.
func TestCopiesOutliveTheirBatch(t *testing.T) {
	p := mustCompile(t, Source{
		Body:      bodyText(`const copy = { ...msg.value }; const was = kept(copy); if (was !== undefined) yield Message({ value: { ...was, m: was.n + was.o.p } });`),
		Functions: []stream.Text{{Text: `const kept = (() => { let last; return next => { const was = last; last = next; return was; }; })();`}},
	})
	tr, err := p.NewTransform(Env{Outputs: out})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	if r, ok := tr.(stream.Releasing); !ok || !r.Releases() {
		t.Fatal("the script does not release members")
	}
	got := ""
	for i := range 3 {
		b := newBatch(t, nil, input{"k", fmt.Sprintf(`{"n":%d,"o":{"p":%d}}`, i, 10*i)})
		if err := tr.Run(context.Background(), b); err != nil {
			t.Fatal(err)
		}
		got += effects(b)
		clear(b.Records[0].Members)
	}
	if want := "out k={\"n\":0,\"o\":{\"p\":0},\"m\":0}\nout k={\"n\":1,\"o\":{\"p\":10},\"m\":11}\n"; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}
