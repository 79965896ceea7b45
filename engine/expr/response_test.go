package expr

import (
	"slices"
	"strings"
	"testing"
)

func responseEnv(t *testing.T) *Env {
	t.Helper()
	env := recordEnv(t, `{"id":7,"tags":["a"]}`)
	doc := func(text string) Doc {
		d, err := NewDoc([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	env.Body, env.Status, env.Index, env.FoldHeaders = doc(`{"next":"b","items":[1,2],"deep":{"n":3}}`), 206, 4, true
	env.Page = Items{First: doc(`{"id":1}`), Last: doc(`9`), Count: 2}
	env.State, env.Config = doc(`{"since":5}`), doc(`{"region":"de"}`)
	env.Headers = func(yield func(string, []byte) bool) { yield("etag", []byte(`"x"`)) }
	return env
}

func TestScopesOfAnAnswer(t *testing.T) {
	env := responseEnv(t)
	for _, c := range []struct {
		text  string
		scope Scope
		want  string
	}{
		{"body.next + string(status)", Response, `"b206"`},
		{"body.items[1] + body.deep.n", Response, "5"},
		{"body.missing.x", Response, "null"},
		{"len(body.items)", Response, "2"},
		{`headers["ETag"] == headers.etag`, Response, "true"},
		{"config.region + string(state.since)", Response, `"de5"`},
		{"item.id * 10 + index", Item, "74"},
		{"item", Item, `{"id":7,"tags":["a"]}`},
		{"item.tags[0]", Item, `"a"`},
		{"page.first.id + page.last + page.count", Page, "12"},
		{"page", Page, `{"first":{"id":1},"last":9,"count":2}`},
		{"let b = {next: 1}; b.next", Page, "1"},
	} {
		e, err := Compile(c.text, c.scope, Any)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if got, err := e.AppendJSON(nil, env); string(got) != c.want || err != nil {
			t.Errorf("%s: got %s, %v, want %s", c.text, got, err, c.want)
		}
	}
	env.Body, _ = NewDoc([]byte(`"plain"`))
	env.Page = Items{}
	for text, want := range map[string]string{"body": `"plain"`, "body.x": "null", "page.last.id": "null", "page.count": "0"} {
		e, err := Compile(text, Page, Any)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := e.AppendJSON(nil, env); string(got) != want || err != nil {
			t.Errorf("%s: got %s, %v, want %s", text, got, err, want)
		}
	}
}

func TestScopesOfAnAnswerRefuse(t *testing.T) {
	for _, c := range []struct {
		text  string
		scope Scope
		hint  string
	}{
		{"page.lst", Page, "page has first, last and count"},
		{"item.id", Page, "message and until"},
		{"page.count", Item, "cursor, paginate and stop_when"},
		{"body.x", Config, "an HTTP answer"},
		{"status", Record, "an HTTP answer"},
		{"value.x", Item, "no record here"},
	} {
		_, err := Compile(c.text, c.scope, Any)
		if err == nil || !strings.Contains(err.Error(), c.hint) {
			t.Errorf("%s: %v, want %q", c.text, err, c.hint)
		}
	}
}

func TestReads(t *testing.T) {
	for text, want := range map[string][]string{
		"body.items":                          {"body.items"},
		"len(body.items) + state.n":           {"body.items", "state.n"},
		"body[config.list].x":                 {"body", "config.list"},
		"body.items[0].id":                    {"body.items"},
		"body?.a?.b":                          {"body.a.b"},
		`body["a b"].c`:                       {"body.a b.c"},
		"filter(body.items, .id > body.n)":    {"body.items", "body.n"},
		"let b = page.first; b.x":             {"page.first"},
		"vars.a == nil ? page.last : page":    {"vars.a", "page.last", "page"},
		"1 + 2":                               nil,
		"keys(body) == [] || headers.x == ''": {"body", "headers.x"},
	} {
		e, err := Compile(text, Page, Any)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		var got []string
		for _, path := range e.Reads() {
			got = append(got, strings.Join(path, "."))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s reads %v, want %v", text, got, want)
		}
		if path := strings.Join(e.Path(), "."); len(want) == 1 && path != "" && path != want[0] || path == "" && text == "body.items" {
			t.Errorf("%s is the path %q", text, path)
		}
	}
	whole, errs := CompileTree(tree("a", "body.x", "b", tree("c", "page.last.id")), Page)
	if len(errs) > 0 || len(whole.Reads()) != 2 {
		t.Errorf("a tree reads %v, %v", whole.Reads(), errs)
	}
	m, errs := CompileMessage(tree("topic", "t-{{ item.kind }}", "key", "item.id", "value", tree("a", "body.x"), "headers", tree("h", "status")), Item)
	if len(errs) > 0 || len(m.Reads()) != 4 {
		t.Errorf("a message reads %v, %v", m.Reads(), errs)
	}
}
