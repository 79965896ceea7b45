// Package pipelines_test runs the examples as a user does: the built command, with the broker inside the process.
package pipelines_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flechtwerk/flechtwerk/engine/enginetest"
)

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
	process *enginetest.Process
	address string // of HTTP
}

func run(t *testing.T, file, print string) *example {
	t.Helper()
	e := &example{t: t}
	e.process = enginetest.Start(t, enginetest.Command{
		Path: enginetest.Build(t, "github.com/flechtwerk/flechtwerk/cmd/flechtwerk"),
		Args: []string{"run", file, "--dev", "--print", print, "--log-format", "json", "-s", "http.listen=127.0.0.1:0"},
	})
	e.process.Stderr.WaitFor(t, 0, "the address of HTTP", func(line string) bool {
		var l struct{ Address string }
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Errorf("a line of the log is no JSON: %s", line)
		}
		e.address = l.Address
		return l.Address != ""
	})
	return e
}

// records are what was printed, once there are n or more.
func (e *example) records(n int) []record {
	e.t.Helper()
	e.process.Stdout.WaitFor(e.t, 0, fmt.Sprintf("%d records", n), func(string) bool { n--; return n <= 0 })
	var out []record
	for _, line := range e.process.Stdout.All() {
		var r record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			e.t.Fatalf("a printed line is no JSON: %s", line)
		}
		out = append(out, r)
	}
	return out
}

// stop ends the process as an orchestrator does; its exit status must be 0.
func (e *example) stop() {
	e.t.Helper()
	e.process.Signal(e.t, syscall.SIGTERM)
	if status := e.process.Status(); status != 0 {
		e.t.Errorf("exit status %d:\n%s", status, e.process.Stderr)
	}
}

// await returns when the sample of /metrics has the value.
func (e *example) await(sample string, value int) {
	e.t.Helper()
	want := fmt.Sprintf("%s %d\n", sample, value)
	for range 3000 {
		resp, err := http.Get("http://" + e.address + "/metrics")
		if err != nil {
			e.t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			e.t.Fatal(err)
		}
		if strings.Contains(string(text), want) {
			return
		}
		select {
		case <-e.process.Ended():
			e.t.Fatalf("the process ended:\n%s", e.process.Stderr)
		case <-time.After(20 * time.Millisecond):
		}
	}
	e.t.Fatalf("%s did not become %d", sample, value)
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
	for _, r := range e.records(alerts) {
		if r.Topic != "sensor-alerts" {
			t.Errorf("a record of %s is printed", r.Topic)
		}
		got[r.Key] = append(got[r.Key], string(r.Value))
	}
	e.stop()
	// Alerts of the next round may have come before the last of these.
	for key, values := range got {
		if n := len(want[key]); n > 0 && len(values) > n {
			got[key] = values[:n]
		}
	}
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
	e.records(alerts)
	e.await(`flechtwerk_records_in_total{pipeline="velocity-check",stage="velocity"}`, payments)
	e.stop()
	got := map[string][]string{}
	for _, r := range e.records(alerts) {
		got[r.Key] = append(got[r.Key], fmt.Sprintf("%d %s", r.Timestamp, r.Value))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
