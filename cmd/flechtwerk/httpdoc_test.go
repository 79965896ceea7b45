package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/flechtwerk/flechtwerk/connectors/connectortest"
	"github.com/flechtwerk/flechtwerk/connectors/connectortest/replay"
)

// rule answers a request with JSON.
func rule(path, answer string, query ...string) replay.Rule {
	r := replay.Rule{Path: path, JSON: json.RawMessage(answer)}
	for i := 0; i < len(query); i += 2 {
		if r.Query == nil {
			r.Query = map[string]string{}
		}
		r.Query[query[i]] = query[i+1]
	}
	return r
}

func withHeaders(r replay.Rule, headers ...string) replay.Rule {
	r.Headers = map[string]string{}
	for i := 0; i < len(headers); i += 2 {
		r.Headers[headers[i]] = headers[i+1]
	}
	return r
}

func asked(r replay.Rule, headers ...string) replay.Rule {
	r.Header = map[string]string{}
	for i := 0; i < len(headers); i += 2 {
		r.Header[headers[i]] = headers[i+1]
	}
	return r
}

func gzipped(text string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(text))
	_ = w.Close()
	return b.Bytes()
}

// httpExample is what an example of docs/http.md meets and what comes out. URL stands for the address of the server.
type httpExample struct {
	rules []replay.Rule
	files map[string][]byte
	topic string
	want  []string // "key value"; sorted where any order will do
	// requests are those that must have been sent at first, as "METHOD path?query".
	requests []string
	sorted   bool
}

var httpExamples = map[string]httpExample{
	"prices": {
		topic:  "prices",
		sorted: true,
		rules: []replay.Rule{
			rule("/v1/prices/DE", `{"items":[{"time":7,"price":1},{"time":9,"price":2}]}`, "since", "0"),
			rule("/v1/prices/FR", `{"items":[{"time":8,"price":3}]}`, "since", "0"),
		},
		want: []string{`DE {"time":7,"price":1}`, `DE {"time":9,"price":2}`, `FR {"time":8,"price":3}`},
	},
	"search": {
		topic: "found",
		rules: []replay.Rule{{Method: "POST", Path: "/v1/search", Header: map[string]string{"Accept-Language": "de", "Content-Type": "application/json"}, JSON: json.RawMessage(`{"hits":[{"id":"a"}]}`)}},
		want:  []string{`a {"id":"a"}`},
	},
	"next-url": {
		topic: "items",
		rules: []replay.Rule{
			rule("/v1/items", `{"data":[{"id":"c"}],"links":{"next":null}}`, "p", "2"),
			rule("/v1/items", `{"data":[{"id":"a"},{"id":"b"}],"links":{"next":"/v1/items?p=2"}}`),
		},
		want:     []string{`a {"id":"a"}`, `b {"id":"b"}`, `c {"id":"c"}`},
		requests: []string{"GET /v1/items", "GET /v1/items?p=2"},
	},
	"link-header": {
		topic: "issues",
		rules: []replay.Rule{
			rule("/repos/demo/issues", `[{"number":3,"updated_at":"c"}]`, "page", "2"),
			withHeaders(rule("/repos/demo/issues", `[{"number":1,"updated_at":"a"},{"number":2,"updated_at":"b"}]`, "per_page", "2"),
				"Link", `<URL/repos/demo/issues?per_page=2&page=2>; rel="next", <URL/repos/demo/issues?page=9>; rel="last"`),
		},
		want:     []string{`1 {"number":1,"updated_at":"a"}`, `2 {"number":2,"updated_at":"b"}`, `3 {"number":3,"updated_at":"c"}`},
		requests: []string{"GET /repos/demo/issues?per_page=2", "GET /repos/demo/issues?per_page=2&page=2"},
	},
	"cursor": {
		topic: "charges",
		rules: []replay.Rule{
			rule("/v1/charges", `{"data":[{"id":"c"}],"has_more":false}`, "starting_after", "b"),
			rule("/v1/charges", `{"data":[{"id":"a"},{"id":"b"}],"has_more":true}`),
		},
		want:     []string{`a {"id":"a"}`, `b {"id":"b"}`, `c {"id":"c"}`},
		requests: []string{"GET /v1/charges?limit=2", "GET /v1/charges?limit=2&starting_after=b"},
	},
	"page-number": {
		topic: "orders",
		rules: []replay.Rule{
			rule("/orders", `{"orders":[{"id":"a"},{"id":"b"}]}`, "page", "1"),
			rule("/orders", `{"orders":[{"id":"c"}]}`, "page", "2"),
		},
		want:     []string{`a {"id":"a"}`, `b {"id":"b"}`, `c {"id":"c"}`},
		requests: []string{"GET /orders?size=2&page=1", "GET /orders?size=2&page=2"},
	},
	"offset": {
		topic: "people",
		rules: []replay.Rule{
			rule("/people", `{"people":[{"id":"a"},{"id":"b"}]}`, "skip", "0"),
			rule("/people", `{"people":[{"id":"c"}]}`, "skip", "2"),
			rule("/people", `{"people":[]}`, "skip", "3"),
		},
		want:     []string{`a {"id":"a"}`, `b {"id":"b"}`, `c {"id":"c"}`},
		requests: []string{"GET /people?limit=2&skip=0", "GET /people?limit=2&skip=2", "GET /people?limit=2&skip=3"},
	},
	"newest-first": {
		topic: "posts",
		rules: []replay.Rule{
			rule("/posts", `{"posts":[{"id":3},{"id":2}]}`, "page", "1"),
			rule("/posts", `{"posts":[{"id":1},{"id":0}]}`, "page", "2"),
		},
		want:     []string{`3 {"id":3}`, `2 {"id":2}`, `1 {"id":1}`},
		requests: []string{"GET /posts?page=1", "GET /posts?page=2"},
	},
	"conditional": {
		topic: "rates",
		files: map[string][]byte{"rates.json": []byte(`{"currency":"EUR","rates":{"USD":1.25},"more":1}`)},
		want:  []string{`EUR {"currency":"EUR","rates":{"USD":1.25}}`},
	},
	"tail": {
		topic: "log",
		files: map[string][]byte{"app.log": []byte("{\"host\":\"a\",\"n\":1}\n{\"host\":\"b\",\"n\":2}\n{\"host\":\"c\",")},
		want:  []string{`a {"host":"a","n":1}`, `b {"host":"b","n":2}`},
	},
	"formats": {
		topic:  "stations,entries",
		sorted: true,
		files: map[string][]byte{
			"stations.csv.gz": gzipped("id;name;height\na;Alp;\"1200\"\nb;;\n"),
			"feed.xml":        []byte(`<feed><entry><id>x</id></entry></feed>`),
		},
		want: []string{`a {"name":"Alp","height":1200}`, `b {"name":null,"height":null}`, `x {"id":"x"}`},
	},
	"relay": {
		topic: "readings",
		rules: []replay.Rule{withHeaders(rule("/sensors", `{"sensors":[{"id":"s1","readings":{"t":21,"h":40}}]}`), "X-Site", "north")},
		want:  []string{`s1 {"name":"t","value":21,"from":"north"}`, `s1 {"name":"h","value":40,"from":"north"}`},
	},
	"who-asks": {
		topic:  "items",
		sorted: true,
		rules: []replay.Rule{
			asked(rule("/basic", `{"who":"basic"}`), "Authorization", "Basic bWU6c2VjcmV0"),
			asked(rule("/bearer", `{"who":"bearer"}`), "Authorization", "Bearer t0ken"),
			asked(rule("/key", `{"who":"key"}`), "X-Api-Key", "k3y"),
			asked(rule("/oauth", `{"who":"oauth"}`), "Authorization", "Bearer fresh"),
			asked(replay.Rule{Method: "POST", Path: "/token", JSON: json.RawMessage(`{"access_token":"fresh","token_type":"bearer","expires_in":3600}`)}, "Authorization", "Basic ZmxlY2h0d2VyazpjbDFlbnQ="),
		},
		want: []string{`default {"who":"basic"}`, `default {"who":"bearer"}`, `default {"who":"key"}`, `default {"who":"oauth"}`},
	},
}

// TestHTTPExamplesRun runs every pipeline of docs/http.md against a server that answers as the text says.
func TestHTTPExamplesRun(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "http.md"))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, part := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		name := regexp.MustCompile(`^pipeline: (\S+)`).FindStringSubmatch(part[1])[1]
		x, ok := httpExamples[name]
		if !ok {
			t.Errorf("nothing is known of the example %s", name)
			continue
		}
		seen[name] = true
		t.Run(name, func(t *testing.T) {
			server := connectortest.NewReplay(t, "")
			for _, r := range x.rules {
				for header, value := range r.Headers {
					r.Headers[header] = strings.ReplaceAll(value, "URL", server.URL)
				}
				if err := server.Add(r); err != nil {
					t.Fatal(err)
				}
			}
			for file, content := range x.files {
				server.Put(file, content)
			}
			s := runHTTP(t, server, x.topic, strings.ReplaceAll(part[1], "https://api.example.com", "URL"))
			printed(t, s, len(x.want))
			if x.requests != nil {
				if err := server.Await(t.Context(), len(x.requests)); err != nil {
					t.Fatal(err)
				}
			}
			if status := s.stop(); status != 0 {
				t.Errorf("exit status %d:\n%s", status, s.stderr.String())
			}
			got := s.records(t)
			if x.sorted {
				slices.Sort(got)
			}
			if fmt.Sprint(got) != fmt.Sprint(x.want) {
				t.Errorf("records:\n%s\nwant:\n%s\nlog:\n%s", strings.Join(got, "\n"), strings.Join(x.want, "\n"), s.stderr.String())
			}
			var requests []string
			for _, r := range server.Requests()[:len(x.requests)] {
				requests = append(requests, r.String())
			}
			if x.requests != nil && fmt.Sprint(requests) != fmt.Sprint(x.requests) {
				t.Errorf("requests:\n%s\nwant:\n%s", strings.Join(requests, "\n"), strings.Join(x.requests, "\n"))
			}
		})
	}
	for name := range httpExamples {
		if !seen[name] {
			t.Errorf("docs/http.md has no example %s", name)
		}
	}
}

// TestHTTPFailureIsAsDocumented holds the message that docs/http.md shows to what a run says.
func TestHTTPFailureIsAsDocumented(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "http.md"))
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?ms)^```text\n(.*?)\n```$").FindStringSubmatch(string(text))[1]
	example := regexp.MustCompile("(?ms)^```yaml\n(pipeline: prices.*?)^```$").FindStringSubmatch(string(text))[1]
	server := connectortest.NewReplay(t, "", replay.Rule{Status: 403, Text: "a payload"})
	s := runHTTP(t, server, "prices", strings.ReplaceAll(example, "https://api.example.com", "URL"))
	if status := s.wait(); status != 1 {
		t.Errorf("exit status %d", status)
	}
	want := strings.ReplaceAll(shown, "https://api.example.com", server.URL)
	words := s.stderr.String()
	if !strings.Contains(strings.ReplaceAll(words, "/FR:", "/DE:"), want) || strings.Contains(words, "payload") {
		t.Errorf("the log has no %q:\n%s", want, words)
	}
}
