package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/flechtwerk/flechtwerk/connectors/connectortest"
	"github.com/flechtwerk/flechtwerk/connectors/connectortest/replay"
)

// printed are the records that `run --print` shows, as "key value", once there are n. The run goes on.
func printed(t *testing.T, s *started, n int) []string {
	t.Helper()
	seen := 0
	s.stdout.WaitFor(t, 0, fmt.Sprintf("%d records", n), func(string) bool { seen++; return seen == n })
	return s.records(t)
}

// records are those printed so far.
func (s *started) records(t *testing.T) []string {
	t.Helper()
	var records []string
	for _, line := range s.stdout.All() {
		var r struct {
			Key   json.RawMessage
			Value json.RawMessage
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		records = append(records, strings.Trim(string(r.Key), `"`)+" "+string(r.Value))
	}
	return records
}

// runHTTP runs a pipeline in which URL stands for the address of a replay server.
func runHTTP(t *testing.T, server *connectortest.Replay, topic, text string) *started {
	t.Helper()
	text = strings.ReplaceAll(text, "URL", server.URL)
	return start(t, "run", write(t, t.TempDir(), "p.yaml", text), "--dev", "--print", topic, "--log-level", "debug", "-s", "http.listen=127.0.0.1:0")
}

func TestHTTPExtractorReadsAListingAndGoesOn(t *testing.T) {
	items := func(from, n int) json.RawMessage {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,{"id":%d}`, from+i)
		}
		next := "null"
		if from < 4 {
			next = fmt.Sprintf(`"p%d"`, from+n)
		}
		return json.RawMessage(`{"items":[` + strings.TrimPrefix(b.String(), ",") + `],"next":` + next + `}`)
	}
	server := connectortest.NewReplay(t, "",
		replay.Rule{Path: "/v1/items", Query: map[string]string{"since": "6"}, JSON: json.RawMessage(`{"items":[],"next":null}`)},
		replay.Rule{Path: "/v1/items", Query: map[string]string{"after": "p4"}, JSON: items(4, 3)},
		replay.Rule{Path: "/v1/items", Query: map[string]string{"since": "0"}, JSON: items(1, 3)},
	)
	s := runHTTP(t, server, "items", `
pipeline: listing
topics: { items: { partitions: 1 } }
extractors:
  all:
    every: 50ms
    http:
      url: URL/v1/items
      query: { since: "{{ state.since ?? 0 }}" }
      paginate: { cursor: body.next, param: after }
    records: body.items
    message: { topic: items, value: item }
    cursor: { since: page.last.id }
`)
	got := strings.Join(printed(t, s, 6), "\n")
	if err := server.Await(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
	if status := s.stop(); status != 0 {
		t.Errorf("exit status %d:\n%s", status, s.stderr.String())
	}
	want := "default {\"id\":1}\ndefault {\"id\":2}\ndefault {\"id\":3}\ndefault {\"id\":4}\ndefault {\"id\":5}\ndefault {\"id\":6}"
	if got != want {
		t.Errorf("records:\n%s\nwant:\n%s", got, want)
	}
	var asked []string
	for _, r := range server.Requests()[:4] {
		asked = append(asked, r.URL)
	}
	if got, want := strings.Join(asked, " "), "/v1/items?since=0 /v1/items?since=0&after=p4 /v1/items?since=6 /v1/items?since=6"; got != want {
		t.Errorf("requests: %s, want %s", got, want)
	}
}
