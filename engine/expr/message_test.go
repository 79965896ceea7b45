package expr

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func mustMessage(t *testing.T, tree *Tree) *Message {
	t.Helper()
	m, errs := CompileMessage(tree, Record)
	for _, e := range errs {
		t.Fatalf("%s: %v", e.Tree.Text, e.Err)
	}
	return m
}

func messageEnv(t *testing.T) *Env {
	env := recordEnv(t, sample)
	env.Headers = func(yield func(string, []byte) bool) {
		_ = yield("a", []byte("1")) && yield("n", nil) && yield("a", []byte("2"))
	}
	return env
}

func TestMessage(t *testing.T) {
	env := messageEnv(t)
	m := mustMessage(t, tree(
		"topic", "alerts-{{ value.site }}",
		"key", "value.site",
		"value", tree("id", "value.sensor_id", "where", tree("lat", "value.location.lat", "none", "value.location.none"),
			"list", &Tree{Kind: List, Items: []*Tree{leaf("value.samples"), leaf("1 + 1"), leaf(`"x"`), tree()}}, "odd \"name\"", "nil", "status", `"CRITICAL"`),
		"headers", tree("trace", "headers.a", "n", "headers.n", "empty", `""`, "count", "len(value.samples)", "obj", "{b: 1, a: 2}"),
		"timestamp", "value.timestamp", "partition", "value.location.floor"))
	value, isNil, err := m.AppendValue([]byte("<"), env, JSON)
	want := `<{"id":"sensor-0421","where":{"lat":52.520008,"none":null},"list":[[87.1,87.2,87.3,87.4],2,"x",{}],"odd \"name\"":null,"status":"CRITICAL"}`
	if string(value) != want || isNil || err != nil {
		t.Errorf("value %s %v %v, want %s", value, isNil, err, want)
	}
	if topic, err := m.AppendTopic(nil, env); string(topic) != "alerts-plant-7" || err != nil {
		t.Errorf("topic %s %v", topic, err)
	}
	for format, want := range map[Format]string{JSON: `"plant-7"`, Text: `plant-7`, Bytes: `plant-7`} {
		if key, isNil, err := m.AppendKey(nil, env, format); string(key) != want || isNil || err != nil {
			t.Errorf("key as %d: %s %v %v", format, key, isNil, err)
		}
	}
	if ms, set, err := m.Timestamp(env); ms != 1767225600123 || !set || err != nil {
		t.Error("timestamp", ms, set, err)
	}
	if p, set, err := m.Partition(env); p != 3 || !set || err != nil {
		t.Error("partition", p, set, err)
	}
	if diff := cmp.Diff([]string{"trace=2", "n is null", "empty=", "count=4", `obj={"a":2,"b":1}`}, headersOf(t, m, env)); diff != "" {
		t.Error(diff)
	}
	if m.CopiesHeaders() {
		t.Error("a map of headers is no copy")
	}
	if _, static := m.StaticTopic(); static {
		t.Error("the topic has a hole")
	}
	for p := range partCount {
		if !m.Sets(p) {
			t.Error("not set:", p)
		}
	}
}

func headersOf(t *testing.T, m *Message, env *Env) (got []string) {
	t.Helper()
	err := m.Headers(env, func(name string, value []byte) {
		if value == nil {
			got = append(got, name+" is null")
			return
		}
		got = append(got, fmt.Sprintf("%s=%s", name, value))
	})
	if err != nil {
		t.Error(err)
	}
	return got
}

func TestMessageOfOneExpressionEach(t *testing.T) {
	env := messageEnv(t)
	m := mustMessage(t, tree("topic", "alerts", "key", "{b: 2.0, a: value.site}", "value", "value.none", "headers", "headers", "timestamp", "value.none", "partition", "nil"))
	if topic, static := m.StaticTopic(); topic != "alerts" || !static {
		t.Error(topic, static)
	}
	for format, want := range map[Format]string{JSON: `{"a":"plant-7","b":2}`, Text: `{"a":"plant-7","b":2}`} {
		if key, _, err := m.AppendKey(nil, env, format); string(key) != want || err != nil {
			t.Errorf("key as %d: %s %v", format, key, err)
		}
	}
	if value, isNil, err := m.AppendValue([]byte("<"), env, JSON); string(value) != "<" || !isNil || err != nil {
		t.Error("a nil value is a tombstone:", string(value), isNil, err)
	}
	if _, set, err := m.Timestamp(env); set || err != nil {
		t.Error(set, err)
	}
	if _, set, err := m.Partition(env); set || err != nil {
		t.Error(set, err)
	}
	if !m.CopiesHeaders() {
		t.Error("headers: headers is a copy")
	}
	if diff := cmp.Diff([]string{"a=2", "n is null"}, headersOf(t, m, env)); diff != "" {
		t.Error(diff)
	}
	if m := mustMessage(t, tree("headers", "nil")); len(headersOf(t, m, env)) != 0 {
		t.Error("nil is no headers")
	}
	for _, c := range []struct {
		text   string
		format Format
		want   string
	}{
		{`value`, JSON, sample}, {`value.note`, Text, "calibrated in spring, next due in autumn"}, {`value.note`, JSON, `"calibrated in spring, next due in autumn"`}, {`value.samples`, Text, `[87.1,87.2,87.3,87.4]`}, {`b"\xff"`, Bytes, "\xff"}, {`""`, Text, ""}, {`value.temperature`, Text, "87.25"},
	} {
		m := mustMessage(t, tree("value", c.text))
		if value, isNil, err := m.AppendValue(nil, env, c.format); string(value) != c.want || isNil || err != nil {
			t.Errorf("%s as %d: %q %v %v", c.text, c.format, value, isNil, err)
		}
	}
}

func TestMessageErrorsAllAtOnce(t *testing.T) {
	bad := tree("topic", "a{{ vlue.x }}", "kye", "key", "value", tree("a", "1 +", "b", "value.b", "c", tree("d", "CRITICAL")), "headers", `"x"`, "timestamp", `"now"`, "partition", tree(), "extra", "1", "key", "WARN")
	_, errs := CompileMessage(bad, Record)
	var got []string
	for _, e := range errs {
		got = append(got, fmt.Sprintf("%s %d:%d %s %s", e.Tree.Text, e.Err.Line, e.Err.Column, e.Err.Code, e.Err.Hint))
	}
	want := []string{
		`a{{ vlue.x }} 1:5 expr.unknown_name did you mean "value"?`,
		`key 1:1 message.member did you mean "key"?`,
		`1 + 1:3 expr.syntax `,
		`CRITICAL 1:1 expr.unknown_name a literal text is quoted inside the expression: '"CRITICAL"'; in scope: key, value, headers, timestamp, topic, partition, offset, vars and now`,
		`"x" 1:1 expr.type `,
		`"now" 1:1 expr.type `,
		` 1:1 message.member `,
		`1 1:1 message.member it has topic, key, value, headers, timestamp and partition; what the record says belongs under value`,
		`WARN 1:1 expr.unknown_name a literal text is quoted inside the expression: '"WARN"'; in scope: key, value, headers, timestamp, topic, partition, offset, vars and now`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []*Tree{leaf("value"), tree("topic", tree()), tree("headers", &Tree{Kind: List}), tree("value", tree("a", "1", "a", "2"))} {
		if _, errs := CompileMessage(bad, Record); len(errs) != 1 || errs[0].Err.Code != CodeMessage {
			t.Error(errs)
		}
	}
}

func TestMessageFailures(t *testing.T) {
	env := messageEnv(t)
	nested := tree("a", "value.site", "b", tree("c", "value.site * 2"))
	nested.Items[1].Items[0].Ref = "the place"
	m := mustMessage(t, tree("value", nested, "topic", "x-{{ value.none }}", "timestamp", "value.temperature", "partition", "-1", "headers", "value.site", "key", "value.temperature / 0"))
	var f *Failure
	out, _, err := m.AppendValue([]byte("<"), env, JSON)
	if !errors.As(err, &f) || f.Text != "value.site * 2" || f.Ref != "the place" || f.Code != CodeOperand || f.Column != 12 || string(out) != "<" {
		t.Errorf("value: %+v %q", err, out)
	}
	if _, _, err = m.AppendValue(nil, env, Text); !errors.As(err, &f) || f.Text != "value.site * 2" {
		t.Errorf("value as text: %+v", err)
	}
	if _, err = m.AppendTopic(nil, env); !errors.As(err, &f) || f.Code != CodeNilHole || f.Column != 6 {
		t.Errorf("topic: %+v", err)
	}
	if _, _, err = m.Timestamp(env); !errors.As(err, &f) || f.Code != CodeMessageAt {
		t.Errorf("timestamp: %+v", err)
	}
	if _, _, err = m.Partition(env); !errors.As(err, &f) || f.Code != CodeMessageAt {
		t.Errorf("partition: %+v", err)
	}
	if err = m.Headers(env, nil); !errors.As(err, &f) || f.Code != CodeOperand {
		t.Errorf("headers: %+v", err)
	}
	if out, _, err = m.AppendKey([]byte("<"), env, JSON); !errors.As(err, &f) || f.Code != CodeNotFinite || string(out) != "<" {
		t.Errorf("key: %+v %q", err, out)
	}
}

func TestMessageOfRecordAllocatesNothing(t *testing.T) {
	env := recordEnv(t, sample)
	m := mustMessage(t, benchMessage)
	filter := mustCompile(t, `value.temperature > 85 && value.site == "plant-7" && value.location.floor in 1..3 && value.missing == nil`, Condition)
	dst := make([]byte, 0, 1024)
	if n := testing.AllocsPerRun(100, func() {
		if ok, err := filter.Bool(env); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if _, _, err := m.AppendValue(dst, env, JSON); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestTemplate(t *testing.T) {
	env := recordEnv(t, sample)
	for _, c := range []struct{ text, want string }{
		{``, ``}, {`plain`, `plain`}, {`{{ value.site }}`, `plant-7`}, {`a {{value.site}}/{{ value.location.floor + 1 }} é {{ "}}" }}!`, `a plant-7/4 é }}!`}, {`{{ {a: {b: 1}} }}`, `{"a":{"b":1}}`}, {`{{ value.samples[0:2] }}`, `[87.1,87.2]`}, {`{{ true }}{{ 1.50 }}`, `true1.5`}, {`a } } b`, `a } } b`}, {`{{ '{{' }}`, `{{`}, {`{{ value.none ?? "d" }}`, `d`}, {"{{ `a}}` /* }} */ }}", `a}}`},
	} {
		tpl, err := CompileTemplate(c.text, Record)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if out, err := tpl.Append([]byte("<"), env); string(out) != "<"+c.want || err != nil {
			t.Errorf("%s: %q %v", c.text, out, err)
		}
		text, static := tpl.Static()
		if static != !strings.Contains(c.text, "{{") || static && text != c.want {
			t.Errorf("%s: static %v %q", c.text, static, text)
		}
	}
	for _, c := range []struct {
		text         string
		line, column int
		code         string
	}{
		{`é {{ valu }}`, 1, 6, CodeUnknownName}, {`a {{ value`, 1, 3, CodeTemplate}, {`{{ }}`, 1, 3, CodeSyntax}, {"x\ny {{ 1 +\n }}", 3, 1, CodeSyntax}, {`{{ "a }}`, 1, 1, CodeTemplate}, {`{{ value.x) }}`, 1, 11, CodeSyntax}, {`{{ ${X} }}`, 1, 4, CodeEnvironment},
	} {
		_, err := CompileTemplate(c.text, Record)
		var e *Error
		if !errors.As(err, &e) || e.Line != c.line || e.Column != c.column || e.Code != c.code {
			t.Errorf("%q: %#v", c.text, err)
		}
	}
	tpl, _ := CompileTemplate("é {{ value.site * 2 }}", Record)
	var f *Failure
	if out, err := tpl.Append([]byte("<"), env); !errors.As(err, &f) || f.Column != 17 || string(out) != "<" {
		t.Errorf("%q %+v", out, err)
	}
}
