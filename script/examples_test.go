package script

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

var runFence = regexp.MustCompile("(?ms)^```js run\n(.*?)^```$")

// In a block that the documentation marks as run, each line that ends in a comment with an arrow is an expression and what
// it gives; `throws code` is what it throws.
func TestDocumentedExamples(t *testing.T) {
	text, err := os.ReadFile("../docs/scripts.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := runFence.FindAllSubmatchIndex(text, -1)
	if len(blocks) < 20 {
		t.Fatalf("%d blocks are marked as run; that is too few", len(blocks))
	}
	for _, at := range blocks {
		line := 1 + bytes.Count(text[:at[2]], []byte("\n"))
		t.Run(fmt.Sprint("line ", line), func(t *testing.T) {
			runExample(t, line, string(text[at[2]:at[3]]))
		})
	}
}

func runExample(t *testing.T, line int, block string) {
	var body strings.Builder
	expressions := 0
	for i, l := range strings.Split(block, "\n") {
		expression, want, ok := strings.Cut(l, "// → ")
		if !ok {
			body.WriteString(l + "\n")
			continue
		}
		expressions++
		expression = strings.TrimSuffix(strings.TrimSpace(expression), ";")
		if code, ok := strings.CutPrefix(want, "throws "); ok {
			fmt.Fprintf(&body, "{ let code = 'nothing'; try { %s } catch (e) { code = e.code } if (code !== %q) console.error('line %d throws ' + code) }\n", expression, code, line+i)
		} else {
			fmt.Fprintf(&body, "{ const got = (%s); if (!equal(got, (%s))) console.error('line %d:', got) }\n", expression, want, line+i)
		}
	}
	if expressions == 0 {
		t.Error("the block shows no result")
	}
	env := Env{Now: func() time.Time { return time.UnixMilli(1767225600000) }, Console: func(_, text string) { t.Error(text) }, Fetch: exampleServer}
	env.Outputs = out
	tr, err := mustCompile(t, Source{Body: bodyText(body.String()), Protobuf: ridesSchema(t)}).NewTransform(env)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tr.Close)
	b := newBatch(t, nil, input{"tank-7", `{"id":9007199254740993,"level":4.50,"tags":["a","b"]}`})
	b.Configs = configMap{"tank-7": `{"limit":85}`}
	if err := tr.Run(context.Background(), b); err != nil {
		t.Errorf("line %d: %v", line, err)
	}
}

// exampleServer is the API that the examples ask.
func exampleServer(_ context.Context, r *FetchRequest) (*FetchResponse, error) {
	answer := &FetchResponse{Status: 200, Headers: http.Header{"Content-Type": {"text/plain"}}, URL: r.URL, Shown: r.URL, Elapsed: 12 * time.Millisecond}
	var text string
	switch u, _ := url.Parse(r.URL); {
	case u.Host == "down.example.com":
		return nil, &FetchError{Code: "connect", Message: "GET " + r.URL + ": connection refused"}
	case r.Method == http.MethodPost:
		answer.Status, text = 201, string(r.Body)
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
