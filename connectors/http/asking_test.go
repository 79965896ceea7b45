package http_test

import (
	"fmt"
	nethttp "net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/flechtwerk/flechtwerk/connectors/connectortest/replay"
	"github.com/flechtwerk/flechtwerk/connectors/http"
	"github.com/flechtwerk/flechtwerk/engine/decode"
	"github.com/flechtwerk/flechtwerk/engine/expr"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

func TestHolesAreEscapedForTheirPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const nasty = `{"x":"a/b?c=d&e f#g%é","host":"api","url":"http://replay.test/v2","dots":"..","evil":"a.test/@b"}`
		const path, member = "a%2Fb%3Fc=d&e%20f%23g%25%C3%A9", "a%2Fb%3Fc%3Dd%26e+f%23g%25%C3%A9"
		for _, c := range []struct{ url, want, err string }{
			{"http://replay.test/{{ config.x }}/z", "/" + path + "/z", ""},
			{"http://replay.test/z{{ config.x }}?q={{ config.x }}&{{ config.x }}=1", "/z" + path + "?q=" + member + "&" + member + "=1", ""},
			{"http://{{ config.host }}.test:80/z", "/z", ""},
			{"http://{{ config.evil }}/z", "", "is a host or a port"},
			{"{{ config.url }}/{{ config.x }}", "/v2/" + path, ""},
			{"http://replay.test/{{ config.dots }}/z", "", "another path"},
			{"http://replay.test/v{{ config.dots }}", "", "another path"},
			{"http://replay.test/{{ config.missing }}", "", "nil in a template"},
			{"http://replay.test/{{ config.missing ?? 7 }}", "/7", ""},
		} {
			r := newRig(t, oneItem)
			r.config.Request.URL = template(t, c.url)
			err := (&ledger{}).poll(t.Context(), r.source(t), nasty)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) || len(r.asked()) != 0 {
					t.Errorf("%s: %v, want %q", c.url, err, c.err)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s: %v", c.url, err)
				continue
			}
			same(t, c.url, r.asked(), []string{c.want})
		}
	})
}

func TestBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			name, kind, want string
			body             http.BodyConfig
			headers          []http.Param
		}{
			{name: "json", kind: "application/json", want: `{"n":7,"text":"n is 7 \"x\"","deep":[null,{"on":true}],"none":null}`, body: http.BodyConfig{JSON: &http.BodyTree{
				Names: []string{"n", "text", "deep", "none"},
				Items: []*http.BodyTree{
					{Value: template(t, "{{ config.n }}")}, {Value: template(t, "n is {{ config.n }} {{ config.quoted }}")},
					{List: true, Items: []*http.BodyTree{{Literal: []byte("null")}, {Names: []string{"on"}, Items: []*http.BodyTree{{Literal: []byte("true")}}}}},
					{Value: template(t, "{{ config.missing }}")},
				}}}},
			{name: "form", kind: "application/x-www-form-urlencoded", want: "a+b=%22x%22&n=7", body: http.BodyConfig{
				Form: []http.Param{{Name: "a b", Value: template(t, "{{ config.quoted }}")}, {Name: "n", Value: template(t, "{{ config.n }}")}}}},
			{name: "text", kind: "text/plain; charset=utf-8", want: `select "x" 7`, body: http.BodyConfig{Text: template(t, "select {{ config.quoted }} {{ config.n }}")}},
			{name: "another type", kind: "application/graphql", want: `{ n }`, body: http.BodyConfig{Text: template(t, "{ n }")}, headers: []http.Param{{Name: "content-type", Value: template(t, "application/graphql")}}},
		} {
			r := newRig(t, oneItem)
			r.config.Request.Method, r.config.Request.Body, r.config.Request.Headers = nethttp.MethodPost, c.body, c.headers
			if err := (&ledger{}).poll(t.Context(), r.source(t), `{"n":7,"quoted":"\"x\""}`); err != nil {
				t.Fatal(err)
			}
			got := r.Requests()[0]
			if string(got.Body) != c.want || got.Header.Get("Content-Type") != c.kind {
				t.Errorf("%s: got %s %s", c.name, got.Header.Get("Content-Type"), got.Body)
			}
		}
	})
}

func TestRecordsAndBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			name, body string
			set        func(c *http.PollerConfig)
			want       []string
			state      string
		}{
			{"a document", `{"id":1}`, nil, ids(1, 1), ""},
			{"a list", " \n [{\"id\":1},{\"id\":2}]", nil, ids(1, 2), ""},
			{"a list behind a byte order mark", "\uFEFF[{\"id\":1}]", nil, ids(1, 1), ""},
			{"a number", `5`, nil, []string{"5"}, ""},
			{"a path", `{"a":{"b":[{"id":1}]}}`, func(c *http.PollerConfig) { c.Records = records(t, "body.a.b") }, ids(1, 1), ""},
			{"no such path", `{"a":{}}`, func(c *http.PollerConfig) { c.Records = records(t, "body.a.b") }, nil, ""},
			{"an expression", `{"a":{"id":1},"b":[{"id":0},{"id":2}]}`, func(c *http.PollerConfig) { c.Records = records(t, "[body.a, body.b[1]]") }, ids(1, 2), ""},
			{"around the list", `{"v":3,"items":[{"id":1}],"w":4}`, func(c *http.PollerConfig) {
				c.Records, c.Cursor = records(t, "body.items"), cursor(t, "v", "body.v + body.w")
			}, ids(1, 1), `{"v":7}`},
			{"the list itself", `{"items":[{"id":1},{"id":2}]}`, func(c *http.PollerConfig) {
				c.Records, c.Cursor = records(t, "body.items"), cursor(t, "n", "len(body.items)")
			}, ids(1, 2), `{"n":2}`},
			{"body beside an item", `{"v":3,"items":[{"id":1}]}`, func(c *http.PollerConfig) {
				c.Records, c.Message = records(t, "body.items"), message(t, "value", "{id: item.id, v: body.v}")
			}, []string{`{"id":1,"v":3}`}, ""},
			{"status and headers", `[1]`, func(c *http.PollerConfig) {
				c.Message = message(t, "value", `[status, headers["content-TYPE"], headers.etag == nil]`, "headers", "headers")
			}, []string{`[200,"text/plain; charset=utf-8",false]`}, ""},
			{"nothing moves a cursor that looks at items", `[]`, func(c *http.PollerConfig) {
				c.Initial, c.Cursor = []byte(`{"a":1}`), cursor(t, "a", "page.last.id", "b", "page.count")
			}, nil, `{"a":1,"b":0}`},
			{"nil keeps what was", `{"items":[{"id":1}]}`, func(c *http.PollerConfig) {
				c.Records, c.Initial, c.Cursor = records(t, "body.items"), []byte(`{"a":1}`), cursor(t, "a", "body.next", "b", "page.last.id", "c", "nil")
			}, ids(1, 1), `{"a":1,"b":1}`},
			{"what has not moved is no state", `[]`, func(c *http.PollerConfig) {
				c.Initial, c.Cursor = []byte(`{ "a": 1 }`), cursor(t, "a", "page.last.id")
			}, nil, ""},
		} {
			r := newRig(t, replay.Rule{Text: c.body})
			r.config.Conditional = http.ConditionalOff
			if c.set != nil {
				c.set(&r.config)
			}
			l := &ledger{}
			if err := l.poll(t.Context(), r.source(t), `{}`); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			same(t, c.name, l.values, c.want)
			if string(l.state) != c.state {
				t.Errorf("%s: state %s, want %s", c.name, l.state, c.state)
			}
		}
	})
}

func TestRelaySeesTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, replay.Rule{Text: `{"items":[{"id":1},{"id":2}]}`, Headers: map[string]string{"X-A": "b"}})
		var seen []*stream.Relaying
		r.config.Message, r.config.Records, r.config.KeepBody = nil, records(t, "body.items"), true
		r.config.Request.Query = []http.Param{{Name: "token", Value: template(t, "s3cret")}}
		r.config.NewRelay = func() (stream.Relay, error) {
			return &idRelay{topic: r.config.Outputs[0], seen: func(in *stream.Relaying) { seen = append(seen, in) }}, nil
		}
		l := &ledger{state: []byte(`{"since":0}`)}
		if err := l.poll(t.Context(), r.source(t), `{}`); err != nil {
			t.Fatal(err)
		}
		if len(seen) != 1 {
			t.Fatalf("%d runs", len(seen))
		}
		in := seen[0]
		if string(in.Cursor) != `{"since":0}` || in.Config.Key != "de" || in.Response.Status != 200 || string(in.Response.Body) != `{"items":[{"id":1},{"id":2}]}` ||
			in.Response.URL != "http://replay.test/items?token=***" || !strings.Contains(fmt.Sprintf("%s", in.Response.Headers), "{X-A b}") {
			t.Errorf("the relay saw %+v of %+v", in, in.Response)
		}
		if !strings.HasPrefix(string(l.state), `{"since":2,"$http":`) {
			t.Errorf("state %s", l.state)
		}
	})
}

func TestReservedMemberIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, oneItem)
		r.config.Cursor = cursor(t, "$http", "1")
		wantCode(t, (&ledger{}).poll(t.Context(), r.source(t), `{}`), http.CodeState, "$http")
		r.config.Cursor = nil
		for _, state := range []string{`{"$http":7}`, `[]`, `{`} {
			l := &ledger{state: []byte(state)}
			wantCode(t, l.poll(t.Context(), r.source(t), `{}`), http.CodeState, "")
		}
	})
}

func TestNewPollerRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := compiled(t, "body.next", expr.Page, expr.Any)
		page := http.PageParam{Name: "page"}
		for want, set := range map[string]func(c *http.PollerConfig){
			"no client":             func(c *http.PollerConfig) { c.Client = nil },
			"no url":                func(c *http.PollerConfig) { c.Request.URL = nil },
			"this method":           func(c *http.PollerConfig) { c.Request.Method = "GE T" },
			"one of message and":    func(c *http.PollerConfig) { c.NewRelay = newIDRelay(c) },
			"is one of message":     func(c *http.PollerConfig) { c.Message = nil },
			"only a relay":          func(c *http.PollerConfig) { c.KeepBody = true },
			"no topic to write":     func(c *http.PollerConfig) { c.Outputs = nil },
			"several output_topics": func(c *http.PollerConfig) { c.Outputs = append(c.Outputs, &stream.Topic{Name: "b"}) },
			"none of the stage":     func(c *http.PollerConfig) { c.Message = message(t, "topic", "b", "value", "item") },
			"json, form and text": func(c *http.PollerConfig) {
				c.Request.Body = http.BodyConfig{Text: c.Request.URL, Form: []http.Param{}}
			},
			"no statuses 300 to 200": func(c *http.PollerConfig) { c.Expect = []http.StatusRange{{From: 300, To: 200}} },
			"may do twice": func(c *http.PollerConfig) {
				c.Request.Method, c.Retry = "POST", &http.Retry{Times: 1}
			},
			"how often":              func(c *http.PollerConfig) { c.Retry = &http.Retry{} },
			"asked conditionally":    func(c *http.PollerConfig) { c.Request.Method, c.Conditional = "POST", http.ConditionalOn },
			"auth is one of":         func(c *http.PollerConfig) { c.Auth = &http.Auth{} },
			"id of a client":         func(c *http.PollerConfig) { c.Auth = &http.Auth{OAuth2: &http.OAuth2{}} },
			"paginate says nothing":  func(c *http.PollerConfig) { c.Paginate = &http.Paginate{} },
			"what leads to the next": func(c *http.PollerConfig) { c.Paginate = &http.Paginate{Style: http.NextURL} },
			"the cursor has no name": func(c *http.PollerConfig) { c.Paginate = &http.Paginate{Style: http.NextCursor, Next: next} },
			"expression for the next": func(c *http.PollerConfig) {
				c.Paginate = &http.Paginate{Style: http.PageNumber, Param: page, Next: next}
			},
			"no body that is JSON or a form": func(c *http.PollerConfig) {
				c.Paginate = &http.Paginate{Style: http.PageNumber, Param: http.PageParam{In: http.InBody, Name: "p"}}
			},
			"a start has no effect":   func(c *http.PollerConfig) { c.Paginate = &http.Paginate{Style: http.NextLink, Start: 1} },
			"is said, and not sent":   func(c *http.PollerConfig) { c.Paginate = &http.Paginate{Style: http.NextLink, Size: 1} },
			"is sent, and not said":   func(c *http.PollerConfig) { c.Paginate = &http.Paginate{Style: http.NextLink, SizeParam: page} },
			"without the header Link": func(c *http.PollerConfig) { c.Paginate = &http.Paginate{Style: http.PageNumber, Param: page, Rel: "x"} },
			"without a next URL": func(c *http.PollerConfig) {
				c.Paginate = &http.Paginate{Style: http.PageNumber, Param: page, OtherHosts: true}
			},
			"records has no effect": func(c *http.PollerConfig) {
				c.Decode.Format, c.Records = decode.NDJSON, records(t, "body.a")
			},
			"body is nil": func(c *http.PollerConfig) {
				c.Decode.Format, c.Cursor = decode.CSV, cursor(t, "a", "body.a")
			},
			"tail: a file has no pages": func(c *http.PollerConfig) { c.Tail, c.Paginate = &http.Tail{}, &http.Paginate{Style: http.NextLink} },
			"no records that stand for": func(c *http.PollerConfig) { c.Tail = &http.Tail{} },
			"say them with `columns`":   func(c *http.PollerConfig) { c.Tail, c.Decode.Format = &http.Tail{}, decode.CSV },
			"the separator is said twice": func(c *http.PollerConfig) {
				c.Tail, c.Decode = &http.Tail{Separator: []byte("a")}, decode.Config{Format: decode.Lines, Separator: "b"}
			},
		} {
			r := newRig(t)
			set(&r.config)
			if _, err := http.NewPoller(r.config); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		}
	})
}
