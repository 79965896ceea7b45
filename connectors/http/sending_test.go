package http_test

import (
	"encoding/json"
	"errors"
	"fmt"
	nethttp "net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flechtwerk/flechtwerk/connectors/connectortest/replay"
	"github.com/flechtwerk/flechtwerk/connectors/http"
	"github.com/flechtwerk/flechtwerk/engine/decode"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

var oneItem = replay.Rule{JSON: json.RawMessage(`[{"id":1}]`)}

func TestH2RetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		minute := replay.Duration(90 * time.Second)
		for _, c := range []struct {
			name  string
			rules []replay.Rule
			set   func(c *http.PollerConfig)
			took  time.Duration
			err   string
			asked int
		}{
			{"seconds", []replay.Rule{{Status: 429, RetryAfter: replay.Seconds(7), Times: 2}, oneItem}, nil, 14 * time.Second, "", 3},
			{"a date", []replay.Rule{{Status: 503, RetryDate: &minute, Times: 1}, oneItem}, nil, 90 * time.Second, "", 2},
			{"capped", []replay.Rule{{Status: 429, RetryAfter: replay.Seconds(86400), Times: 1}, oneItem}, nil, 5 * time.Minute, "", 2},
			{"capped by option", []replay.Rule{{Status: 429, RetryAfter: replay.Seconds(86400), Times: 1}, oneItem},
				func(c *http.PollerConfig) { c.RetryAfter.Most = time.Minute }, time.Minute, "", 2},
			{"for ever", []replay.Rule{{Status: 429, RetryAfter: replay.Seconds(1)}}, func(c *http.PollerConfig) { c.RetryAfter.Times = 3 }, 3 * time.Second, "status 429", 4},
			{"not wanted", []replay.Rule{{Status: 429, RetryAfter: replay.Seconds(1)}}, func(c *http.PollerConfig) { c.RetryAfter.Off = true }, 0, "status 429", 1},
			{"without a header", []replay.Rule{{Status: 503}}, nil, 0, "status 503", 1},
			{"another status", []replay.Rule{{Status: 500, RetryAfter: replay.Seconds(1)}}, nil, 0, "status 500", 1},
		} {
			r := newRig(t, c.rules...)
			if c.set != nil {
				c.set(&r.config)
			}
			l, began := &ledger{}, time.Now()
			err := l.poll(t.Context(), r.source(t), `{}`)
			// A date of the header has no fractions of a second.
			if took := time.Since(began); took > c.took || took < c.took-time.Second {
				t.Errorf("%s: took %s, want %s", c.name, took, c.took)
			}
			if c.err == "" {
				same(t, c.name, l.values, ids(1, 1))
			} else {
				wantCode(t, err, http.CodeStatus, c.err)
			}
			if len(r.asked()) != c.asked || len(r.waits) != c.asked-1 {
				t.Errorf("%s: %d requests and %d waits, want %d", c.name, len(r.asked()), len(r.waits), c.asked)
			}
		}
	})
}

func TestRetryOnlyWhenAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			name string
			rule replay.Rule
			code string
		}{
			{"status", replay.Rule{Status: 500}, http.CodeStatus},
			{"no answer", replay.Rule{Fault: replay.Close}, "http.connect"},
			{"a hang", replay.Rule{Fault: replay.Hang}, "http.timeout"},
			{"a cut body", replay.Rule{JSON: json.RawMessage(`[` + strings.Join(ids(1, 100), ",") + `]`), Fault: replay.Truncate}, "http.protocol"},
		} {
			c.rule.Times = 2
			whole := replay.Rule{JSON: json.RawMessage(`[` + strings.Join(ids(1, 100), ",") + `]`)}
			r := newRig(t, c.rule, whole)
			r.config.Batch.Records = 10
			l := &ledger{}
			wantCode(t, l.poll(t.Context(), r.source(t), `{}`), c.code, "")
			r.config.Retry = &http.Retry{Times: 3, Min: 2 * time.Second, Max: 30 * time.Second}
			began := time.Now()
			if err := l.poll(t.Context(), r.source(t), `{}`); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			same(t, c.name, l.values, ids(1, 100))
			if took := time.Since(began); len(r.waits) == 0 || took < time.Second {
				t.Errorf("%s: %d waits, %s", c.name, len(r.waits), took)
			}
			r = newRig(t, c.rule, whole)
			r.config.Retry = &http.Retry{Times: 1}
			wantCode(t, (&ledger{}).poll(t.Context(), r.source(t), `{}`), c.code, "")
		}
		r := newRig(t, replay.Rule{Status: 404, Times: 1}, oneItem)
		r.config.Retry = &http.Retry{Times: 3}
		wantCode(t, (&ledger{}).poll(t.Context(), r.source(t), `{}`), http.CodeStatus, "GET http://replay.test/items: status 404, expected 200 to 299; look at the url")
	})
}

func TestExpect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			name  string
			rule  replay.Rule
			items string // of records
			want  []string
			code  string
		}{
			{"refused", replay.Rule{Status: 404}, "", nil, http.CodeStatus},
			{"no body", replay.Rule{Status: 410}, "", nil, ""},
			{"no JSON", replay.Rule{Status: 410, Text: "gone"}, "", nil, ""},
			{"records", replay.Rule{Status: 410, JSON: json.RawMessage(`{"error":{"id":1}}`)}, "status == 410 ? [body.error] : body.items", ids(1, 1), ""},
			{"no content", replay.Rule{Status: 204}, "", nil, ""},
			{"the rest as ever", replay.Rule{JSON: json.RawMessage(`{"id":1}`)}, "", ids(1, 1), ""},
		} {
			r := newRig(t, c.rule)
			r.config.Expect = []http.StatusRange{{From: 200, To: 204}, {From: 410, To: 410}}
			if c.items != "" {
				r.config.Records = records(t, c.items)
			}
			l := &ledger{}
			err := l.poll(t.Context(), r.source(t), `{}`)
			if c.code != "" {
				wantCode(t, err, c.code, "")
			} else if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			same(t, c.name, l.values, c.want)
		}
	})
}

func TestH4ConditionsAreOfTheirRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conditions := func(r *rig) []string {
			var all []string
			for _, request := range r.Requests() {
				all = append(all, fmt.Sprintf("%v", request.Header.Get("If-None-Match") != "" || request.Header.Get("If-Modified-Since") != ""))
			}
			return all
		}
		r := newRig(t)
		r.Put("items", []byte(`[{"id":1}]`))
		r.config.Request.Query = []http.Param{{Name: "day", Value: template(t, "{{ config.day }}")}}
		l, source := &ledger{}, r.source(t)
		for _, day := range []string{"1", "1", "2", "1"} {
			if err := l.poll(t.Context(), source, `{"day":`+day+`}`); err != nil {
				t.Fatal(err)
			}
		}
		same(t, "conditional", conditions(r), []string{"false", "true", "false", "false"})

		// A last-modified date will do.
		r = newRig(t, replay.Rule{Path: "/items", File: "a", Headers: map[string]string{"ETag": ""}})
		r.Put("a", []byte(`[{"id":1}]`))
		l, source = &ledger{}, r.source(t)
		for range 2 {
			if err := l.poll(t.Context(), source, `{}`); err != nil {
				t.Fatal(err)
			}
		}
		same(t, "values", l.values, ids(1, 1))

		for what, set := range map[string]func(c *http.PollerConfig){
			"off":  func(c *http.PollerConfig) { c.Conditional = http.ConditionalOff },
			"POST": func(c *http.PollerConfig) { c.Request.Method = nethttp.MethodPost },
		} {
			r = newRig(t)
			r.Put("items", []byte(`[{"id":1}]`))
			set(&r.config)
			l, source = &ledger{}, r.source(t)
			for range 2 {
				if err := l.poll(t.Context(), source, `{}`); err != nil {
					t.Fatal(err)
				}
			}
			same(t, what, conditions(r), []string{"false", "false"})
			same(t, what, l.values, append(ids(1, 1), ids(1, 1)...))
		}
	})
}

func TestH4StateIsGoneWithItsVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, replay.Rule{Times: 1, JSON: json.RawMessage(`[{"id":1}]`)}, replay.Rule{Headers: map[string]string{"ETag": ""}, JSON: json.RawMessage(`[]`)})
		l := &ledger{}
		for range 2 {
			if err := l.poll(t.Context(), r.source(t), `{}`); err != nil {
				t.Fatal(err)
			}
		}
		if l.state != nil || len(l.commits) != 2 {
			t.Errorf("state %s after commits %v", l.state, l.commits)
		}
	})
}

func TestH5Limits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := strings.Repeat(" ", 5000)
		for _, c := range []struct {
			name   string
			rule   replay.Rule
			set    func(c *http.PollerConfig)
			code   string
			option string
		}{
			{"size", replay.Rule{JSON: json.RawMessage(`[` + long + `]`)}, func(c *http.PollerConfig) { c.Request.MaxBytes = 1000 }, "http.too_large", "max_bytes"},
			{"decompressed size", replay.Rule{JSON: json.RawMessage(`[` + long + `]`), Encoding: "gzip"}, func(c *http.PollerConfig) { c.Request.MaxDecompressed = 1000 }, "http.too_large", "max_decompressed"},
			{"item", replay.Rule{JSON: json.RawMessage(`["` + long + `"]`)}, func(c *http.PollerConfig) { c.Decode.Limits.Item = 1000 }, decode.CodeTooLarge, "limit of an item"},
			{"redirects", replay.Rule{Fault: replay.Loop}, nil, "http.redirects", "max_redirects"},
			{"time", replay.Rule{Fault: replay.Stall, JSON: json.RawMessage(`[` + long + `]`)}, func(c *http.PollerConfig) { c.Request.Timeout = 3 * time.Second }, "http.timeout", "timeout"},
			{"nonsense", replay.Rule{Fault: replay.Garbage}, nil, "http.protocol", ""},
			{"no JSON", replay.Rule{Text: "<html>"}, nil, decode.CodeSyntax, "http://replay.test/items: the body: "},
			{"half of it", replay.Rule{Text: `[{"id":1},`}, nil, decode.CodeSyntax, "byte 10"},
			{"no list", replay.Rule{JSON: json.RawMessage(`{"items":{}}`)}, func(c *http.PollerConfig) { c.Records = records(t, "body.items") }, decode.CodeList, ""},
			{"no list to an expression", replay.Rule{JSON: json.RawMessage(`{"items":7}`)}, func(c *http.PollerConfig) { c.Records = records(t, "body.items ?? []") }, http.CodeRecords, "no list"},
			{"a failing expression", oneItem, func(c *http.PollerConfig) { c.Message = message(t, "value", "1 / (item.id - 1)") }, "expr.not_finite", "1 / (item.id - 1)"},
			{"no topic", oneItem, func(c *http.PollerConfig) { c.Message = message(t, "topic", "t{{ item.id }}", "value", "item") }, http.CodeTopic, "output_topics"},
			{"a large record", oneItem, func(c *http.PollerConfig) {
				c.Outputs = []*stream.Topic{{Name: "out", Key: stream.String, MaxMessage: 5}}
			}, http.CodeRecordBig, "max.message.bytes"},
		} {
			r := newRig(t, c.rule)
			if c.set != nil {
				c.set(&r.config)
			}
			l := &ledger{}
			wantCode(t, l.poll(t.Context(), r.source(t), `{}`), c.code, c.option)
			if len(l.commits) != 0 {
				t.Errorf("%s: commits %v", c.name, l.commits)
			}
		}
	})
}

func TestH7BreakerIsSharedByConfigs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, replay.Rule{Status: 500})
		client, err := http.New(http.Config{Dial: r.Dial, Proxy: "direct", Breaker: http.Breaker{Failures: 2}})
		if err != nil {
			t.Fatal(err)
		}
		r.config.Client = client
		source := r.source(t)
		for _, code := range []string{http.CodeStatus, http.CodeStatus, "http.breaker_open"} {
			l := &ledger{} // each is another config to the source
			wantCode(t, l.poll(t.Context(), source, `{}`), code, "")
		}
		if n := len(r.asked()); n != 2 {
			t.Errorf("%d requests went out", n)
		}
	})
}

func TestCancelWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stopped := errors.New("stopped")
		for name, rule := range map[string]replay.Rule{
			"the answer":  {Fault: replay.Hang},
			"the body":    {Fault: replay.Stall, JSON: json.RawMessage(`[` + strings.Join(ids(1, 1000), ",") + `]`)},
			"Retry-After": {Status: 429, RetryAfter: replay.Seconds(60)},
			"a retry":     {Status: 500},
		} {
			r := newRig(t, rule)
			r.config.Retry = &http.Retry{Times: 1, Min: time.Minute}
			ctx, cancel := contextWithCause(t, 5*time.Second, stopped)
			l, began := &ledger{}, time.Now()
			err := l.poll(ctx, r.source(t), `{}`)
			cancel()
			if !errors.Is(err, stopped) || time.Since(began) != 5*time.Second || len(r.asked()) != 1 {
				t.Errorf("%s: %v after %s and %d requests", name, err, time.Since(began), len(r.asked()))
			}
		}
	})
}

// asCode is the code of a client's error.
func asCode(err error) string {
	var failed *http.Error
	if !errors.As(err, &failed) {
		return ""
	}
	return failed.Code
}
