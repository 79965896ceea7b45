package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flechtwerk/flechtwerk/engine/devcluster"
	"github.com/flechtwerk/flechtwerk/engine/enginetest"
)

const runPipeline = `
pipeline: shop
topics:
  orders:
    partitions: 2
    seed:
      key: id
      records:
        - { id: a, n: 1 }
        - { id: b, n: 2 }
        - { id: c, n: 3 }
  doubled: { partitions: 2 }
transformers:
  double:
    input_topics: orders
    output_topics: doubled
    transform: |
      yield Message({ value: { id: msg.key, n: msg.value.n * 2 } });
`

func broker(t *testing.T) string {
	t.Helper()
	c, err := devcluster.Start(devcluster.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c.Addrs()[0]
}

// started is a run in this process.
type started struct {
	t              *testing.T
	stdout, stderr enginetest.Lines
	cancel         context.CancelFunc
	status         chan int
}

// linesWriter splits what it is given into lines.
type linesWriter struct {
	lines *enginetest.Lines
	rest  string
}

func (w *linesWriter) Write(p []byte) (int, error) {
	w.rest += string(p)
	for {
		line, rest, ok := strings.Cut(w.rest, "\n")
		if !ok {
			return len(p), nil
		}
		w.lines.Add(line)
		w.rest = rest
	}
}

// start starts a run without any environment.
func start(t *testing.T, args ...string) *started {
	t.Helper()
	return startIn(t, nil, args...)
}

func startIn(t *testing.T, env []string, args ...string) *started {
	t.Helper()
	s := &started{t: t, status: make(chan int, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	p := &program{env: env, stdout: &linesWriter{lines: &s.stdout}, stderr: &linesWriter{lines: &s.stderr}}
	go func() {
		s.status <- p.start(ctx, args)
		s.stdout.End()
		s.stderr.End()
	}()
	t.Cleanup(func() {
		cancel()
		if t.Failed() {
			t.Logf("the last of the log:\n%s", s.stderr.Last())
		}
	})
	return s
}

// wait is the exit status.
func (s *started) wait() int {
	s.t.Helper()
	select {
	case status := <-s.status:
		return status
	case <-time.After(time.Minute):
		s.t.Fatalf("the run does not end:\n%s", s.stderr.String())
	}
	return -1
}

func (s *started) stop() int { s.cancel(); return s.wait() }

func TestRunDev(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	s := start(t, "run", write(t, t.TempDir(), "shop.yaml", runPipeline), "--dev", "--print", "doubled", "--log-level", "debug", "-s", "http.listen="+taken.Addr().String())
	n := 0
	s.stdout.WaitFor(t, 0, "three records", func(string) bool { n++; return n == 3 })
	got := map[string]string{}
	for _, line := range s.stdout.All() {
		var r struct {
			Topic, Key string
			Value      json.RawMessage
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil || r.Topic != "doubled" {
			t.Fatalf("%v: %s", err, line)
		}
		got[r.Key] = string(r.Value)
	}
	want := map[string]string{"a": `{"id":"a","n":2}`, "b": `{"id":"b","n":4}`, "c": `{"id":"c","n":6}`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}

	s.stderr.Wait(t, s.stderr.Wait(t, 0, "task running")+1, "task running")
	log := s.stderr.String()
	for _, text := range []string{"nothing outlives it", "kafka=127.0.0.1:", "topic seeded", "the port of http.listen is taken", "stage=shop/double"} {
		if !strings.Contains(log, text) {
			t.Errorf("the log does not say %q", text)
		}
	}
	address := regexp.MustCompile(`address=(\S+)`).FindStringSubmatch(log)
	if address == nil || address[1] == taken.Addr().String() {
		t.Fatalf("no other port in\n%s", log)
	}
	resp, err := http.Get("http://" + address[1] + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	var ready ready
	if err := json.NewDecoder(resp.Body).Decode(&ready); err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK || !ready.Ready || len(ready.Stages) != 1 || len(ready.Stages[0].Tasks) != 2 {
		t.Errorf("%d %+v", resp.StatusCode, ready)
	}

	awaitSamples(t, "http://"+address[1]+"/metrics",
		`flechtwerk_tasks{phase="running",pipeline="shop",stage="double"} 2`,
		`flechtwerk_tasks{phase="restoring",pipeline="shop",stage="double"} 0`,
		`flechtwerk_records_in_total{pipeline="shop",stage="double"} 3`,
		`flechtwerk_records_out_total{pipeline="shop",stage="double",topic="doubled"} 3`,
		`flechtwerk_state_store_bytes`, `flechtwerk_state_store_memory_bytes`)

	// V2: no line of the log holds a payload, whatever the level.
	if strings.Contains(log, `"n"`) || strings.Contains(log, `\"n\"`) {
		t.Errorf("a payload is in the log:\n%s", log)
	}
	if status := s.stop(); status != 0 {
		t.Errorf("exit status %d:\n%s", status, s.stderr.String())
	}
}

// awaitSamples returns when each of the samples is served: a record may be seen a moment before its transaction is counted.
func awaitSamples(t *testing.T, url string, samples ...string) {
	t.Helper()
	var missing string
	for range 1500 {
		resp, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		missing = ""
		for _, sample := range samples {
			if !strings.Contains(string(text), "\n"+sample) {
				missing = sample
			}
		}
		if missing == "" {
			return
		}
		<-time.After(20 * time.Millisecond)
	}
	t.Errorf("%s does not serve %s", url, missing)
}

// D2: a missing topic ends the run with 3 and the command that creates it; that command creates and seeds it; then it runs.
func TestD2TopicsApplyThenRun(t *testing.T) {
	dir := t.TempDir()
	file := write(t, dir, "shop.yaml", runPipeline)
	kafka := []string{"-s", "kafka.brokers=" + broker(t), "-s", "http.listen=off", "-s", "state.dir=" + filepath.Join(dir, "state")}
	with := func(args ...string) []string { return append(args, kafka...) }

	got := flechtwerk(t, nil, with("run", file)...)
	if got.status != exitSurroundings || !strings.Contains(got.stderr, "orders") || !strings.Contains(got.stderr, "flechtwerk topics apply "+file) {
		t.Errorf("run: %+v", got)
	}
	got = flechtwerk(t, nil, with("topics", "plan", file)...)
	want := `+ create   orders (2 partitions)
+ seed     orders
             from the pipeline file, key id
+ create   doubled (2 partitions)

3 to do, 0 for you to look at
`
	if diff := cmp.Diff(outcome{0, want, ""}, got, cmp.AllowUnexported(outcome{})); diff != "" {
		t.Error(diff)
	}
	if got := flechtwerk(t, nil, with("topics", "apply", file)...); got.status != 0 || !strings.Contains(got.stdout, "3 done, 0 for you to look at") {
		t.Errorf("apply: %+v", got)
	}
	got = flechtwerk(t, nil, with("topics", "apply", file)...)
	if want := "  ok       orders (2 partitions)\n  ok       doubled (2 partitions)\n\n0 done, 0 for you to look at\n"; got.stdout != want || got.status != 0 {
		t.Errorf("apply again: %+v", got)
	}
	got = flechtwerk(t, nil, with("topics", "plan", "--json", file)...)
	var plan struct {
		Steps []struct {
			Topic, Action string
			Have          int
		}
		Changes, Unmet int
	}
	if err := json.Unmarshal([]byte(got.stdout), &plan); err != nil || len(plan.Steps) != 2 || plan.Steps[0].Action != "ok" || plan.Steps[0].Have != 2 {
		t.Errorf("%v: %s", err, got.stdout)
	}

	s := start(t, with("run", file, "--stage", "double", "--log-format", "json")...)
	s.stderr.Wait(t, s.stderr.Wait(t, 0, "task running")+1, "task running")
	if status := s.stop(); status != 0 {
		t.Errorf("exit status %d:\n%s", status, s.stderr.String())
	}
	for _, line := range s.stderr.All() {
		if !json.Valid([]byte(line)) {
			t.Errorf("no JSON: %s", line)
		}
	}

	changed := write(t, dir, "changed.yaml", strings.Replace(runPipeline, "doubled: { partitions: 2 }", "doubled: { partitions: 3 }", 1))
	got = flechtwerk(t, nil, with("topics", "apply", changed)...)
	if got.status != exitSurroundings || !strings.Contains(got.stdout, "~ differs  doubled\n             partitions: 3 wanted, 2 there") {
		t.Errorf("apply of a change: %+v", got)
	}

	// run verifies the listed settings of declared topics.
	write(t, dir, "changed.yaml", strings.Replace(runPipeline, "doubled: { partitions: 2 }", "doubled: { config: { cleanup.policy: compact } }", 1))
	got = flechtwerk(t, nil, with("run", changed)...)
	if got.status != exitSurroundings || !strings.Contains(got.stderr, "topic doubled: cleanup.policy: compact wanted, delete there") {
		t.Errorf("run with a changed topic: %+v", got)
	}
}

// A body that throws ends the run with 1; the message shows the place in the file, the causes and the stack, and not the
// payload (V2).
func TestV1FailEndsWithOne(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	write(t, dir, "shop.yaml", strings.Replace(runPipeline, "      yield Message", "      if (msg.key === 'b') check();\n      yield Message", 1)+`
functions: |
  function check() { throw new Error('not b', { cause: new TypeError('deep') }); }
`)
	got := flechtwerk(t, nil, "run", "shop.yaml", "--dev", "-s", "http.listen=off")
	end := got.stderr[strings.Index(got.stderr, "flechtwerk: "):]
	lines := strings.SplitAfter(end, "\n")
	want := `
shop.yaml:22:28: error script.error: Error: not b
     22 |   function check() { throw new Error('not b', { cause: new TypeError('deep') }); }
        |                            ^
     at check (shop.yaml:22:28)
     at shop.yaml:18:33
     caused by TypeError: deep (shop.yaml:22:56)
`
	if diff := cmp.Diff(want, strings.Join(lines[1:], "")); diff != "" {
		t.Error(diff)
	}
	if got.status != exitFailed || !strings.HasPrefix(lines[0], `flechtwerk: shop/double/`) || !strings.Contains(lines[0], `key "b": Error: not b`) {
		t.Errorf("%d %s", got.status, lines[0])
	}
	if strings.Contains(got.stderr, `"n"`) {
		t.Errorf("a payload is shown: %s", got.stderr)
	}

	got = flechtwerk(t, nil, "run", "shop.yaml", "--dev", "-s", "http.listen=off", "--log-format", "json")
	text := strings.TrimSpace(got.stderr)
	var last struct {
		Msg, Code     string
		ExitStatus    int `json:"exit_status"`
		Stack, Causes []string
	}
	if err := json.Unmarshal([]byte(text[strings.LastIndex(text, "\n")+1:]), &last); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	if last.Msg != "run ended" || last.Code != "script.error" || last.ExitStatus != exitFailed || len(last.Stack) != 2 || len(last.Causes) != 1 {
		t.Errorf("got %+v", last)
	}
}

// What the engine commits is printed, however long it takes to find out where a topic ends, and however soon the run is stopped.
func TestPrintMissesNothing(t *testing.T) {
	k := enginetest.NewFake(t, enginetest.FakeConfig{})
	k.CreateTopic(t, "orders", 2)
	k.CreateTopic(t, "doubled", 2)
	enginetest.ProduceKeyed(t, k.Opts(), "orders", `a {"n":1}`, `b {"n":2}`, `c {"n":3}`)
	offsets := map[string]map[int32]int64{"orders": {}}
	for _, r := range enginetest.ReadCommitted(t, k.Opts(), "orders") {
		offsets["orders"][r.Partition] = r.Offset + 1
	}
	late := k.DelayEnds(500*time.Millisecond, "doubled")
	dir := t.TempDir()
	s := start(t, "run", write(t, dir, "shop.yaml", runPipeline), "--print", "doubled",
		"-s", "kafka.brokers="+k.Addrs()[0], "-s", "http.listen=off", "-s", "state.dir="+filepath.Join(dir, "state"))
	enginetest.WaitOffsets(t, k.Opts(), "shop-double", offsets)
	if late.Fired() == 0 {
		t.Error("nobody asked where the topic ends")
	}
	late.Remove()
	if status := s.stop(); status != 0 {
		t.Errorf("exit status %d", status)
	}
	for _, key := range []string{"a", "b", "c"} {
		s.stdout.Wait(t, 0, `"key":"`+key+`"`)
	}
}

func TestRunRefused(t *testing.T) {
	dir := t.TempDir()
	file := write(t, dir, "shop.yaml", runPipeline)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	kafka := broker(t)
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"--dev", "--stage", "duoble"}, exitWrong, `--stage: no pipeline has a stage "duoble"; did you mean "double"?`},
		{[]string{"--dev", "--print", "nowhere"}, exitWrong, `--print: no pipeline has a topic "nowhere"; there are doubled, orders`},
		{[]string{"-s", "kafka.brokers=" + kafka, "-s", "http.listen=" + taken.Addr().String()}, exitSurroundings, "http.listen"},
		{[]string{"-s", "kafka.brokers=" + kafka, "-s", "http.listen=off", "-s", "state.dir=" + file}, exitSurroundings, "state.dir " + file},
	} {
		got := flechtwerk(t, nil, append([]string{"run", file}, c.args...)...)
		if got.status != c.status || !strings.Contains(got.stderr, c.want) {
			t.Errorf("%v: %+v", c.args, got)
		}
	}
	broken := write(t, dir, "broken.yaml", "pipeline: x\ntransformers: 1\n")
	if got := flechtwerk(t, nil, "run", broken, "--dev"); got.status != exitWrong || !strings.Contains(got.stderr, "broken.yaml:2:") || got.stdout != "" {
		t.Errorf("broken: %+v", got)
	}
}

// D7: a broker that is not there.
func TestD7NoBroker(t *testing.T) {
	dir := t.TempDir()
	got := flechtwerk(t, nil, "run", write(t, dir, "shop.yaml", runPipeline), "-s", "kafka.brokers=127.0.0.1:1", "-s", "http.listen=off", "-s", "state.dir="+filepath.Join(dir, "state"))
	if got.status != exitSurroundings || !strings.Contains(got.stderr, "127.0.0.1:1") {
		t.Errorf("got %+v", got)
	}
}

// R8: the first signal drains, the second ends at once with 128 plus its number. The body loops, so that draining lasts.
func TestR8SecondSignal(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the binary: left out by -short")
	}
	t.Parallel()
	dir := t.TempDir()
	file := write(t, dir, "loop.yaml", strings.Replace(runPipeline, "      yield Message", "      console.info('looping');\n      for (;;) {}\n      yield Message", 1))
	binary := enginetest.Build(t, "github.com/flechtwerk/flechtwerk/cmd/flechtwerk")
	for _, c := range []struct {
		signal syscall.Signal
		status int
	}{{syscall.SIGINT, 130}, {syscall.SIGTERM, 143}} {
		p := enginetest.Start(t, enginetest.Command{Path: binary, Dir: dir, Args: []string{"run", file, "--dev", "-s", "http.listen=off", "-s", "shutdown.timeout=5m"}})
		p.Stderr.Wait(t, 0, "looping")
		p.Signal(t, syscall.SIGTERM)
		p.Stderr.Wait(t, 0, "stopping")
		p.Signal(t, c.signal)
		<-time.After(2 * sameSignal) // what comes sooner is the same signal
		p.Signal(t, c.signal)
		if status := p.Status(); status != c.status {
			t.Errorf("exit status %d, want %d:\n%s", status, c.status, p.Stderr)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("a development run left something behind: %v, %v", entries, err)
	}
}
