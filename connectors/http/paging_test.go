package http_test

import (
	"encoding/json"
	"errors"
	"fmt"
	nethttp "net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flechtwerk/flechtwerk/connectors/connectortest"
	"github.com/flechtwerk/flechtwerk/connectors/connectortest/replay"
	"github.com/flechtwerk/flechtwerk/connectors/http"
	"github.com/flechtwerk/flechtwerk/engine/decode"
	"github.com/flechtwerk/flechtwerk/engine/expr"
)

func json1(query map[string]string, text string) replay.Rule {
	return replay.Rule{Query: query, JSON: json.RawMessage(text)}
}

func query(pairs ...string) map[string]string {
	out := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = pairs[i+1]
	}
	return out
}

// feed is an API that has the newest first, by pages of 3; it may grow between two requests.
type feed struct {
	mu    sync.Mutex
	items int // ids from items down to 1
	asked int
	grow  map[int]int // items that come in after the request of that number
}

func (f *feed) ServeHTTP(w nethttp.ResponseWriter, r *nethttp.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	number, _ := strconv.Atoi(r.URL.Query().Get("page"))
	var items []string
	for id := f.items - 3*(number-1); id > 0 && len(items) < 3; id-- {
		items = append(items, fmt.Sprintf(`{"id":%d}`, id))
	}
	fmt.Fprintf(w, `{"items":[%s]}`, strings.Join(items, ","))
	f.asked++
	f.items += f.grow[f.asked]
}

func newestFirst(t *testing.T, f *feed) *rig {
	t.Helper()
	r := newRig(t)
	client, err := http.New(http.Config{Dial: connectortest.ServeInMemory(t, f), Proxy: "direct"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	r.config.Client = client
	r.config.Records = records(t, "body.items")
	r.config.Cursor = cursor(t, "last", "page.first.id")
	r.config.Paginate = &http.Paginate{Style: http.PageNumber, Param: http.PageParam{Name: "page"}, Start: 1,
		Until: compiled(t, "item.id <= state.last", expr.Item, expr.Condition)}
	return r
}

// sorted are the ids of a ledger, smallest first.
func (l *ledger) sorted(t *testing.T) []string {
	t.Helper()
	numbers := []int{}
	for _, value := range l.values {
		var item struct{ ID int }
		if err := json.Unmarshal([]byte(value), &item); err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, item.ID)
	}
	slices.Sort(numbers)
	all := make([]string, len(numbers))
	for i, n := range numbers {
		all[i] = fmt.Sprintf(`{"id":%d}`, n)
	}
	return all
}

// TestH1NewestFirst lets a feed grow while it is read, and kills the poll at every commit: no item is lost, and none is sent
// twice, though they move from page to page.
func TestH1NewestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kills := 0
		for kill := range 8 {
			for _, after := range []bool{false, true} {
				for _, grow := range []int{0, 1, 2, 4, 7} {
					f := &feed{items: 10, grow: map[int]int{1: grow, 3: grow}}
					r := newestFirst(t, f)
					l := &ledger{before: kill}
					if after {
						l.before, l.after = 0, kill
					}
					l.drained(t, r.source(t))
					what := fmt.Sprintf("kill %d, after %v, %d new", kill, after, grow)
					if kill > 0 && l.before+l.after == 0 {
						kills++
					}
					same(t, what, l.sorted(t), ids(1, f.items))
					f.items += 2
					l.drained(t, r.source(t))
					same(t, what+", later", l.sorted(t), ids(1, f.items))
					if want := fmt.Sprintf(`{"last":%d}`, f.items); string(l.state) != want {
						t.Fatalf("%s: state %s, want %s", what, l.state, want)
					}
				}
			}
		}
		if kills < 50 {
			t.Errorf("only %d polls were killed", kills)
		}
	})
}

func TestH1StateWithinAListing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, json1(query("since", "0", "page", "1"), `{"items":[{"id":1}]}`), json1(query("since", "0", "page", "2"), `{"items":[{"id":2}]}`),
			json1(nil, `{"items":[]}`))
		r.config.Records = records(t, "body.items")
		r.config.Request.Query = []http.Param{{Name: "since", Value: template(t, "{{ state.since ?? 0 }}")}, {Name: "to", Value: template(t, "{{ now }}")}}
		r.config.Cursor = cursor(t, "since", "page.last.id", "upto", "now")
		r.config.Paginate = &http.Paginate{Style: http.PageNumber, Param: http.PageParam{Name: "page"}, Start: 1}
		l := &ledger{after: 1}
		source := r.source(t)
		if err := l.poll(t.Context(), source, `{}`); !errors.Is(err, errKilled) {
			t.Fatal(err)
		}
		began := r.asked()[0]
		pass(time.Hour)
		l.drained(t, source)
		same(t, "values", l.values, ids(1, 2))
		second := r.asked()[1]
		if second != strings.Replace(began, "page=1", "page=2", 1) {
			t.Errorf("the listing began with %s and went on with %s", began, second)
		}
		if last := r.asked()[3]; !strings.HasPrefix(last, "/items?since=2&") {
			t.Errorf("the next listing began with %s", last)
		}
	})
}

func TestH1RequestOfAListingChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, pages(4, 2)...)
		r.config.Records = records(t, "body.items")
		r.config.Request.Query = []http.Param{{Name: "token", Value: template(t, "{{ config.token }}")}, {Name: "kind", Value: template(t, "{{ config.kind }}")}}
		r.config.Paginate = &http.Paginate{Style: http.PageNumber, Param: http.PageParam{Name: "page"}, Start: 1}
		l := &ledger{after: 1}
		_ = l.poll(t.Context(), r.source(t), `{"token":"one","kind":"a"}`)
		// A secret is not what is asked for.
		l.after = 2
		_ = l.poll(t.Context(), r.source(t), `{"token":"two","kind":"a"}`)
		same(t, "values", l.values, ids(1, 4))
		if err := l.poll(t.Context(), r.source(t), `{"token":"two","kind":"b"}`); err != nil {
			t.Fatal(err)
		}
		same(t, "values", l.values, append(ids(1, 4), ids(1, 4)...))
	})
}

// TestH1ListingBeginsAgainFromItsState changes the request of a listing that has moved its cursor already: what it had still
// to read is read.
func TestH1ListingBeginsAgainFromItsState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, json1(query("since", "0", "page", "1"), `{"items":[{"id":3}]}`), json1(query("since", "0", "page", "2"), `{"items":[{"id":2}]}`),
			json1(nil, `{"items":[]}`))
		r.config.Records = records(t, "body.items")
		r.config.Request.Query = []http.Param{{Name: "since", Value: template(t, "{{ state.since ?? 0 }}")}, {Name: "kind", Value: template(t, "{{ config.kind }}")}}
		r.config.Cursor = cursor(t, "since", "max(page.last.id, state.since ?? 0)")
		r.config.Paginate = &http.Paginate{Style: http.PageNumber, Param: http.PageParam{Name: "page"}, Start: 1}
		l := &ledger{after: 1}
		_ = l.poll(t.Context(), r.source(t), `{"kind":1}`)
		if err := l.poll(t.Context(), r.source(t), `{"kind":2}`); err != nil {
			t.Fatal(err)
		}
		same(t, "values", l.values, []string{`{"id":3}`, `{"id":3}`, `{"id":2}`})
		if string(l.state) != `{"since":3}` {
			t.Errorf("state %s", l.state)
		}
	})
}

// TestH4NoConditionWithinABody serves a version, then cuts one, then serves the first again: it is not "nothing new".
func TestH4NoConditionWithinABody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		version := func(tag, text string, times int) replay.Rule {
			return replay.Rule{Text: text, Times: times, Headers: map[string]string{"ETag": tag}}
		}
		first := strings.Join(ids(1, 2), "\n")
		r := newRig(t, version(`"1"`, first, 1), version(`"2"`, strings.Join(ids(3, 9), "\n"), 1), version(`"1"`, first, 0))
		r.config.Decode.Format = decode.NDJSON
		r.config.Batch.Records = 3
		l := &ledger{after: 2}
		source := r.source(t)
		for range 4 {
			if err := l.poll(t.Context(), source, `{}`); err != nil && !errors.Is(err, errKilled) {
				t.Fatal(err)
			}
		}
		same(t, "values", l.values, append(ids(1, 5), ids(1, 2)...))
		if strings.Contains(string(l.state), "listing") {
			t.Errorf("state %s", l.state)
		}
	})
}

func TestH1PositionIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := replay.Rule{Query: query("page", "2"), Status: nethttp.StatusGone, Times: 1}
		r := newRig(t, append([]replay.Rule{gone}, pages(4, 2)...)...)
		r.config.Records = records(t, "body.items")
		r.config.Paginate = &http.Paginate{Style: http.PageNumber, Param: http.PageParam{Name: "page"}, Start: 1}
		l := &ledger{after: 1}
		_ = l.poll(t.Context(), r.source(t), `{}`)
		if err := l.poll(t.Context(), r.source(t), `{}`); err != nil {
			t.Fatal(err)
		}
		same(t, "values", l.values, append(ids(1, 2), ids(1, 4)...))
		same(t, "warnings", r.codes(), []string{http.WarnPositionRefused})
		// Within the poll that came there, it is a failure like any other.
		r = newRig(t, append([]replay.Rule{gone}, pages(4, 2)...)...)
		r.config.Records = records(t, "body.items")
		r.config.Paginate = &http.Paginate{Style: http.PageNumber, Param: http.PageParam{Name: "page"}, Start: 1}
		wantCode(t, (&ledger{}).poll(t.Context(), r.source(t), `{}`), http.CodeStatus, "status 410")
	})
}

func wantCode(t *testing.T, err error, code, text string) {
	t.Helper()
	var failed *http.PollError
	if !errors.As(err, &failed) || failed.Code() != code || !strings.Contains(err.Error(), text) {
		t.Helper()
		t.Errorf("got %v, want %s with %q", err, code, text)
	}
}

// TestH1CutBody changes a body between two polls of which the first was killed within it.
func TestH1CutBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			name  string
			after string
			want  []string
		}{
			{"the same", strings.Join(ids(1, 9), "\n"), ids(1, 9)},
			{"longer", strings.Join(ids(1, 12), "\n"), ids(1, 12)},
			{"another", strings.Join(ids(2, 9), "\n"), append(ids(1, 4), ids(2, 9)...)},
			{"shorter", strings.Join(ids(1, 2), "\n"), append(ids(1, 4), ids(1, 2)...)},
		} {
			r := newRig(t)
			r.Put("items", []byte(strings.Join(ids(1, 9), "\n")))
			r.config.Decode.Format = decode.NDJSON
			r.config.Batch.Records = 2
			l := &ledger{after: 2}
			if err := l.poll(t.Context(), r.source(t), `{}`); !errors.Is(err, errKilled) {
				t.Fatal(err)
			}
			if strings.Contains(string(l.state), `"version"`) {
				t.Errorf("the version of a body is in the state before its end is: %s", l.state)
			}
			r.Put("items", []byte(c.after))
			l.drained(t, r.source(t))
			same(t, c.name, l.values, c.want)
		}
	})
}

// TestH1CutPageMovesTheCursorAtItsEnd shows that page.first and page.last are those of the answer, however it is cut.
func TestH1CutPageMovesTheCursorAtItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, replay.Rule{JSON: json.RawMessage(`{"items":[` + strings.Join(ids(1, 7), ",") + `],"version":3}`)})
		r.config.Records = records(t, "body.items")
		r.config.Cursor = cursor(t, "first", "page.first.id", "last", "page.last.id", "n", "page.count", "v", "body.version")
		r.config.Batch.Records = 3
		r.config.Conditional = http.ConditionalOff
		l := &ledger{after: 2}
		_ = l.poll(t.Context(), r.source(t), `{}`)
		if user, _, _ := strings.Cut(l.states[1], `"$http"`); user != "{" {
			t.Errorf("within the page the state is %s", l.states[1])
		}
		if err := l.poll(t.Context(), r.source(t), `{}`); err != nil {
			t.Fatal(err)
		}
		same(t, "values", l.values, ids(1, 7))
		if want := `{"first":1,"last":7,"n":7,"v":3}`; string(l.state) != want {
			t.Errorf("state %s, want %s", l.state, want)
		}
	})
}

func TestH3Ends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := func(t *testing.T) *http.Paginate {
			return &http.Paginate{Style: http.NextCursor, Next: compiled(t, "body.next", expr.Page, expr.Any), Param: http.PageParam{Name: "c"}}
		}
		for _, c := range []struct {
			name     string
			rules    []replay.Rule
			set      func(p *http.Paginate)
			want     []string
			warnings []string
			requests int
		}{
			{"repeated cursor", []replay.Rule{
				json1(query("c", "a"), `{"items":[{"id":2}],"next":"b"}`), json1(query("c", "b"), `{"items":[{"id":3}],"next":"a"}`),
				json1(nil, `{"items":[{"id":1}],"next":"a"}`),
			}, nil, ids(1, 3), []string{http.WarnRepeatedCursor}, 3},
			{"its own cursor", []replay.Rule{
				json1(query("c", "a"), `{"items":[{"id":2}],"next":"a"}`), json1(nil, `{"items":[{"id":1}],"next":"a"}`),
			}, nil, ids(1, 2), []string{http.WarnRepeatedCursor}, 2},
			{"empty page", []replay.Rule{
				json1(query("c", "a"), `{"items":[],"next":"b"}`), json1(nil, `{"items":[{"id":1}],"next":"a"}`),
			}, nil, ids(1, 1), nil, 2},
			{"empty cursor", []replay.Rule{json1(nil, `{"items":[{"id":1}],"next":""}`)}, nil, ids(1, 1), nil, 1},
			{"false", []replay.Rule{json1(nil, `{"items":[{"id":1}],"next":false}`)}, nil, ids(1, 1), nil, 1},
			{"no cursor", []replay.Rule{json1(nil, `{"items":[{"id":1}]}`)}, nil, ids(1, 1), nil, 1},
			{"repeated page", []replay.Rule{
				json1(query("c", "a"), `{"items":[{"id":1}],"next":"b"}`), json1(nil, `{"items":[{"id":1}],"next":"a"}`),
			}, nil, ids(1, 1), []string{http.WarnRepeatedPage}, 2},
			{"max_pages", []replay.Rule{
				json1(query("c", "a"), `{"items":[{"id":2}],"next":"b"}`), json1(query("c", "b"), `{"items":[{"id":3}]}`), json1(nil, `{"items":[{"id":1}],"next":"a"}`),
			}, func(p *http.Paginate) { p.MaxPages = 2 }, ids(1, 2), []string{http.WarnMaxPages}, 2},
			{"max_pages that are enough", []replay.Rule{
				json1(query("c", "a"), `{"items":[{"id":2}]}`), json1(nil, `{"items":[{"id":1}],"next":"a"}`),
			}, func(p *http.Paginate) { p.MaxPages = 2 }, ids(1, 2), nil, 2},
			{"stop_when", []replay.Rule{
				json1(query("c", "a"), `{"items":[{"id":2}],"next":"b"}`), json1(nil, `{"items":[{"id":1}],"next":"a"}`),
			}, func(p *http.Paginate) {
				p.StopWhen = compiled(t, `page.last.id == 2 && body.next == "b"`, expr.Page, expr.Condition)
			}, ids(1, 2), nil, 2},
		} {
			r := newRig(t, c.rules...)
			r.config.Records = records(t, "body.items")
			r.config.Paginate = next(t)
			if c.set != nil {
				c.set(r.config.Paginate)
			}
			l := &ledger{}
			if err := l.poll(t.Context(), r.source(t), `{}`); err != nil {
				t.Fatal(err)
			}
			same(t, c.name, l.values, c.want)
			same(t, c.name+": warnings", r.codes(), c.warnings)
			if len(r.asked()) != c.requests || l.state != nil {
				t.Errorf("%s: requests %v, state %s", c.name, r.asked(), l.state)
			}
		}
	})
}

func TestH3MaxPagesCountsOverAKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, pages(20, 2)...)
		r.config.Records = records(t, "body.items")
		r.config.Paginate = &http.Paginate{Style: http.PageNumber, Param: http.PageParam{Name: "page"}, Start: 1, MaxPages: 3}
		l := &ledger{after: 2}
		_ = l.poll(t.Context(), r.source(t), `{}`)
		if err := l.poll(t.Context(), r.source(t), `{}`); err != nil {
			t.Fatal(err)
		}
		same(t, "values", l.values, ids(1, 6))
	})
}

func TestH3WhereACursorIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			name  string
			body  http.BodyConfig
			param http.PageParam
			want  []string
		}{
			{"a header", http.BodyConfig{}, http.PageParam{In: http.InHeader, Name: "X-Cursor"}, []string{"", `{"a":1}`}},
			{"a JSON body", http.BodyConfig{JSON: &http.BodyTree{Names: []string{"q"}, Items: []*http.BodyTree{{Literal: []byte("true")}}}},
				http.PageParam{In: http.InBody, Name: "page.after"}, []string{`{"q":true}`, `{"q":true,"page":{"after":{"a":1}}}`}},
			{"a member of a JSON body", http.BodyConfig{JSON: &http.BodyTree{Names: []string{"after", "x"}, Items: []*http.BodyTree{{Literal: []byte("null")}, {List: true}}}},
				http.PageParam{In: http.InBody, Name: "after"}, []string{`{"after":null,"x":[]}`, `{"after":{"a":1},"x":[]}`}},
			{"a form", http.BodyConfig{Form: []http.Param{{Name: "a b", Value: template(t, "{{ 1 + 1 }}&")}}},
				http.PageParam{In: http.InBody, Name: "after"}, []string{`a+b=2%26`, `a+b=2%26&after=%7B%22a%22%3A1%7D`}},
		} {
			r := newRig(t, replay.Rule{Times: 1, JSON: json.RawMessage(`{"items":[{"id":1}],"next":{"a":1}}`)}, json1(nil, `{"items":[]}`))
			r.config.Request.Method = nethttp.MethodPost
			r.config.Request.Body = c.body
			r.config.Records = records(t, "body.items")
			r.config.Paginate = &http.Paginate{Style: http.NextCursor, Next: compiled(t, "body.next", expr.Page, expr.Any), Param: c.param}
			if c.body.JSON == nil { // only a JSON body can send a map
				r.config.Paginate.Next = compiled(t, "body.next == nil ? nil : toJSON(body.next)", expr.Page, expr.Any)
			}
			if err := (&ledger{}).poll(t.Context(), r.source(t), `{}`); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, request := range r.Requests() {
				sent := string(request.Body)
				if c.param.In == http.InHeader {
					sent = request.Header.Get(c.param.Name)
				}
				got = append(got, sent)
			}
			same(t, c.name, got, c.want)
		}
	})
}

func TestNextURLStaysAtHome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := func(next string) *rig {
			r := newRig(t, replay.Rule{Path: "/items", JSON: json.RawMessage(`{"items":[{"id":1}],"next":"` + next + `"}`)}, json1(nil, `{"items":[{"id":2}]}`))
			r.config.Records = records(t, "body.items")
			r.config.Paginate = &http.Paginate{Style: http.NextURL, Next: compiled(t, "body.next", expr.Page, expr.Any)}
			r.config.Auth = &http.Auth{Bearer: template(t, "s3cret-token")}
			r.config.Request.Headers = []http.Param{{Name: "X-Api-Key", Value: template(t, "s3cret-key")}, {Name: "Accept-Language", Value: template(t, "de")}}
			return r
		}
		r := set("http://evil.test/more")
		err := (&ledger{}).poll(t.Context(), r.source(t), `{}`)
		wantCode(t, err, http.CodeNext, "another host, evil.test")
		for _, next := range []string{"ftp://x/y", "http://", "http://[::1/", "mailto:a@b"} {
			wantCode(t, (&ledger{}).poll(t.Context(), set(next).source(t), `{}`), http.CodeNext, "")
		}
		r = set("http://other.test/more")
		r.config.Paginate.OtherHosts = true
		l := &ledger{}
		if err := l.poll(t.Context(), r.source(t), `{}`); err != nil {
			t.Fatal(err)
		}
		same(t, "values", l.values, ids(1, 2))
		sent := r.Requests()[1].Header
		if sent.Get("Authorization") != "" || sent.Get("X-Api-Key") != "" || sent.Get("Accept-Language") != "de" {
			t.Errorf("the other host was sent %v", sent)
		}
	})
}

func TestLinkHeaders(t *testing.T) {
	for _, c := range []struct{ header, want string }{
		{`</2>; rel=next`, "/2"},
		{`</1>; rel="prev", </2>; rel="next"`, "/2"},
		{`</2?a=1,2;3>; title="x, rel=prev; \"y"; rel="last next"`, "/2?a=1,2;3"},
		{`</2>; REL = "NEXT"`, "/2"},
		{`</2>; rel=prev; rel=next`, ""},
		{`</2>`, ""},
		{`</2>; rel`, ""},
		{`rel=next`, ""},
		{`</2; rel=next`, ""},
		{`</1>;;rel=prev,,</3>;rel="next`, "/3"},
	} {
		w := httptest.NewRecorder()
		w.Header().Add("Link", `</0>; rel="first"`)
		w.Header().Add("Link", c.header)
		if got := http.LinkOf(w.Header(), "next"); got != c.want {
			t.Errorf("%s leads to %q, want %q", c.header, got, c.want)
		}
	}
}
