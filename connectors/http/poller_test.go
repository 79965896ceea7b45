package http_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flechtwerk/flechtwerk/connectors/connectortest"
	"github.com/flechtwerk/flechtwerk/connectors/connectortest/replay"
	"github.com/flechtwerk/flechtwerk/connectors/http"
	"github.com/flechtwerk/flechtwerk/engine/expr"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// ledger is what is committed: the stand-in of Kafka. It may die at a commit.
type ledger struct {
	state    []byte
	messages []stream.Message
	values   []string
	commits  []int // messages of each
	states   []string
	before   int // the number, from 1, of the commit that is lost; 0 is none
	after    int // … of the commit after which the process dies
}

var errKilled = errors.New("killed")

func (l *ledger) commit(_ context.Context, page *stream.Page) error {
	n := len(l.commits) + 1
	if n == l.before {
		l.before = 0
		return errKilled
	}
	if page.Moved {
		l.state = bytes.Clone(page.Cursor)
	}
	for _, m := range page.Messages {
		m.Key, m.Value = bytes.Clone(m.Key), bytes.Clone(m.Value)
		l.messages = append(l.messages, m)
		l.values = append(l.values, string(m.Value))
	}
	l.commits = append(l.commits, len(page.Messages))
	l.states = append(l.states, string(l.state))
	if n == l.after {
		l.after = 0
		return errKilled
	}
	return nil
}

// poll runs one poll.
func (l *ledger) poll(ctx context.Context, source stream.Source, config string) error {
	return source.Poll(ctx, &stream.Poll{
		Config: stream.Config{Key: "de", Value: []byte(config)}, Cursor: bytes.Clone(l.state), Commit: l.commit,
	})
}

// drained polls until a poll commits nothing, and answers how many polls that took.
func (l *ledger) drained(t *testing.T, source stream.Source) int {
	t.Helper()
	for polls := 1; ; polls++ {
		n := len(l.commits)
		if err := l.poll(t.Context(), source, `{}`); err != nil && !errors.Is(err, errKilled) {
			t.Fatal(err)
		} else if err == nil && len(l.commits) == n {
			return polls
		}
		if polls > 1000 {
			t.Fatal("the source finds something new for ever")
		}
	}
}

// rig is a server and what a poller of it begins with.
type rig struct {
	*connectortest.Replay
	config   http.PollerConfig
	warnings []http.PollWarning
	waits    []http.PollWait
}

func newRig(t *testing.T, rules ...replay.Rule) *rig {
	t.Helper()
	r := &rig{Replay: connectortest.NewReplayInMemory(t, "", rules...)}
	client, err := http.New(http.Config{Dial: r.Dial, Proxy: "direct"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	r.config = http.PollerConfig{
		Client:  client,
		Request: http.RequestConfig{URL: template(t, r.URL+"/items")},
		Outputs: []*stream.Topic{{Name: "out", Key: stream.String}},
		Message: message(t, "value", "item"),
		Events: http.PollerEvents{
			Warned:  func(w http.PollWarning) { r.warnings = append(r.warnings, w) },
			Waiting: func(w http.PollWait) { r.waits = append(r.waits, w) },
		},
	}
	return r
}

func (r *rig) source(t *testing.T) stream.Source {
	t.Helper()
	source, err := http.NewPoller(r.config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(source.Close)
	return source
}

func (r *rig) codes() []string {
	var codes []string
	for _, w := range r.warnings {
		codes = append(codes, w.Code)
	}
	return codes
}

// asked are the requests so far, path and query.
func (r *rig) asked() []string {
	var urls []string
	for _, request := range r.Requests() {
		urls = append(urls, request.URL)
	}
	return urls
}

func template(t *testing.T, text string) *expr.Template {
	t.Helper()
	out, err := expr.CompileTemplate(text, expr.Config)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return out
}

func compiled(t *testing.T, text string, scope expr.Scope, want expr.Want) *expr.Expr {
	t.Helper()
	out, err := expr.Compile(text, scope, want)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return out
}

// message compiles pairs of parts and expressions.
func message(t *testing.T, parts ...string) *expr.Message {
	t.Helper()
	tree := &expr.Tree{Kind: expr.Map}
	for i := 0; i < len(parts); i += 2 {
		tree.Names, tree.Items = append(tree.Names, parts[i]), append(tree.Items, &expr.Tree{Text: parts[i+1]})
	}
	out, errs := expr.CompileMessage(tree, expr.Item)
	for _, e := range errs {
		t.Fatal(e.Err)
	}
	return out
}

// cursor compiles pairs of names and expressions.
func cursor(t *testing.T, fields ...string) []http.CursorField {
	t.Helper()
	var out []http.CursorField
	for i := 0; i < len(fields); i += 2 {
		out = append(out, http.CursorField{Name: fields[i], Value: compiled(t, fields[i+1], expr.Page, expr.Any)})
	}
	return out
}

func records(t *testing.T, text string) *expr.Expr {
	return compiled(t, text, expr.Response, expr.AList)
}

// pages are rules for a listing of items 1 to n, so many on each page, by a query member with the number of the page.
func pages(n, size int) []replay.Rule {
	var rules []replay.Rule
	number := 1
	for from := 1; ; from += size {
		var items []string
		for id := from; id < from+size && id <= n; id++ {
			items = append(items, fmt.Sprintf(`{"id":%d}`, id))
		}
		rules = append(rules, replay.Rule{Query: map[string]string{"page": strconv.Itoa(number)}, JSON: json.RawMessage(`{"items":[` + strings.Join(items, ",") + `]}`)})
		number++
		if from > n {
			return rules
		}
	}
}

func ids(from, to int) []string {
	var all []string
	for id := from; id <= to; id++ {
		all = append(all, fmt.Sprintf(`{"id":%d}`, id))
	}
	return all
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s:\n got %d: %.1000v\nwant %d: %.1000v", what, len(got), got, len(want), want)
	}
}

func TestPollReadsAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, replay.Rule{JSON: json.RawMessage(`{"items":[{"id":1,"at":5},{"id":2,"at":7}],"next":null}`)})
		r.config.Records = records(t, "body.items")
		r.config.Message = message(t, "key", "config.region", "value", "{n: item.id + index, was: state.since}", "timestamp", "item.at")
		r.config.Cursor = cursor(t, "since", "page.last.at")
		r.config.Initial = []byte(`{"since":3}`)
		r.config.Request.URL = template(t, r.URL+"/v1/{{ config.region }}")
		r.config.Request.Query = []http.Param{{Name: "since", Value: template(t, "{{ state.since }}")}}
		l := &ledger{}
		if err := l.poll(t.Context(), r.source(t), `{"region":"D E/é"}`); err != nil {
			t.Fatal(err)
		}
		same(t, "requests", r.asked(), []string{"/v1/D%20E%2F%C3%A9?since=3"})
		same(t, "values", l.values, []string{`{"n":1,"was":3}`, `{"n":3,"was":3}`})
		m := l.messages[1]
		if string(m.Key) != "D E/é" || m.Timestamp != 7 || m.Partition != stream.AnyPartition || m.Topic.Name != "out" {
			t.Errorf("got %+v", m)
		}
		if !strings.HasPrefix(string(l.state), `{"since":7,"$http":{"version":{"request":"`) {
			t.Errorf("state %s", l.state)
		}
	})
}

func TestH3PageNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, pages(5, 2)...)
		r.config.Records = records(t, "body.items")
		r.config.Paginate = &http.Paginate{Style: http.PageNumber, Param: http.PageParam{Name: "page"}, Start: 1, Size: 2, SizeParam: http.PageParam{Name: "size"}}
		l := &ledger{}
		if err := l.poll(t.Context(), r.source(t), `{}`); err != nil {
			t.Fatal(err)
		}
		same(t, "values", l.values, ids(1, 5))
		same(t, "requests", r.asked(), []string{"/items?size=2&page=1", "/items?size=2&page=2", "/items?size=2&page=3", "/items?size=2&page=4"})
		if !slices.Equal(l.commits, []int{2, 2, 1, 0}) || l.state != nil {
			t.Errorf("commits %v, state %s", l.commits, l.state)
		}
	})
}

func TestH1KilledListingGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for kill := 1; kill <= 8; kill++ {
			for _, after := range []bool{false, true} {
				r := newRig(t, pages(14, 2)...)
				r.config.Records = records(t, "body.items")
				r.config.Paginate = &http.Paginate{Style: http.PageNumber, Param: http.PageParam{Name: "page"}, Start: 1}
				l := &ledger{before: kill}
				if after {
					l.before, l.after = 0, kill
				}
				if err := l.poll(t.Context(), r.source(t), `{}`); !errors.Is(err, errKilled) {
					t.Fatalf("kill %d: the poll ended with %v", kill, err)
				}
				if kill == 8 && after {
					same(t, "values", l.values, ids(1, 14))
					continue
				}
				before := len(r.Requests())
				if err := l.poll(t.Context(), r.source(t), `{}`); err != nil {
					t.Fatal(err)
				}
				same(t, fmt.Sprintf("kill %d, after %v", kill, after), l.values, ids(1, 14))
				next := kill
				if after {
					next++
				}
				if got := r.asked()[before]; got != fmt.Sprintf("/items?page=%d", next) {
					t.Errorf("kill %d, after %v: the next poll begins with %s", kill, after, got)
				}
			}
		}
	})
}

func TestH4Conditional(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.Put("items", []byte(`[{"id":1},{"id":2}]`))
		l, source := &ledger{}, r.source(t)
		for range 3 {
			if err := l.poll(t.Context(), source, `{}`); err != nil {
				t.Fatal(err)
			}
		}
		same(t, "values", l.values, ids(1, 2))
		requests := r.Requests()
		if len(l.commits) != 1 || len(requests) != 3 || requests[0].Header.Get("If-None-Match") != "" || requests[2].Header.Get("If-None-Match") == "" {
			t.Errorf("commits %v, requests %v", l.commits, requests)
		}
		pass(time.Second)
		r.Put("items", []byte(`[{"id":3}]`))
		if err := l.poll(t.Context(), source, `{}`); err != nil {
			t.Fatal(err)
		}
		same(t, "values", l.values, ids(1, 3))
	})
}

// contextWithCause ends after a while, with a cause.
func contextWithCause(t *testing.T, d time.Duration, cause error) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithTimeoutCause(t.Context(), d, cause)
}

// pass lets time pass, on the clock of a bubble.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // it is fake
}
