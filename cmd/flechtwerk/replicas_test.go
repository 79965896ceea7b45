package main_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/flechtwerk/flechtwerk/engine/enginetest"
)

// replicas are instances of one pipeline, each a process with a state folder of its own.
type replicas struct {
	binary, file, addr string
	out                string
}

const replicaSession = time.Second

// newReplicas writes a pipeline; NAME stands for its name, which topics begin with.
func newReplicas(t *testing.T, text string) *replicas {
	t.Helper()
	if testing.Short() {
		t.Skip("starts the binary several times: left out by -short")
	}
	r := &replicas{binary: enginetest.Build(t, "github.com/flechtwerk/flechtwerk/cmd/flechtwerk"), file: filepath.Join(t.TempDir(), "replicas.yaml")}
	r.addr = anyKafka(t)
	name := enginetest.Unique("replicas")
	r.out = name + "-out"
	if err := os.WriteFile(r.file, []byte(strings.ReplaceAll(text, "NAME", name)), 0o600); err != nil {
		t.Fatal(err)
	}
	enginetest.CreateTopic(t, enginetest.At(r.addr), r.out, 4)
	return r
}

func (r *replicas) start(t *testing.T) *enginetest.Process {
	t.Helper()
	return enginetest.Start(t, enginetest.Command{Path: r.binary, Args: []string{"run", r.file, "--log-level", "debug",
		"-s", "kafka.brokers=" + r.addr, "-s", "kafka.session_timeout=" + replicaSession.String(), "-s", "state.dir=" + t.TempDir(), "-s", "http.listen=off"}})
}

// committedBy are the configs of a line that tells of committed pages.
func committedBy(line string) []string {
	if !strings.Contains(line, "transaction committed") {
		return nil
	}
	_, rest, ok := strings.Cut(line, " config=")
	if !ok {
		_, rest, _ = strings.Cut(line, " configs=")
	}
	configs, _, _ := strings.Cut(rest, " ")
	return strings.Split(strings.Trim(configs, `"`), ",")
}

// configsOf are the configs whose pages a process has committed since its line from.
func configsOf(p *enginetest.Process, from int) map[string]bool {
	configs := map[string]bool{}
	for _, line := range p.Stderr.All()[from:] {
		for _, config := range committedBy(line) {
			configs[config] = true
		}
	}
	return configs
}

// awaitConfigs waits until processes together have committed a page of n configs, each since its mark.
func awaitConfigs(t *testing.T, n int, marks map[*enginetest.Process]int) {
	t.Helper()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for deadline := time.Now().Add(time.Minute); ; <-again.C {
		all := map[string]bool{}
		for p, from := range marks {
			for config := range configsOf(p, from) {
				all[config] = true
			}
		}
		if len(all) >= n {
			return
		}
		if time.Now().After(deadline) {
			for p := range marks {
				t.Log(p.Stderr)
			}
			t.Fatalf("pages of %d configs, want %d", len(all), n)
		}
	}
}

// now marks the end of what processes have logged.
func now(of ...*enginetest.Process) map[*enginetest.Process]int {
	marks := map[*enginetest.Process]int{}
	for _, p := range of {
		marks[p] = p.Stderr.Len()
	}
	return marks
}

func terminate(t *testing.T, p *enginetest.Process) {
	t.Helper()
	p.Signal(t, syscall.SIGTERM)
	if status := p.Status(); status != 0 {
		t.Fatalf("SIGTERM: exit status %d:\n%s", status, p.Stderr)
	}
}

// checkCounted reads the outputs: of each key 1, 2, 3, …, none missing and none twice.
func (r *replicas) checkCounted(t *testing.T, keys, least int) {
	t.Helper()
	last := map[string]int{}
	for _, rec := range enginetest.ReadCommitted(t, enginetest.At(r.addr), r.out) {
		key := string(rec.Key)
		if string(rec.Value) != strconv.Itoa(last[key]+1) {
			t.Fatalf("config %s at %d/%d: %s comes after %d", key, rec.Partition, rec.Offset, rec.Value, last[key])
		}
		last[key]++
	}
	if len(last) != keys {
		t.Errorf("outputs of %d configs, want %d", len(last), keys)
	}
	for key, n := range last {
		if n < least {
			t.Errorf("config %s came to %d, want %d at least", key, n, least)
		}
	}
}

// feeds is the service that the replicas poll. It tells who asks for a feed while another one is at it.
type feeds struct {
	t *testing.T

	mu       sync.Mutex
	at       map[string]int // requests under way, by config
	asked    map[string]int // all so far
	enriched map[string]int
	most     int // polls under way at once, of all configs
}

func newFeeds(t *testing.T) (*feeds, string) {
	f := &feeds{t: t, at: map[string]int{}, asked: map[string]int{}, enriched: map[string]int{}}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	return f, server.URL
}

// latency is how long the service thinks about an answer. One who goes away is not thought about any longer.
const latency = 30 * time.Millisecond

func (f *feeds) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	config := r.URL.Query().Get("config")
	if r.URL.Path == "/enrich" {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.enriched[config]++
		fmt.Fprintf(w, `{"feed":"feed of %s"}`, config)
		return
	}
	if got, want := r.URL.Query().Get("feed"), "feed of "+config; got != want {
		f.t.Errorf("config %s was polled with feed %q", config, got)
	}
	f.enter(config, 1)
	defer f.enter(config, -1)
	select {
	case <-time.After(latency):
	case <-r.Context().Done():
	}
	fmt.Fprint(w, `{}`)
}

func (f *feeds) enter(config string, by int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.at[config] += by; f.at[config] > 1 {
		f.t.Errorf("config %s is polled by %d at once", config, f.at[config])
	}
	if by > 0 {
		f.asked[config]++
	}
	all := 0
	for _, n := range f.at {
		all += n
	}
	f.most = max(f.most, all)
}

// check tells that every config was polled, side by side with others, and completed once.
func (f *feeds) check(configs int) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.asked) != configs || len(f.enriched) != configs {
		f.t.Errorf("%d configs were polled and %d enriched, want %d", len(f.asked), len(f.enriched), configs)
	}
	for config, n := range f.enriched {
		if n != 1 {
			f.t.Errorf("config %s was enriched %d times", config, n)
		}
	}
	if f.most < 4 {
		f.t.Errorf("no more than %d polls were under way at once, so that nothing could have overlapped", f.most)
	}
}

// R6, P8: one, then two, then three, then two, then one instance over 64 configs; one is ended by SIGKILL, one by SIGTERM. The numbers of
// each config come out without gap and without repeat, no config is ever polled by two at once, and none is completed twice. The
// configs of the killed one go on elsewhere once its session is over.
func TestReplicasComeAndGo(t *testing.T) {
	const configs = 64
	service, url := newFeeds(t)
	r := newReplicas(t, `pipeline: NAME
vars: { service: "`+url+`" }
topics:
  NAME-out: { partitions: 4 }
  NAME-configs: { partitions: 8 }
extractors:
  feed:
    every: 400ms
    config_topics: NAME-configs
    output_topics: NAME-out
    state: { n: 0 }
    enrich: |
      const query = { config: config.$key };
      return { ...config, ...await (await fetch(vars.service + '/enrich', { query })).json() };
    poll: |
      const query = { config: config.$key, feed: config.feed };
      for (let page = 0; page < 2; page++) {
        await fetch(vars.service + '/poll', { query });
        for (let i = 0; i < 3; i++) yield Message({ value: ++state.n });
        yield State(state);
      }
`)
	topic := strings.TrimSuffix(r.out, "-out") + "-configs"
	enginetest.CreateTopic(t, enginetest.At(r.addr), topic, 8, "cleanup.policy=compact")
	for n := range configs {
		enginetest.Produce(t, enginetest.At(r.addr), enginetest.Keyed(topic, fmt.Sprint("config-", n), "{}"))
	}

	// A run of enrich that a hand-over cancels is done again elsewhere; so all are done before there is one.
	a := r.start(t)
	awaitConfigs(t, configs, now(a))
	b := r.start(t)
	b.Stderr.Wait(t, 0, "transaction committed")
	awaitConfigs(t, configs, now(a, b))
	c := r.start(t)
	c.Stderr.Wait(t, 0, "transaction committed")
	awaitConfigs(t, configs, now(a, b, c))

	seen := now(b)[b]
	b.Stderr.Wait(t, seen, "transaction committed")
	orphans := configsOf(b, seen)
	b.Kill()
	killed, marks := time.Now(), now(a, c)
	if status := b.Status(); status != -int(syscall.SIGKILL) {
		t.Fatalf("the process ended with %d before it was killed:\n%s", status, b.Stderr)
	}
	for config := range configsOf(b, seen) {
		orphans[config] = true
	}
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for limit := killed.Add(time.Minute); len(orphans) > 0; <-again.C {
		for p, from := range marks {
			for config := range configsOf(p, from) {
				delete(orphans, config)
			}
		}
		if time.Now().After(limit) {
			t.Fatalf("a minute after the kill nobody polls %v", orphans)
		}
	}
	took := time.Since(killed)
	t.Logf("the last config of the killed instance went on after %v; the session timeout is %v", took, replicaSession)
	if took > replicaSession+10*time.Second {
		t.Errorf("the configs of the killed instance lay still for %v", took)
	}
	awaitConfigs(t, configs, now(a, c))
	terminate(t, a)
	awaitConfigs(t, configs, now(c))
	terminate(t, c)
	r.checkCounted(t, configs, 12)
	service.check(configs)
}

// R7, P8: an extractor that is stopped in the middle of a page, for longer than its session, and then goes on, adds nothing: its
// token is another's by then, and the page that it had begun never comes out.
func TestReplicaThatSleptAddsNothing(t *testing.T) {
	r := newReplicas(t, `pipeline: NAME
topics:
  NAME-out: { partitions: 4 }
extractors:
  feed:
    every: 10ms
    output_topics: NAME-out
    state: { n: 0 }
    poll: |
      for (let i = 0; i < 20; i++) {
        if (i === 8) console.log("in the middle of a page");
        const until = Date.now() + 50;
        while (Date.now() < until);
        yield Message({ value: ++state.n });
      }
      yield State(state);
`)
	a := r.start(t)
	a.Stderr.Wait(t, 0, "transaction committed")
	b := r.start(t)
	b.Stderr.Wait(t, 0, "stage started")
	middle := a.Stderr.Wait(t, a.Stderr.Len(), "in the middle of a page")
	a.Signal(t, syscall.SIGSTOP)
	took := b.Stderr.Wait(t, 0, "task running")
	b.Stderr.Wait(t, took, "transaction committed")
	asleep := a.Stderr.Len()
	for _, line := range a.Stderr.All()[middle:] {
		if strings.Contains(line, "transaction committed") {
			t.Fatalf("the page was committed before the stop took hold:\n%s", a.Stderr)
		}
	}
	a.Signal(t, syscall.SIGCONT)
	a.Stderr.WaitFor(t, asleep, "the loss of the task", func(line string) bool {
		return strings.Contains(line, "task lost") || strings.Contains(line, "task restarting") || strings.Contains(line, "transaction aborted")
	})
	b.Stderr.Wait(t, b.Stderr.Len(), "transaction committed")
	if n := len(configsOf(a, asleep)); n != 0 {
		t.Errorf("the one that had slept committed a page:\n%s", a.Stderr)
	}
	terminate(t, a)
	b.Stderr.Wait(t, b.Stderr.Len(), "transaction committed")
	terminate(t, b)
	r.checkCounted(t, 1, 60)
}
