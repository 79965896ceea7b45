package main_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/flechtwerk/flechtwerk/connectors/connectortest/replay"
	"github.com/flechtwerk/flechtwerk/engine/enginetest"
)

const (
	listingPages = 40
	listingItems = 5 // of a page
)

// listing is a server of a listing of many pages, which can kill its client as soon as it has answered.
type listing struct {
	*replay.Handler

	mu     sync.Mutex
	left   int // answers to pages until the client is killed; 0 is never
	killed func()
	pages  int // that were answered
}

func newListing(t *testing.T) *listing {
	t.Helper()
	var rules []replay.Rule
	page := func(query map[string]string, first, n int, next string) {
		items := make([]string, n)
		for i := range items {
			items[i] = fmt.Sprintf(`{"id":%d}`, first+i)
		}
		answer := fmt.Sprintf(`{"items":[%s],"next":%s}`, strings.Join(items, ","), next)
		rules = append(rules, replay.Rule{Path: "/items", Query: query, JSON: json.RawMessage(answer)})
	}
	for n := 1; n < listingPages; n++ {
		next := "null"
		if n < listingPages-1 {
			next = fmt.Sprintf(`"p%d"`, n+1)
		}
		page(map[string]string{"after": fmt.Sprintf("p%d", n)}, n*listingItems, listingItems, next)
	}
	page(map[string]string{"since": "-1"}, 0, listingItems, `"p1"`)
	page(map[string]string{"since": fmt.Sprint(listingPages*listingItems - 1)}, 0, 0, "null")
	handler, err := replay.New(replay.Config{Rules: rules})
	if err != nil {
		t.Fatal(err)
	}
	return &listing{Handler: handler}
}

// arm has the client killed when it has been sent n pages.
func (l *listing) arm(n int, kill func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left, l.killed = n, kill
}

func (l *listing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.Handler.ServeHTTP(w, r)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pages++
	if l.left--; l.left != 0 || l.killed == nil {
		return
	}
	// The answer is on its way before the kill.
	if err := http.NewResponseController(w).Flush(); err != nil {
		panic(err)
	}
	l.killed()
	l.killed = nil
}

// pageKillPoints are those that a page passes on its way into Kafka, with how often the start of a task passes them before.
var pageKillPoints = []killPoint{
	{"after-produce", 2, false},
	{"after-offsets", 1, false},
	{"before-end", 2, false},
	{"end-sent", 2, false},
	{"end-answered", 2, false},
	{"before-apply", 1, false},
	{"after-apply", 1, false},
}

// TestH1KillOverAListing kills an extractor that reads a listing of 40 pages fifty times, right after an answer and at every
// point of a page's transaction, and demands each item once and in order, and a state that has nothing left of the listing.
func TestH1KillOverAListing(t *testing.T) {
	if testing.Short() {
		t.Skip("starts the binary fifty times: left out by -short")
	}
	server := newListing(t)
	web := httptest.NewServer(server)
	t.Cleanup(web.Close)
	k := &killTest{partitions: 1, batch: 1000}
	k.addr = anyKafka(t)
	k.write(t, "listing", func(name string) string {
		return fmt.Sprintf(`pipeline: %s
topics:
  %s: { partitions: 1 }
extractors:
  listing:
    every: 10ms
    state: { since: -1 }
    http:
      url: %s/items
      query: { since: "{{ state.since }}" }
      paginate: { cursor: body.next, param: after }
    records: body.items
    message: { topic: %s, value: item.id }
    cursor: { since: page.last.id }
`, name, k.out, web.URL, k.out)
	})
	opts := enginetest.At(k.addr)
	enginetest.CreateTopic(t, opts, k.out, 1)
	const kills = 50
	byAnswer := 0
	for i := range kills {
		if i%25 == 24 {
			if err := os.RemoveAll(k.state); err != nil { // the next start reads the changelog
				t.Fatal(err)
			}
		}
		if i%2 == 0 {
			gone := make(chan struct{})
			p := k.start(t, nil)
			server.arm(1, func() { p.Kill(); close(gone) })
			<-gone
			if status := p.Status(); status != -int(syscall.SIGKILL) {
				t.Fatalf("kill %d: the process ended with %d before it was killed:\n%s", i, status, p.Stderr)
			}
			byAnswer++
			continue
		}
		point := pageKillPoints[i/2%len(pageKillPoints)]
		died(t, k.start(t, []string{fmt.Sprintf("FLECHTWERK_KILL=%s:%d", point.name, point.nth)}), point.name)
	}
	before := len(enginetest.ReadCommitted(t, opts, k.out))
	server.mu.Lock()
	answers := server.pages
	server.mu.Unlock()
	t.Logf("%d kills after an answer, %d at points of a transaction; %d of %d items were committed then, by %d answers", byAnswer, kills-byAnswer,
		before, listingPages*listingItems, answers)
	if before == listingPages*listingItems {
		t.Error("the listing was read before the last kill: the kills came too late to prove anything")
	}
	if before == 0 {
		t.Error("nothing was committed before the last kill: a listing that never goes on proves nothing")
	}
	p := k.start(t, nil)
	wanted := "/items?since=" + fmt.Sprint(listingPages*listingItems-1)
	for n := 1; ; n++ {
		if err := server.Await(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		if server.Requests()[n-1].URL == wanted {
			break
		}
	}
	p.Signal(t, syscall.SIGTERM)
	if status := p.Status(); status != 0 {
		t.Fatalf("SIGTERM: exit status %d:\n%s", status, p.Stderr)
	}
	records := enginetest.ReadCommitted(t, opts, k.out)
	for i, r := range records {
		if string(r.Value) != fmt.Sprint(i) {
			t.Fatalf("record %d is item %s", i, r.Value)
		}
	}
	if len(records) != listingPages*listingItems {
		t.Errorf("%d records of %d items", len(records), listingPages*listingItems)
	}
	if state := enginetest.Fold(t, opts, k.app+"-changelog")["default"]; state != fmt.Sprintf(`{"since":%d}`, listingPages*listingItems-1) {
		t.Errorf("the state is %s", state)
	}
}
