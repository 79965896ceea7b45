package script

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dop251/goja"
)

var exampleFence = regexp.MustCompile("(?ms)^```js (run|poll)\n(.*?)^```$")

// In a block that the documentation marks as run, each line that ends in a comment with an arrow is an expression and what
// it gives; `throws code` is what it throws, by its code or name. What is yielded stands in comments too, in order, and
// that is all.
func TestDocumentedExamples(t *testing.T) {
	text, err := os.ReadFile("../docs/scripts.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := exampleFence.FindAllSubmatchIndex(text, -1)
	if len(blocks) < 30 {
		t.Fatalf("%d blocks are marked as run; that is too few", len(blocks))
	}
	for _, at := range blocks {
		line := 1 + bytes.Count(text[:at[4]], []byte("\n"))
		t.Run(fmt.Sprint("line ", line), func(t *testing.T) {
			run := runExample
			if string(text[at[2]:at[3]]) == "poll" {
				run = pollExample
			}
			run(t, line, string(text[at[4]:at[5]]))
		})
	}
}

// Each name of the standard library has a heading and an example, and so has each reader and option.
func TestEverythingIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/scripts.md")
	if err != nil {
		t.Fatal(err)
	}
	var examples strings.Builder
	for _, block := range exampleFence.FindAllSubmatch(text, -1) {
		examples.Write(block[2])
	}
	headings := strings.Join(regexp.MustCompile("(?m)^### .*$").FindAllString(string(text), -1), "\n")
	rt := goja.New()
	for name, build := range library {
		v := &vm{rt: rt, program: &Program{}, env: &Env{}}
		if !regexp.MustCompile(`\b` + name + `\b`).MatchString(headings) {
			t.Errorf("%s has no heading", name)
		}
		names := []string{name}
		if o, ok := build(v).(*goja.Object); ok && o.ClassName() == "Object" {
			names = names[:0]
			for _, member := range o.Keys() {
				names = append(names, name+"."+member)
			}
		}
		for _, name := range names {
			if !strings.Contains(examples.String(), name+"(") && !strings.Contains(examples.String(), "new "+name) {
				t.Errorf("%s has no example", name)
			}
		}
	}
	said := func(what string, names ...string) {
		for _, name := range names {
			if !regexp.MustCompile(`\b` + name + `\b`).MatchString(examples.String()) {
				t.Errorf("%s %s has no example", what, name)
			}
		}
	}
	said("the option", optionNames...)
	said("the option", "size", "md5", "sha256", "bearer", "user", "password", "separator", "delimiter", "quote", "columns", "empty", "short", "extra", "invalid_utf8",
		"limit", "lists", "defaults", "delimited", "digits", "fatal", "ignoreBOM")
	said("the member", "status", "ok", "url", "elapsed", "range", "headers.get", "json", "ndjson", "text", "bytes", "lines", "csv", "xml", "protobuf", "unzip")
	said("the member", fieldNames...)
	said("the member", messageNames...)
	said("the function", "State.initial", "console.debug")
}

var (
	yieldsComment = regexp.MustCompile(`// (yields|state) (.*)`)
	commitComment = regexp.MustCompile(`// (commits .*)`)
)

func runExample(t *testing.T, line int, block string) {
	var body strings.Builder
	var want []string
	expressions := 0
	for i, l := range strings.Split(block, "\n") {
		if m := yieldsComment.FindStringSubmatch(l); m != nil {
			want = append(want, m[1]+" "+m[2])
		}
		expression, want, ok := strings.Cut(l, "// → ")
		if !ok {
			body.WriteString(l + "\n")
			continue
		}
		expressions++
		expression = strings.TrimSuffix(strings.TrimSpace(expression), ";")
		if code, ok := strings.CutPrefix(want, "throws "); ok {
			fmt.Fprintf(&body, "{ let code = 'nothing'; try { %s } catch (e) { code = e.code ?? e.name } if (code !== %q) console.error('line %d throws ' + code) }\n", expression, code, line+i)
		} else {
			fmt.Fprintf(&body, "{ const got = (%s); if (!equal(got, (%s))) console.error('line %d:', got) }\n", expression, want, line+i)
		}
	}
	env := Env{
		Now: func() time.Time { return time.UnixMilli(1767225600000) }, Fetch: exampleServer, Initial: []byte(`{"count":0}`), Vars: []byte(`{"limit":85}`), Outputs: out,
		Console: func(level, text string) {
			if level == "error" {
				t.Error(text)
			} else {
				expressions++
			}
		},
	}
	p := mustCompile(t, Source{Body: bodyText(body.String()), Protobuf: ridesSchema(t)})
	tr, err := p.NewTransform(env)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tr.Close)
	store := storeMap{"tank-7": `{"count":2}`}
	if !p.NamesState() {
		store = nil
	}
	b := newBatch(t, store, input{"tank-7", `{"id":9007199254740993,"level":4.50,"tags":["a","b"]}`})
	b.Configs = configMap{"tank-7": `{"limit":85}`}
	if err := tr.Run(context.Background(), b); err != nil {
		t.Errorf("line %d: %v", line, err)
	}
	var got []string
	shown := &recorded{topics: out}
	for i := range b.Messages {
		got = append(got, strings.Replace(shown.showMessage(&b.Messages[i], &b.Records[0]), "message", "yields", 1))
	}
	for _, c := range b.Changes {
		got = append(got, "state "+cmp.Or(string(c.Value), "deleted"))
	}
	if !slices.Equal(got, want) {
		t.Errorf("line %d: got\n%s\nwant\n%s", line, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if expressions == 0 && len(want) == 0 {
		t.Error("the block shows no result")
	}
}

// pollExample runs a block as the body of a poll.
func pollExample(t *testing.T, line int, block string) {
	got, err := pollCase{body: block, config: `{"pages":2}`}.run(t)
	if err != nil {
		t.Errorf("line %d: %v", line, err)
	}
	var want []string
	for _, m := range commitComment.FindAllStringSubmatch(block, -1) {
		want = append(want, strings.Replace(m[1], "commits", "commit", 1))
	}
	if got != strings.Join(want, "\n") {
		t.Errorf("line %d: got\n%s\nwant\n%s", line, got, strings.Join(want, "\n"))
	}
}

// exampleServer is the API that the examples ask.
func exampleServer(_ context.Context, r *FetchRequest) (*FetchResponse, error) {
	answer := &FetchResponse{Status: 200, Headers: http.Header{"Content-Type": {"text/plain"}}, URL: r.URL, Shown: r.URL, Elapsed: 12 * time.Millisecond}
	var text string
	switch u, _ := url.Parse(r.URL); {
	case u.Host == "down.example.com":
		return nil, &FetchError{Code: "connect", Message: "GET " + r.URL + ": connection refused"}
	case u.Path == "/echo":
		query, lines := []string{}, []string{}
		for _, p := range r.Query {
			query = append(query, p.Name+"="+p.Value)
		}
		for _, h := range r.Headers {
			lines = append(lines, h.Name+": "+h.Value)
		}
		said, err := json.Marshal(map[string]any{"method": r.Method, "query": strings.Join(query, "&"), "headers": lines, "body": string(r.Body)})
		if err != nil {
			return nil, err
		}
		text = string(said)
	case u.Path == "/moved" && r.Redirect == "manual":
		answer.Status = 302
	case u.Path == "/moved" && r.Redirect == "error":
		return nil, &FetchError{Code: "redirects", Message: "GET " + r.URL + ": redirects are refused"}
	case u.Path == "/moved":
		answer.URL = "https://api.example.com/prices"
	case u.Path == "/slow" && r.Timeout == 5*time.Second:
		return nil, &FetchError{Code: "timeout", Message: "GET " + r.URL + ": took longer than 5s"}
	case u.Path == "/part":
		answer.Headers.Set("Content-Range", "bytes 0-3/10")
	case u.Path == "/semi":
		text = "a;b"
	case u.Path == "/feed":
		text = "{\"a\":1}\n{\"a\":2}\n"
	case u.Path == "/doc.xml":
		text = "<a>1</a>"
	case u.Path == "/prices":
		text = `{"items":[{"price":4.5}]}`
	case u.Path == "/prices.csv":
		text = "name;price\na;4.5\n"
	case u.Path == "/names.txt":
		text = "a\nb\n"
	default:
		answer.Status, text = 404, "not found"
	}
	answer.Body = io.NopCloser(strings.NewReader(text))
	return answer, nil
}
