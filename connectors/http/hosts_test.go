package http

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flechtwerk/flechtwerk/connectors/connectortest"
	"github.com/flechtwerk/flechtwerk/connectors/connectortest/replay"
)

// arrivals are the times at which n requests, sent by all clients at once, arrived at the server, from the first one on.
func arrivals(t *testing.T, n int, url string, clients ...*Client) []time.Duration {
	t.Helper()
	var (
		mu    sync.Mutex
		times []time.Duration
		group sync.WaitGroup
	)
	began := time.Now()
	for i := range n {
		group.Go(func() {
			r, err := clients[i%len(clients)].Do(t.Context(), &Request{URL: url})
			if err != nil {
				t.Error(err)
				return
			}
			_ = r.Body.Close()
			mu.Lock()
			times = append(times, time.Since(began))
			mu.Unlock()
		})
	}
	group.Wait()
	return times
}

func milliseconds(times []time.Duration) string {
	var all []string
	for _, d := range times {
		all = append(all, fmt.Sprint(d.Milliseconds()))
	}
	return strings.Join(all, " ")
}

func TestH7TheRateOfAHostIsSharedByAllClients(t *testing.T) {
	for _, test := range []struct {
		name  string
		rates []Rate // of one client each
		want  string
	}{
		{"one", []Rate{{Requests: 10}}, "0 100 200 300 400 500"},
		{"a burst", []Rate{{Requests: 10, Burst: 4}}, "0 0 0 0 100 200"},
		{"an interval", []Rate{{Requests: 2, Per: time.Minute}}, "0 30000 60000 90000 120000 150000"},
		{"two of the same", []Rate{{Requests: 10}, {Requests: 10}}, "0 100 200 300 400 500"},
		{"the lowest", []Rate{{Requests: 100, Burst: 3}, {Requests: 10, Burst: 2}}, "0 0 100 200 300 400"},
		{"one that says nothing", []Rate{{Requests: 10}, {}}, "0 100 200 300 400 500"},
		{"none", []Rate{{}, {}}, "0 0 0 0 0 0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := connectortest.NewReplayInMemory(t, "", replay.Rule{Text: "ok"})
				hosts := NewHosts()
				var clients []*Client
				for _, r := range test.rates {
					c := newClient(t, Config{Hosts: hosts, Dial: server.Dial, Rate: r, Timeout: time.Second})
					clients = append(clients, c)
					hosts.mu.Lock()
					hosts.at("replay.test").apply(&c.config) // as if each had asked before
					hosts.mu.Unlock()
				}
				if got := milliseconds(arrivals(t, 6, "http://replay.test/", clients...)); got != test.want {
					t.Errorf("%s, want %s", got, test.want)
				}
				if got := milliseconds(arrivals(t, 2, "http://other.test/", clients[0])); strings.HasPrefix(test.want, "0 100") && got != "0 100" {
					t.Errorf("another host: %s", got)
				}
			})
		})
	}
}

func TestTheWaitForATurnEndsWithTheCaller(t *testing.T) {
	for _, test := range []struct {
		name  string
		limit time.Duration // of the caller; 0 gives up after a second
		code  string
		want  string
		err   error
	}{
		{"a deadline that is too near", 5 * time.Second, CodeTimeout, "its turn at replay.test under the rate limit of 1 per 1m0s comes after its deadline", context.DeadlineExceeded},
		{"giving up", 0, CodeCancelled, "gave up while waiting for its turn at replay.test under the rate limit of 1 per 1m0s", context.Canceled},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, server := serve(t, Config{Connections: 1, Rate: Rate{Requests: 1, Per: time.Minute}}, replay.Rule{Text: "ok"})
				if _, _, failed := whole(t, c, &Request{URL: "/"}); failed != nil {
					t.Fatal(failed)
				}
				began := time.Now()
				ctx, cancel := context.WithCancel(t.Context())
				waits := time.Second
				if test.limit > 0 {
					ctx, cancel = context.WithTimeout(t.Context(), test.limit)
					waits = 0
				} else {
					time.AfterFunc(waits, cancel)
				}
				defer cancel()
				_, err := c.Do(ctx, &Request{URL: "/"})
				check(t, asError(t, err), test.code, test.want)
				if !errors.Is(err, test.err) || time.Since(began) != waits {
					t.Errorf("%v after %s", err, time.Since(began))
				}
				if n := len(server.Requests()); n != 1 {
					t.Errorf("%d requests", n)
				}
				if _, body, failed := whole(t, c, &Request{URL: "/"}); failed != nil || body != "ok" {
					t.Errorf("the next one: %q %v", body, failed)
				}
			})
		})
	}
}

func TestTheTimeOfARequestBeginsAtItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := serve(t, Config{Timeout: 2 * time.Second, Connections: 1, Rate: Rate{Requests: 1, Per: time.Minute}},
			replay.Rule{Text: "ok", Delay: replay.Duration(time.Second)})
		if got := milliseconds(arrivals(t, 3, "/", c)); got != "1000 61000 121000" {
			t.Errorf("answers after %s", got)
		}
	})
}

func TestConnectionsPerHostAreShared(t *testing.T) {
	for _, test := range []struct {
		name  string
		most  []int // of one client each
		tasks int
		want  string
	}{
		{"two", []int{2}, 6, "1000 1000 2000 2000 3000 3000"},
		{"the fewest", []int{2, 3, 0}, 6, "1000 1000 2000 2000 3000 3000"},
		{"more than usual", []int{100}, 66, "1000"},
		{"as usual", []int{0}, 66, "1000 2000"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := connectortest.NewReplayInMemory(t, "", replay.Rule{Text: "ok", Delay: replay.Duration(time.Second)})
				hosts := NewHosts()
				var clients []*Client
				for _, n := range test.most {
					c := newClient(t, Config{Hosts: hosts, Dial: server.Dial, Connections: n})
					clients = append(clients, c)
					hosts.mu.Lock()
					hosts.at("replay.test").apply(&c.config)
					hosts.mu.Unlock()
				}
				got := milliseconds(arrivals(t, test.tasks, "http://replay.test/", clients...))
				if test.tasks == 66 {
					got = strings.Join(uniq(strings.Fields(got)), " ")
				}
				if got != test.want {
					t.Errorf("%s, want %s", got, test.want)
				}
				hosts.mu.Lock()
				defer hosts.mu.Unlock()
				if h := hosts.hosts["replay.test"]; h.underWay != 0 || h.users != 0 || len(h.queue) != 0 {
					t.Errorf("left behind: %+v", h)
				}
			})
		})
	}
}

func uniq(all []string) []string {
	kept := all[:1]
	for _, s := range all[1:] {
		if s != kept[len(kept)-1] {
			kept = append(kept, s)
		}
	}
	return kept
}

// TestOneWhoGivesUpAsItsTurnComes lets both happen at once, often enough for each to be seen first.
func TestOneWhoGivesUpAsItsTurnComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hosts := NewHosts()
		c := newClient(t, Config{Hosts: hosts, Connections: 1})
		gaveUp := 0
		for range 200 {
			first, failed := hosts.enter(t.Context(), "replay.test", c)
			check(t, failed, "", "")
			ctx, cancel := context.WithCancel(t.Context())
			over := make(chan *Error, 1)
			go func() {
				second, failed := hosts.enter(ctx, "replay.test", c)
				if failed == nil {
					second.sent()
					second.leave(nil)
				}
				over <- failed
			}()
			synctest.Wait()
			hosts.mu.Lock()
			cancel()
			first.host.free()
			first.host.users--
			hosts.mu.Unlock()
			if failed := <-over; failed != nil {
				check(t, failed, CodeCancelled, "gave up")
				gaveUp++
			}
			if h := first.host; h.underWay != 0 || h.users != 0 || len(h.queue) != 0 {
				t.Fatalf("left behind: %+v", h)
			}
		}
		if gaveUp == 0 {
			t.Error("nobody gave up")
		}
	})
}

func TestOneWhoGivesUpInTheQueueMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, server := serve(t, Config{Connections: 1}, replay.Rule{Text: "0123456789", Fault: replay.Stall, Times: 1}, replay.Rule{Text: "ok"})
		first, err := c.Do(t.Context(), &Request{URL: "/"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = c.Do(ctx, &Request{URL: "/"})
		check(t, asError(t, err), CodeCancelled, "gave up while 1 other requests to replay.test were under way")
		_ = first.Body.Close()
		if _, body, failed := whole(t, c, &Request{URL: "/"}); failed != nil || body != "ok" {
			t.Errorf("%q %v", body, failed)
		}
		if n := len(server.Requests()); n != 2 {
			t.Errorf("%d requests, want 2", n)
		}
	})
}

// TestH7TheBreakerOfAHost asks once a second; the letters are what comes of it: the answer's status, or ! for an error, or
// . for a breaker that is open.
func TestH7TheBreakerOfAHost(t *testing.T) {
	fail := func(n int) replay.Rule { return replay.Rule{Status: 503, Times: n} }
	fine := func(n int) replay.Rule { return replay.Rule{Status: 204, Times: n} }
	fault := func(f replay.Fault, n int) replay.Rule {
		return replay.Rule{Fault: f, Text: "0123456789", Times: n}
	}
	three := Breaker{Failures: 3, Pause: 4 * time.Second}
	for _, test := range []struct {
		name    string
		breaker Breaker
		rules   []replay.Rule
		want    string
	}{
		{"opens and closes", three, []replay.Rule{fail(3), fine(0)}, "503 503 503 . . . 204 204 204 204"},
		{"a probe that fails", three, []replay.Rule{fail(4), fine(0)}, "503 503 503 . . . 503 . . . 204 204"},
		{"one after another", three, []replay.Rule{fail(2), fine(1), fail(2), fine(0)}, "503 503 204 503 503 204"},
		{"errors", three, []replay.Rule{fault(replay.Close, 1), fault(replay.Garbage, 1), fault(replay.Truncate, 1), fine(0)}, "! ! ! . . . 204"},
		{"bodies that break off", three, []replay.Rule{fault(replay.Truncate, 0)}, "! ! ! . . . ! ! ! . . . !"},
		{"not the caller's mistakes", Breaker{Failures: 1}, []replay.Rule{{Status: 404, Times: 1}, {Status: 429, Times: 1}, fault(replay.Loop, 11), {Text: strings.Repeat("a", 100), Times: 1}, fine(0)}, "404 429 ! ! 204"},
		{"none", Breaker{}, []replay.Rule{fail(5), fine(0)}, "503 503 503 503 503 204"},
		{"for half a minute", Breaker{Failures: 1}, []replay.Rule{fail(1), fine(0)}, "503" + strings.Repeat(" .", 29) + " 204"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _ := serve(t, Config{Breaker: test.breaker, Connections: 1, MaxBytes: 50}, test.rules...)
				var got []string
				for range strings.Fields(test.want) {
					got = append(got, outcome(t, c))
					<-time.After(time.Second)
				}
				if diff := cmp.Diff(test.want, strings.Join(got, " ")); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

func outcome(t *testing.T, c *Client) string {
	t.Helper()
	status, _, failed := whole(t, c, &Request{URL: "http://replay.test/"})
	switch {
	case failed == nil:
		return fmt.Sprint(status)
	case failed.Code == CodeBreakerOpen:
		return "."
	}
	return "!"
}

func TestH7TheBreakerIsSharedByAllClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := connectortest.NewReplayInMemory(t, "", replay.Rule{Status: 503, Times: 4}, replay.Rule{Status: 204})
		hosts := NewHosts()
		none := newClient(t, Config{Hosts: hosts, Dial: server.Dial})
		two := newClient(t, Config{Hosts: hosts, Dial: server.Dial, Breaker: Breaker{Failures: 2, Pause: time.Minute}})
		three := newClient(t, Config{Hosts: hosts, Dial: server.Dial, Breaker: Breaker{Failures: 3, Pause: time.Hour}})
		got := []string{outcome(t, none), outcome(t, two), outcome(t, two), outcome(t, three), outcome(t, three), outcome(t, none)}
		<-time.After(time.Minute)
		got = append(got, outcome(t, three), outcome(t, two), outcome(t, three))
		if diff := cmp.Diff([]string{"503", "503", ".", "503", ".", "503", ".", "204", "204"}, got); diff != "" {
			t.Error(diff)
		}
	})
}

func TestTheBreakerSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := serve(t, Config{Breaker: Breaker{Failures: 2, Pause: 10 * time.Second}}, replay.Rule{Fault: replay.Hang, Times: 1}, replay.Rule{Status: 502})
		outcome(t, c)
		outcome(t, c)
		<-time.After(4 * time.Second)
		_, _, failed := whole(t, c, &Request{URL: "/x?key=s3cr3t"})
		check(t, failed, CodeBreakerOpen, "GET http://replay.test/x?key=***: replay.test failed 2 times one after another, the last time by status 502, "+
			"and is left alone for another 6s (breaker: 2 failures, pause 10s)")
		if failed.Wait != 6*time.Second {
			t.Errorf("wait %s", failed.Wait)
		}
		<-time.After(6 * time.Second)
		outcome(t, c)
		_, _, failed = whole(t, c, &Request{URL: "/"})
		check(t, failed, CodeBreakerOpen, "replay.test failed 3 times one after another, the last time by status 502, and is left alone for another 10s")
	})
}

func TestOnlyOneRequestTriesAHostAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, server := serve(t, Config{Breaker: Breaker{Failures: 1, Pause: time.Second}},
			replay.Rule{Status: 500, Times: 1}, replay.Rule{Fault: replay.Hang, Times: 1}, replay.Rule{Text: "0123456789", Fault: replay.Stall})
		outcome(t, c)
		<-time.After(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		probe := make(chan error, 1)
		go func() {
			_, err := c.Do(ctx, &Request{URL: "/"})
			probe <- err
		}()
		if err := server.Await(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		_, _, failed := whole(t, c, &Request{URL: "/"})
		check(t, failed, CodeBreakerOpen, "is left alone until the request that tries it has an answer")
		check(t, asError(t, <-probe), CodeCancelled, "")

		// One who gave up has found out nothing: the next one tries, and its header is enough.
		r, err := c.Do(t.Context(), &Request{URL: "/"})
		if err != nil {
			t.Fatal(err)
		}
		other, err := c.Do(t.Context(), &Request{URL: "/"})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = r.Body.Close(), other.Body.Close()
	})
}

func TestHostsOfWhichThereIsNothingToKnowAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := connectortest.NewReplayInMemory(t, "", replay.Rule{Query: map[string]string{"fail": "1"}, Status: 500}, replay.Rule{Query: map[string]string{"stall": "1"}, Text: "0123456789", Fault: replay.Stall}, replay.Rule{Status: 204})
		hosts := NewHosts()
		c := newClient(t, Config{Hosts: hosts, Dial: server.Dial, Rate: Rate{Requests: 1}})
		ask := func(url string) {
			r, err := c.Do(t.Context(), &Request{URL: url})
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(url, "stall") {
				_ = r.Body.Close()
			}
		}
		ask("http://failed.test/?fail=1")
		for i := range sweepFrom - 3 {
			ask(fmt.Sprintf("http://host%d.test/", i))
		}
		<-time.After(time.Minute)
		ask("http://busy.test/?stall=1")
		<-time.After(10 * time.Second)
		ask("http://recent.test/")
		ask("http://new.test/")
		var left []string
		hosts.mu.Lock()
		for _, name := range []string{"failed.test", "busy.test", "recent.test", "new.test", "host1.test"} {
			if hosts.hosts[name] != nil {
				left = append(left, name)
			}
		}
		n := len(hosts.hosts)
		hosts.mu.Unlock()
		if diff := cmp.Diff([]string{"failed.test", "busy.test", "recent.test", "new.test"}, left); diff != "" || n != 4 {
			t.Errorf("%d hosts: %s", n, diff)
		}
		c.Close()
	})
}

func TestHostsAreToldApart(t *testing.T) {
	for text, want := range map[string]string{
		"https://A.test/x":      "a.test",
		"https://a.test:443":    "a.test",
		"http://a.test:80":      "a.test",
		"http://a.test:443":     "a.test:443",
		"https://a.test:8443":   "a.test:8443",
		"http://[::1]:8080/":    "[::1]:8080",
		"http://[FE80::1]/":     "[fe80::1]",
		"http://user@a.test/":   "a.test",
		"http://127.0.0.1:9/b?": "127.0.0.1:9",
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := hostName(u); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
