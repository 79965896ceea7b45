package http_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/flechtwerk/flechtwerk/connectors/connectortest/replay"
	"github.com/flechtwerk/flechtwerk/connectors/http"
	"github.com/flechtwerk/flechtwerk/engine/decode"
)

func newTail(t *testing.T, rules ...replay.Rule) *rig {
	t.Helper()
	r := newRig(t, rules...)
	r.config.Decode.Format = decode.Lines
	r.config.Tail = &http.Tail{}
	return r
}

func quotedLines(from, to int) []string {
	var all []string
	for n := from; n <= to; n++ {
		all = append(all, fmt.Sprintf(`"line %d"`, n))
	}
	return all
}

func lines(from, to int) []byte {
	var b strings.Builder
	for n := from; n <= to; n++ {
		fmt.Fprintf(&b, "line %d\n", n)
	}
	return []byte(b.String())
}

// TestTailGrows reads a file that grows by a few bytes, with servers that know ranges and versions, or do not.
func TestTailGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, rule := range map[string]replay.Rule{
			"ranges":            {},
			"ranges, no ETag":   {Headers: map[string]string{"ETag": "", "Last-Modified": ""}},
			"no ranges":         {Range: "ignore"},
			"no ranges, no tag": {Range: "ignore", Headers: map[string]string{"ETag": ""}},
		} {
			r := newTail(t, rule)
			r.Put("items", nil)
			r.config.Tail.MaxBytes = 40
			whole := lines(1, 60)
			l, source := &ledger{}, r.source(t)
			for at := 0; at <= len(whole); at += 7 {
				if err := l.poll(t.Context(), source, `{}`); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if want := strings.Count(string(whole[:at]), "\n"); len(l.values) != want {
					t.Fatalf("%s: %d lines of %d", name, len(l.values), want)
				}
				r.Append("items", whole[at:min(at+7, len(whole))])
			}
			l.drained(t, source)
			same(t, name, l.values, quotedLines(1, 60))
			n := len(l.commits)
			if err := l.poll(t.Context(), source, `{}`); err != nil || len(l.commits) != n {
				t.Errorf("%s: %v, %d more commits for nothing new", name, err, len(l.commits)-n)
			}
		}
	})
}

func TestTailAsksForTheNewOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTail(t)
		r.Put("items", lines(1, 100))
		l, source := &ledger{}, r.source(t)
		for range 2 {
			if err := l.poll(t.Context(), source, `{}`); err != nil {
				t.Fatal(err)
			}
		}
		r.Append("items", lines(101, 102))
		if err := l.poll(t.Context(), source, `{}`); err != nil {
			t.Fatal(err)
		}
		var ranges []string
		for _, request := range r.Requests() {
			ranges = append(ranges, fmt.Sprintf("%s %v", request.Header.Get("Range"), request.Header.Get("If-None-Match") != ""))
		}
		at := len(lines(1, 100))
		again := fmt.Sprintf("bytes=%d-%d true", at-64, at+16<<20-1)
		same(t, "ranges", ranges, []string{"bytes=0-16777215 false", again, again})
	})
}

func TestTailOtherFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, content := range map[string][]byte{
			"shorter":        lines(201, 203),
			"empty":          nil,
			"of same length": []byte(strings.ReplaceAll(string(lines(1, 30)), "line", "LINE")),
			"longer":         lines(201, 300),
		} {
			for _, rule := range []replay.Rule{{}, {Range: "ignore"}} {
				r := newTail(t, rule)
				r.Put("items", lines(1, 30))
				l := &ledger{}
				if err := l.poll(t.Context(), r.source(t), `{}`); err != nil {
					t.Fatal(err)
				}
				before := string(l.state)
				r.Put("items", content)
				wantCode(t, l.poll(t.Context(), r.source(t), `{}`), http.CodeTruncated, "truncated: restart")
				if string(l.state) != before {
					t.Errorf("%s: the state has changed to %s", name, l.state)
				}
				r.config.Tail.Truncated = http.TruncatedRestart
				l.drained(t, r.source(t))
				same(t, name, l.values, append(quotedLines(1, 30), toLines(content)...))
				if codes := r.codes(); len(codes) == 0 || codes[0] != http.WarnTruncated {
					t.Errorf("%s: warnings %v", name, codes)
				}
			}
		}
	})
}

func toLines(content []byte) []string {
	var all []string
	for line := range strings.Lines(string(content)) {
		all = append(all, `"`+strings.TrimSuffix(line, "\n")+`"`)
	}
	return all
}

func TestTailFromTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, rule := range map[string]replay.Rule{"ranges": {}, "no ranges": {Range: "ignore"}} {
			for _, tail := range []string{"", "half a "} {
				for _, n := range []int{0, 3, 20_000} {
					r := newTail(t, rule)
					r.config.Tail.From = http.FromEnd
					r.Put("items", append(lines(1, n), tail...))
					l, source := &ledger{}, r.source(t)
					l.drained(t, source)
					same(t, name, l.values, nil)
					if n == 0 && tail == "" && l.state == nil {
						t.Errorf("%s: where an empty file began is not known", name)
					}
					r.Append("items", []byte("line\nnext\n"))
					l.drained(t, source)
					same(t, fmt.Sprintf("%s, %d lines and %q", name, n, tail), l.values, []string{`"` + tail + `line"`, `"next"`})
				}
			}
		}
	})
}

func TestTailFormats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			name, content string
			set           func(c *http.PollerConfig)
			want          []string
			code          string
		}{
			{"ndjson", "{\"a\":1}\r\n\n [2] \n", func(c *http.PollerConfig) { c.Decode.Format = decode.NDJSON }, []string{`{"a":1}`, `[2]`}, ""},
			{"broken ndjson", "{\"a\":1}\n{\n", func(c *http.PollerConfig) { c.Decode.Format = decode.NDJSON }, nil, decode.CodeSyntax},
			{"csv", "1,\"x,y\"\n2,z\n", func(c *http.PollerConfig) {
				c.Decode.Format, c.Decode.Table.Columns = decode.CSV, []string{"a", "b"}
			}, []string{`{"a":"1","b":"x,y"}`, `{"a":"2","b":"z"}`}, ""},
			{"separator", "a\nb--c----", func(c *http.PollerConfig) { c.Tail.Separator = []byte("--") }, []string{`"a\nb"`, `"c"`, `""`}, ""},
			{"no UTF-8", "a\xffb\n", nil, nil, decode.CodeUTF8},
			{"no UTF-8 replaced", "a\xffb\n", func(c *http.PollerConfig) { c.Decode.Invalid = decode.InvalidReplace }, []string{"\"a\uFFFDb\""}, ""},
			{"a record that is too long", strings.Repeat("x", 100) + "\n", func(c *http.PollerConfig) { c.Tail.MaxBytes = 50 }, nil, decode.CodeTooLarge},
			{"a cursor", "a\nb\n", func(c *http.PollerConfig) { c.Cursor = cursor(t, "last", "page.last", "n", "page.count") }, []string{`"a"`, `"b"`}, ""},
		} {
			for _, rule := range []replay.Rule{{}, {Range: "ignore"}} {
				r := newTail(t, rule)
				r.Put("items", []byte(c.content))
				if c.set != nil {
					c.set(&r.config)
				}
				l := &ledger{}
				err := l.poll(t.Context(), r.source(t), `{}`)
				if c.code != "" {
					wantCode(t, err, c.code, "byte ")
				} else if err != nil {
					t.Errorf("%s: %v", c.name, err)
				}
				same(t, c.name, l.values, c.want)
				if c.name == "a cursor" && !strings.HasPrefix(string(l.state), `{"last":"b","n":2,"$http":`) {
					t.Errorf("state %s", l.state)
				}
			}
		}
	})
}

func TestTailIsLiedTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, header := range []string{"", "bytes 5-9/10", "bytes x-9/10", "lines 0-9/10"} {
			r := newTail(t, replay.Rule{Status: 206, Text: "line 1\n", Headers: map[string]string{"Content-Range": header}})
			wantCode(t, (&ledger{}).poll(t.Context(), r.source(t), `{}`), http.CodeRange, "begins at byte 0")
		}
	})
}
