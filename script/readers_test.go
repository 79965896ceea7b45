package script

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/dop251/goja"

	"github.com/flechtwerk/flechtwerk/engine/decode/decodetest"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// What a script can do with an answer of fetch, or with a member of a zip, called r.
var readerUses = []string{
	"r.json === r.json",
	"await r.json()",
	"const { json, text } = r; yield Message({ value: [await json(), await text()] })",
	"Object.keys(r)",
	"Object.getOwnPropertyNames(r)",
	"JSON.stringify(Object.entries(r).map(([k, v]) => [k, typeof v]))",
	"[r.json.name, r.csv.length, typeof r.text, String(r.xml)]",
	"r.csv; r.bytes; Object.getOwnPropertyNames(r)",
	"const f = r.json; Object.keys(r); yield Message({ value: f === r.json })",
	"Object.getOwnPropertyDescriptor(r, 'json')",
	"Object.getOwnPropertyDescriptor(r, 'nothing')",
	"const d = Object.getOwnPropertyDescriptor(r, 'text'); yield Message({ value: [d.value === r.text, d.writable, d.enumerable, d.configurable] })",
	"Object.getOwnPropertyDescriptor(r, Object.keys(r)[0])",
	"Object.keys(Object.getOwnPropertyDescriptors(r))",
	"['json' in r, 'text' in r, 'nothing' in r, 'hasOwnProperty' in r]",
	"[Object.hasOwn(r, 'json'), r.hasOwnProperty('lines'), r.hasOwnProperty('status'), r.propertyIsEnumerable('json')]",
	"[typeof r, r instanceof Object, Object.getPrototypeOf(r) === Object.prototype, String(r), Array.isArray(r), Object.isExtensible(r), Object.isFrozen(r)]",
	"r.json = 1",
	"r.size = 1",
	"r.name = 1; r.status = 2",
	"r.extra = 1; yield Message({ value: [r.extra, Object.keys(r)] })",
	"r[7] = 1; yield Message({ value: [r[7], Object.keys(r)] })",
	"delete r.json",
	"delete r.nothing; yield Message({ value: Object.getOwnPropertyNames(r) })",
	"r.extra = 1; delete r.extra; yield Message({ value: [r.extra === undefined, Object.keys(r)] })",
	"const c = Object.create(r); yield Message({ value: [await c.json(), Object.keys(c), 'text' in c] })",
	"const c = Object.create(r); c.extra = 1; yield Message({ value: [Object.keys(c), r.extra === undefined] })",
	"const c = Object.create(r); c.json = 1",
	"const c = { ...r }; yield Message({ value: [Object.keys(c), c.json === undefined] })",
	"Object.keys(Object.assign({}, r))",
	"Object.assign(r, { extra: 1 }); yield Message({ value: Object.keys(r) })",
	"const list = []; for (const name in r) list.push(name); yield Message({ value: list })",
	"const { status, name, ...rest } = r; yield Message({ value: Object.keys(rest) })",
	"JSON.stringify(r)",
	"yield Message({ value: r })",
	"console.log(r)",
	"structuredClone(r)",
	"equal(r, r)",
	"throw r",
	"yield r",
	"await { then: f => f(r) } === r",
	"r.nothing",
	"r.nothing()",
	"r.json.call(null) !== undefined",
	"r.then",
	"await (async () => Object.getOwnPropertyNames(await r))()",
}

// Nobody can tell whether the readers are made when they are asked for.
func TestReadersAreThereBeforeTheyAreMade(t *testing.T) {
	for name, head := range map[string]string{
		"answer": "const r = await fetch('x/1'); ",
		"member": "const [r] = unzip(base64.decode('" + base64.StdEncoding.EncodeToString([]byte(decodetest.Zip(t, "a.json", `{"name":"x"}`))) + "')); await 0; ",
	} {
		t.Run(name, func(t *testing.T) {
			for _, use := range readerUses {
				body := use
				if !strings.Contains(use, "yield") && !strings.HasPrefix(use, "throw") {
					statements := strings.Split(use, "; ")
					statements[len(statements)-1] = "const got = " + statements[len(statements)-1] + "; yield Message({ value: got === undefined ? 'undefined' : got })"
					body = strings.Join(statements, "; ")
				}
				run := func(more string, plain bool) string {
					body := head + body + more
					if p := mustCompile(t, Source{Body: stream.Text{File: "f", Line: 1, Column: 1, Text: body}}); p.plain != plain {
						t.Fatalf("%s: over ordinary objects: %t", body, p.plain)
					}
					r := overlapCase{body: body, in: records("a")}.run(t)
					return r.String()
				}
				if late, early := run("", false), run(";'freeze'", true); late != early {
					t.Errorf("%s\nlate\n%s\nearly\n%s", use, late, early)
				}
			}
		})
	}
}

// An answer has the readers that are asked for, and no others, until somebody looks at its members.
func TestReadersAreMadeWhenTheyAreAskedFor(t *testing.T) {
	tr, err := mustCompile(t, Source{Body: bodyText("await fetch('x/1')")}).NewTransform(Env{Outputs: out})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	v := tr.(*overlapping).vm
	made := 0
	target := v.rt.NewObject()
	r := v.withReaders(target, func(r *reader) *goja.Object {
		made++
		return v.native(r.name, r.length, func(goja.FunctionCall) goja.Value { return goja.Undefined() })
	})
	if r.Get("nothing"); made != 0 {
		t.Errorf("%d were made for nothing", made)
	}
	if one := r.Get("json"); one == nil || !one.SameAs(r.Get("json")) || made != 1 || len(target.GetOwnPropertyNames()) != 0 {
		t.Errorf("%d were made for one", made)
	}
	if names := r.GetOwnPropertyNames(); len(names) != len(v.readers) || made != len(v.readers) {
		t.Errorf("%q, and %d were made", names, made)
	}
}
