// Package pipelines_test runs the examples as a user does: the built command, with the broker inside the process.
package pipelines_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var binary string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "flechtwerk")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		binary = filepath.Join(dir, "flechtwerk")
		if out, err := exec.Command("go", "build", "-o", binary, "../cmd/flechtwerk").CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

// record is one line of --print.
type record struct {
	Topic     string
	Key       string
	Timestamp int64
	Value     json.RawMessage
}

// example is a running pipeline.
type example struct {
	t       *testing.T
	cmd     *exec.Cmd
	records chan record // closed when the process has closed its output
	log     chan string // closed likewise
	address string      // of HTTP
}

func run(t *testing.T, file, print string) *example {
	t.Helper()
	e := &example{t: t, records: make(chan record), log: make(chan string, 10_000)}
	e.cmd = exec.Command(binary, "run", file, "--dev", "--print", print, "--log-format", "json", "-s", "http.listen=127.0.0.1:0")
	stdout, err := e.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := e.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := e.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.cmd.Process.Kill() })
	go func() {
		defer close(e.records)
		for lines := json.NewDecoder(stdout); ; {
			var r record
			if lines.Decode(&r) != nil {
				return
			}
			e.records <- r
		}
	}()
	go func() {
		defer close(e.log)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			select {
			case e.log <- lines.Text():
			default:
			}
		}
	}()
	for line := range e.log {
		var l struct{ Msg, Address string }
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("a log line is no JSON: %s", line)
		}
		if l.Address != "" {
			e.address = l.Address
			return e
		}
	}
	t.Fatal("the process ended before it served HTTP")
	return nil
}

// next is the next printed record.
func (e *example) next() record {
	e.t.Helper()
	select {
	case r, ok := <-e.records:
		if !ok {
			e.t.Fatalf("the process ended: %s", e.rest())
		}
		return r
	case <-time.After(time.Minute):
		e.t.Fatal("no record came within a minute")
	}
	return record{}
}

func (e *example) rest() string {
	var b strings.Builder
	for line := range e.log {
		b.WriteString(line + "\n")
	}
	return b.String()
}

// stop ends the process as an orchestrator does and answers what it had still printed. The exit status must be 0.
func (e *example) stop() []record {
	e.t.Helper()
	if err := e.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		e.t.Fatal(err)
	}
	var left []record
	for r := range e.records {
		left = append(left, r)
	}
	log := e.rest()
	if err := e.cmd.Wait(); err != nil {
		e.t.Errorf("%v\n%s", err, log)
	}
	return left
}

// await returns when the sample of /metrics that begins with name has the value.
func (e *example) await(name string, value float64) {
	e.t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		resp, err := http.Get("http://" + e.address + "/metrics")
		if err != nil {
			e.t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			e.t.Fatal(err)
		}
		for line := range bytes.Lines(text) {
			if rest, ok := bytes.CutPrefix(line, []byte(name+" ")); ok && strings.TrimSpace(string(rest)) == fmt.Sprint(value) {
				return
			}
		}
	}
	e.t.Fatalf("%s did not become %v within a minute", name, value)
}

// chance and reading are what the extractor of sensor-means.yaml computes.
func chance(seed int32) float64 {
	t := seed + 0x6d2b79f5
	shift := func(v int32, n uint) int32 { return int32(uint32(v) >> n) }
	t = (t ^ shift(t, 15)) * (t | 1)
	t ^= t + (t^shift(t, 7))*(t|61)
	return float64(uint32(t^shift(t, 14))) / 4294967296
}

func reading(round, n int) float64 {
	value := float64(60+4*n) + 6*math.Sin(float64(round+n)/10) + (4*chance(int32(round*8+n)) - 2)
	return math.Floor(value*100+0.5) / 100
}

func TestSensorMeans(t *testing.T) {
	t.Parallel()
	const rounds = 3
	want := map[string][]string{}
	alerts := 0
	for n := 1; n <= 8; n++ {
		sum := 0.0
		for round := range rounds {
			sum += reading(round, n)
			if mean := sum / float64(round+1); mean > 85 {
				key := fmt.Sprint("sensor-", n)
				want[key] = append(want[key], fmt.Sprintf(`{"sensor":%q,"mean":%v,"readings":%d}`, key, math.Floor(mean*100+0.5)/100, round+1))
				alerts++
			}
		}
	}
	if alerts < rounds {
		t.Fatalf("the readings make only %d alerts", alerts)
	}

	e := run(t, "sensor-means.yaml", "sensor-alerts")
	got := map[string][]string{}
	for range alerts {
		r := e.next()
		if r.Topic != "sensor-alerts" {
			t.Errorf("a record of %s is printed", r.Topic)
		}
		got[r.Key] = append(got[r.Key], string(r.Value))
	}
	// Alerts of the next round may have come before the last of these.
	for key, values := range got {
		if len(values) > len(want[key]) && want[key] != nil {
			got[key] = values[:len(want[key])]
		}
	}
	e.stop()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestVelocityCheck(t *testing.T) {
	t.Parallel()
	file, err := os.Open("data/transactions.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	want := map[string][]string{}
	times := map[string][]time.Time{}
	payments, alerts := 0, 0
	for lines := json.NewDecoder(file); lines.More(); payments++ {
		var p struct {
			ID, Account, Status string
			At                  string
		}
		if err := lines.Decode(&p); err != nil {
			t.Fatal(err)
		}
		if p.Status != "approved" {
			continue
		}
		at, err := time.Parse(time.RFC3339, p.At)
		if err != nil {
			t.Fatal(err)
		}
		recent := []time.Time{}
		for _, other := range append(times[p.Account], at) {
			if at.Sub(other) < time.Minute {
				recent = append(recent, other)
			}
		}
		times[p.Account] = recent
		if len(recent) > 5 {
			const layout = "2006-01-02T15:04:05.000Z"
			want[p.Account] = append(want[p.Account], fmt.Sprintf(`%d {"account":%q,"payment":%q,"payments":%d,"since":%q,"at":%q}`,
				at.UnixMilli(), p.Account, p.ID, len(recent), recent[0].Format(layout), p.At))
			alerts++
		}
	}
	if alerts == 0 {
		t.Fatal("the payments make no alert")
	}

	e := run(t, "velocity-check.yaml", "velocity-alerts")
	got := map[string][]string{}
	keep := func(r record) { got[r.Key] = append(got[r.Key], fmt.Sprintf("%d %s", r.Timestamp, r.Value)) }
	for range alerts {
		keep(e.next())
	}
	e.await(`flechtwerk_records_in_total{pipeline="velocity-check",stage="velocity"}`, float64(payments))
	for _, r := range e.stop() {
		keep(r)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
