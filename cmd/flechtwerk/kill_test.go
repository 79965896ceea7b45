package main_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/flechtwerk/flechtwerk/engine"
	"github.com/flechtwerk/flechtwerk/engine/enginetest"
	"github.com/flechtwerk/flechtwerk/store"
)

// killPoint is a place in the engine at which the process ends itself by SIGKILL when it passes it for the nth time.
type killPoint struct {
	name string
	nth  int
	// fresh removes the state folder first, so that there is something to restore.
	fresh bool
}

// killPoints are all points of the build tag faults, but for revoke and leave, which need a second instance and a signal.
var killPoints = []killPoint{
	{"after-fence", 2, false},
	{"offset-fetch", 1, false},
	{"after-takeover", 2, false},
	{"during-restore", 1, true},
	{"during-restore", 3, false},
	{"after-run", 3, false},
	{"after-produce", 3, false},
	{"after-offsets", 3, false},
	{"before-end", 8, false},
	{"end-sent", 8, false},
	{"end-sent", 11, false},
	{"end-answered", 3, false},
	{"before-apply", 4, false},
	{"after-apply", 3, false},
}

// TestKill is the crash matrix: the built binary is killed once at each named point and many times at moments of chance;
// at the end the outputs, the changelog and the state folder are exactly what an undisturbed run would have left.
//
// State is a hash chain per key, so loss, doubling, reordering and stale state all show. With FLECHTWERK_TIER=kafka it runs
// on a real Kafka with 100,000 records.
func TestKill(t *testing.T) {
	if testing.Short() {
		t.Skip("starts the binary some thirty times: left out by -short")
	}
	k := &killTest{chain: enginetest.Chain{Keys: 50, Records: 500, Seed: 1}, partitions: 4, random: 20, batch: 20}
	k.addr = anyKafka(t)
	if realTier() {
		k.chain = enginetest.Chain{Keys: 200, Records: 500, Seed: 2}
		k.batch, k.random = 100, 25
	}
	k.prepare(t)
	for _, p := range killPoints {
		k.killAt(t, p)
	}
	k.killOnRevoke(t)
	k.killOnLeave(t)
	rng := rand.New(rand.NewPCG(7, uint64(time.Now().UnixNano())))
	for i := range k.random {
		// A moment of chance: after so many lines of the log, each of which tells of one step of one task.
		lines := 12 + rng.IntN(50)
		p := k.start(t, nil)
		from := 0
		p.Stderr.WaitFor(t, 0, fmt.Sprintf("%d lines of log", lines), func(string) bool { from++; return from >= lines })
		p.Kill()
		if status := p.Status(); status != -int(syscall.SIGKILL) {
			t.Fatalf("kill %d: the process ended with %d before it was killed:\n%s", i, status, p.Stderr)
		}
	}
	if done := len(enginetest.ReadCommitted(t, enginetest.At(k.addr), k.out)); done == k.chain.Keys*k.chain.Records {
		t.Error("the work was done before the last kill: the kills came too late to prove anything")
	}
	k.finish(t)
	k.check(t)
}

// extractorKillPoints are those that a page of an extractor passes.
var extractorKillPoints = []killPoint{
	{"after-fence", 1, false},
	{"after-takeover", 1, false},
	{"during-restore", 1, true},
	{"after-produce", 2, false},
	{"after-offsets", 2, false},
	{"before-end", 3, false},
	{"end-sent", 4, false},
	{"end-answered", 2, false},
	{"before-apply", 2, false},
	{"after-apply", 2, false},
}

// TestKillExtractor kills a scripted extractor in the same way: each page commits with its cursor, so the numbers that it
// yields come out without gap and without repeat.
func TestKillExtractor(t *testing.T) {
	if testing.Short() {
		t.Skip("starts the binary some twenty times: left out by -short")
	}
	k := &killTest{partitions: 1, batch: 1000}
	k.addr = anyKafka(t)
	k.write(t, "numbers", func(name string) string {
		return fmt.Sprintf(`pipeline: %s
topics:
  %s: { partitions: 1 }
extractors:
  numbers:
    every: 5ms
    output_topics: %s
    state: { next: 0 }
    poll: |
      for (let page = 0; page < 3; page++) {
        for (let i = 0; i < 4; i++) yield Message({ key: "n", value: state.next++ });
        yield State(state);
      }
`, name, k.out, k.out)
	})
	enginetest.CreateTopic(t, enginetest.At(k.addr), k.out, 1)
	for _, p := range extractorKillPoints {
		k.killAt(t, p)
	}
	for range 10 {
		p := k.start(t, nil)
		pages := 0
		enough := 1 + rand.IntN(20)
		p.Stderr.WaitFor(t, 0, fmt.Sprintf("%d committed pages", enough), func(line string) bool {
			if strings.Contains(line, "transaction committed") {
				pages++
			}
			return pages == enough
		})
		p.Kill()
	}
	p := k.start(t, nil)
	p.Stderr.Wait(t, 0, "transaction committed")
	p.Signal(t, syscall.SIGTERM)
	if status := p.Status(); status != 0 {
		t.Fatalf("SIGTERM: exit status %d:\n%s", status, p.Stderr)
	}
	records := enginetest.ReadCommitted(t, enginetest.At(k.addr), k.out)
	for i, r := range records {
		if string(r.Value) != strconv.Itoa(i) {
			t.Fatalf("record %d is %s", i, r.Value)
		}
	}
	if len(records) < 100 {
		t.Errorf("only %d records: the extractor hardly ran", len(records))
	}
}

type killTest struct {
	chain      enginetest.Chain
	partitions int
	batch      int // records of a transaction: small, so that there are many moments to be killed at
	random     int
	addr       string

	binary, file, state, in, out, app string
}

// write builds the binary and writes the pipeline that text makes of its name, with the one stage, once all other names are made.
func (k *killTest) write(t *testing.T, stage string, text func(name string) string) {
	t.Helper()
	dir := t.TempDir()
	k.binary = enginetest.Build(t, "github.com/flechtwerk/flechtwerk/cmd/flechtwerk", "faults")
	name := enginetest.Unique("kill")
	k.in, k.out, k.app, k.state = name+"-in", name+"-out", name+"-"+stage, filepath.Join(dir, "state")
	k.file = filepath.Join(dir, "kill.yaml")
	if err := os.WriteFile(k.file, []byte(text(name)), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (k *killTest) prepare(t *testing.T) {
	t.Helper()
	k.write(t, "chain", func(name string) string { return k.chain.Pipeline(name, k.in, k.out, k.partitions) })
	opts := enginetest.At(k.addr)
	enginetest.CreateTopic(t, opts, k.in, int32(k.partitions))
	enginetest.CreateTopic(t, opts, k.out, int32(k.partitions))
	enginetest.Produce(t, opts, k.chain.Inputs(k.in)...)
}

// start runs the binary on the state folder.
func (k *killTest) start(t *testing.T, env []string) *enginetest.Process {
	return k.startOn(t, k.state, env)
}

func (k *killTest) startOn(t *testing.T, state string, env []string) *enginetest.Process {
	t.Helper()
	return enginetest.Start(t, enginetest.Command{Path: k.binary, Env: env, Args: []string{"run", k.file, "--log-level", "debug",
		"-s", "kafka.brokers=" + k.addr, "-s", "kafka.session_timeout=1s", "-s", "state.dir=" + state, "-s", "http.listen=127.0.0.1:0",
		"-s", fmt.Sprintf("batch.records=%d", k.batch), "-s", "commit.interval=10ms"}})
}

// died asserts that the process was killed by the point, and not by anything else.
func died(t *testing.T, p *enginetest.Process, point string) {
	t.Helper()
	select {
	case <-p.Ended():
	case <-time.After(time.Minute):
		t.Fatalf("kill point %s was not reached within a minute:\n%s", point, p.Stderr)
	}
	if status := p.Status(); status != -int(syscall.SIGKILL) || !strings.Contains(p.Stderr.String(), "kill point "+point) {
		t.Fatalf("kill point %s did not fire, the process ended with %d:\n%s", point, status, p.Stderr)
	}
}

func (k *killTest) killAt(t *testing.T, point killPoint) {
	t.Helper()
	if point.fresh {
		if err := os.RemoveAll(k.state); err != nil {
			t.Fatal(err)
		}
	}
	died(t, k.start(t, []string{fmt.Sprintf("FLECHTWERK_KILL=%s:%d", point.name, point.nth)}), point.name)
}

// killOnRevoke lets a second instance join, so that the first has to give up tasks, and is killed while it does.
func (k *killTest) killOnRevoke(t *testing.T) {
	t.Helper()
	a := k.start(t, []string{"FLECHTWERK_KILL=revoke:1"})
	a.Stderr.Wait(t, 0, "task running")
	b := k.startOn(t, t.TempDir(), nil)
	died(t, a, "revoke")
	b.Stderr.Wait(t, 0, "transaction committed")
	b.Kill()
}

// killOnLeave is killed when it has drained after SIGTERM, before it leaves the group.
func (k *killTest) killOnLeave(t *testing.T) {
	t.Helper()
	p := k.start(t, []string{"FLECHTWERK_KILL=leave:1"})
	p.Stderr.Wait(t, 0, "transaction committed")
	p.Signal(t, syscall.SIGTERM)
	died(t, p, "leave")
}

// finish lets the work come to its end, undisturbed, and ends the process by SIGTERM.
func (k *killTest) finish(t *testing.T) {
	t.Helper()
	p := k.start(t, nil)
	counts := map[int32]int64{}
	for _, r := range enginetest.ReadCommitted(t, enginetest.At(k.addr), k.in) {
		counts[r.Partition]++
	}
	p.Stderr.Wait(t, 0, "task running")
	enginetest.WaitOffsets(t, enginetest.At(k.addr), k.app, map[string]map[int32]int64{k.in: counts})
	p.Signal(t, syscall.SIGTERM)
	if status := p.Status(); status != 0 {
		t.Fatalf("SIGTERM: exit status %d:\n%s", status, p.Stderr)
	}
}

// check compares outputs, changelog and state folder with what the inputs say.
func (k *killTest) check(t *testing.T) {
	t.Helper()
	opts := enginetest.At(k.addr)
	out := enginetest.ReadCommitted(t, opts, k.out)
	states := enginetest.Fold(t, opts, k.app+"-changelog")
	local := k.local(t)
	for what, err := range map[string]error{
		"outputs":                k.chain.CheckOutput(out, enginetest.Complete),
		"changelog":              k.chain.CheckState(states, enginetest.Complete),
		"outputs and changelog":  k.chain.CheckAgreement(out, states),
		"state folder":           k.chain.CheckState(local, enginetest.Complete),
		"outputs and the folder": k.chain.CheckAgreement(out, local),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// local reads the state folder as the process left it.
func (k *killTest) local(t *testing.T) map[string]string {
	t.Helper()
	db, err := store.Open(store.Config{Dir: k.state})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	states := map[string]string{}
	for p := range int32(k.partitions) {
		all, failure := db.Partition(k.app, p).All()
		for key, value := range all {
			if engine.Token(key, k.partitions) != p {
				t.Errorf("key %q lies in partition %d of the state folder", key, p)
			}
			states[key] = string(slices.Clone(value))
		}
		if err := failure(); err != nil {
			t.Fatal(err)
		}
	}
	return states
}
