package http_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/flechtwerk/flechtwerk/connectors/connectortest"
	"github.com/flechtwerk/flechtwerk/connectors/connectortest/replay"
	"github.com/flechtwerk/flechtwerk/connectors/http"
	"github.com/flechtwerk/flechtwerk/engine/decode"
	"github.com/flechtwerk/flechtwerk/engine/expr"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// TestSource runs the suite of all sources over what a poller reads in different ways. Each keeps a cursor, so that a poll
// after the last one finds nothing.
func TestSource(t *testing.T) {
	page := func(query map[string]string, format string, args ...any) replay.Rule {
		return replay.Rule{Query: query, JSON: json.RawMessage(fmt.Sprintf(format, args...))}
	}
	nothing := replay.Rule{JSON: json.RawMessage(`{"items":[]}`)}
	list := func(from, to int) string { return "[" + strings.Join(ids(from, to), ",") + "]" }
	since := func(t *testing.T, r *rig) {
		r.config.Records = records(t, "body.items")
		r.config.Request.Query = []http.Param{{Name: "since", Value: template(t, "{{ state.since ?? 0 }}")}}
		r.config.Cursor = cursor(t, "since", "page.last.id")
	}
	cases := []struct {
		name string
		want []string
		set  func(t *testing.T) *rig
	}{
		{"page numbers", ids(1, 9), func(t *testing.T) *rig {
			rules := pages(9, 2)
			for i := range rules {
				rules[i].Query["since"] = "0"
			}
			r := newRig(t, append(rules, nothing)...)
			since(t, r)
			r.config.Paginate = &http.Paginate{Style: http.PageNumber, Param: http.PageParam{Name: "page"}, Start: 1}
			return r
		}},
		{"offsets", ids(1, 9), func(t *testing.T) *rig {
			var rules []replay.Rule
			for at := 0; at <= 9; at += 2 {
				rules = append(rules, page(map[string]string{"since": "0", "offset": strconv.Itoa(at)}, `{"items":%s}`, list(at+1, min(at+2, 9))))
			}
			r := newRig(t, append(rules, nothing)...)
			since(t, r)
			r.config.Paginate = &http.Paginate{Style: http.Offset, Param: http.PageParam{Name: "offset"}}
			return r
		}},
		{"next URL", ids(1, 6), func(t *testing.T) *rig {
			r := newRig(t,
				page(map[string]string{"since": "0"}, `{"items":%s,"next":"/more?p=2"}`, list(1, 2)),
				page(map[string]string{"p": "2"}, `{"items":%s,"next":"?p=3"}`, list(3, 4)),
				page(map[string]string{"p": "3"}, `{"items":%s,"next":null}`, list(5, 6)), nothing)
			since(t, r)
			r.config.Paginate = &http.Paginate{Style: http.NextURL, Next: compiled(t, "body.next", expr.Page, expr.Any)}
			return r
		}},
		{"links", ids(1, 6), func(t *testing.T) *rig {
			first := page(map[string]string{"since": "0"}, `{"items":%s}`, list(1, 2))
			first.Headers = map[string]string{"Link": `</items?p=a,b>; rel="next"; title="a, b", </items>; rel=first`}
			second := page(map[string]string{"p": "a,b"}, `{"items":%s}`, list(3, 6))
			r := newRig(t, first, second, nothing)
			since(t, r)
			r.config.Paginate = &http.Paginate{Style: http.NextLink}
			return r
		}},
		{"cursors", ids(1, 6), func(t *testing.T) *rig {
			r := newRig(t,
				page(map[string]string{"after": "x/1"}, `{"items":%s,"next":7}`, list(3, 4)),
				page(map[string]string{"after": "7"}, `{"items":%s}`, list(5, 6)),
				page(map[string]string{"since": "0"}, `{"items":%s,"next":"x/1"}`, list(1, 2)), nothing)
			since(t, r)
			r.config.Paginate = &http.Paginate{Style: http.NextCursor, Next: compiled(t, "body.next", expr.Page, expr.Any), Param: http.PageParam{Name: "after"}}
			return r
		}},
		{"newest first", []string{`{"id":9}`, `{"id":8}`, `{"id":7}`, `{"id":6}`, `{"id":5}`}, func(t *testing.T) *rig {
			r := newRig(t,
				page(map[string]string{"page": "1"}, `{"items":[{"id":9},{"id":8}]}`), page(map[string]string{"page": "2"}, `{"items":[{"id":7},{"id":6}]}`),
				page(map[string]string{"page": "3"}, `{"items":[{"id":5},{"id":4}]}`))
			r.config.Records = records(t, "body.items")
			r.config.Initial = []byte(`{"last":4}`)
			r.config.Cursor = cursor(t, "last", "page.first.id")
			r.config.Paginate = &http.Paginate{Style: http.PageNumber, Param: http.PageParam{Name: "page"}, Start: 1,
				Until: compiled(t, "item.id <= state.last", expr.Item, expr.Condition)}
			return r
		}},
		{"one large body", ids(1, 100), func(t *testing.T) *rig {
			r := newRig(t, replay.Rule{Path: "/items", Query: map[string]string{"since": "0"}, Text: strings.Join(ids(1, 100), "\n")},
				replay.Rule{Path: "/items", Text: "\n"})
			since(t, r)
			r.config.Records = nil
			r.config.Decode.Format = decode.NDJSON
			r.config.Batch.Records = 30
			return r
		}},
		{"a large body by condition", ids(1, 100), func(t *testing.T) *rig {
			r := newRig(t)
			r.Put("items", []byte("["+strings.Join(ids(1, 100), ", ")+"]"))
			r.config.Batch.Records = 30
			return r
		}},
		{"tail", ids(1, 50), func(t *testing.T) *rig {
			r := newRig(t)
			r.Put("items", []byte(strings.Join(ids(1, 50), "\r\n")+"\r\n{\"id\":"))
			r.config.Decode.Format = decode.NDJSON
			r.config.Tail = &http.Tail{MaxBytes: 100}
			r.config.Batch.Records = 3
			return r
		}},
		{"a relay with State", ids(1, 9), func(t *testing.T) *rig {
			rules := pages(9, 4)
			for i := range rules {
				rules[i].Query["since"] = "0"
			}
			r := newRig(t, append(rules, nothing)...)
			since(t, r)
			r.config.Cursor, r.config.Message, r.config.NewRelay = nil, nil, newIDRelay(&r.config)
			r.config.Paginate = &http.Paginate{Style: http.PageNumber, Param: http.PageParam{Name: "page"}, Start: 1}
			r.config.Batch.Records = 3
			return r
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			connectortest.TestSource(t, func(t *testing.T) connectortest.Subject {
				r := c.set(t)
				return connectortest.Subject{
					New:    func() (stream.Source, error) { return http.NewPoller(r.config) },
					Config: stream.Config{Key: "de", Value: []byte(`{}`)}, Want: c.want,
				}
			})
		})
	}
}
