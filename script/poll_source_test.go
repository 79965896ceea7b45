package script

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/flechtwerk/flechtwerk/connectors/connectortest"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// TestPollIsASource runs the suite of all sources over scripted polls.
func TestPollIsASource(t *testing.T) {
	want := make([]string, 7)
	for i := range want {
		want[i] = fmt.Sprintf(`{"n":%d}`, i+1)
	}
	for name, body := range map[string]string{
		"pages": `
			let { n } = state;
			n ??= 0;
			while (n < 7) {
				for (let i = 0; i < 2 && n < 7; i++) yield Message({ value: { n: ++n } });
				yield State({ n });
			}`,
		"pages of fetched items": `
			let from = state.next ?? 0;
			try {
				for (;;) {
					const page = await (await fetch("https://api.test/items", { query: { from } })).json();
					if (!page.items.length) return;
					for (const n of page.items) yield Message({ value: { n } });
					from = page.next;
					yield State({ next: from });
				}
			} finally {
				console.log("over");
			}`,
	} {
		t.Run(name, func(t *testing.T) {
			connectortest.TestSource(t, func(t *testing.T) connectortest.Subject {
				program := mustCompile(t, Source{Kind: Poll, Body: stream.Text{File: "f.yaml", Line: 1, Column: 1, Text: body}})
				env := Env{
					Stage: "p/s", Outputs: []*stream.Topic{{Name: "out", Key: stream.String}}, Now: time.Now, Fetch: itemServer,
					Console: func(string, string) {}, Initial: []byte(`{}`),
				}
				return connectortest.Subject{
					New: func() (stream.Source, error) { return program.NewSource(env) }, Config: stream.Config{Key: "de", Value: []byte(`{}`)}, Want: want,
				}
			})
		})
	}
}

// itemServer has seven items and gives three at a time.
func itemServer(ctx context.Context, r *FetchRequest) (*FetchResponse, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, &FetchError{Code: "cancelled", Message: "given up", Err: err}
	}
	from, _ := strconv.Atoi(r.Query[0].Value)
	items := []string{}
	for n := from + 1; n <= min(from+3, 7); n++ {
		items = append(items, strconv.Itoa(n))
	}
	body := fmt.Sprintf(`{"items":[%s],"next":%d}`, strings.Join(items, ","), from+len(items))
	return &FetchResponse{Status: http.StatusOK, Headers: http.Header{}, URL: r.URL, Body: io.NopCloser(strings.NewReader(body))}, nil
}
