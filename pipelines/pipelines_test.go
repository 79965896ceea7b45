// Package pipelines_test runs the examples as a user does: the built command, with the broker inside the process.
package pipelines_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
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
	kafka   string
}

func run(t *testing.T, file, print string, env ...string) *example {
	t.Helper()
	return runWith(t, []string{file, "--print", print}, env...)
}

func runWith(t *testing.T, args []string, env ...string) *example {
	t.Helper()
	e := &example{t: t}
	e.process = enginetest.Start(t, enginetest.Command{
		Path: enginetest.Build(t, "github.com/flechtwerk/flechtwerk/cmd/flechtwerk"),
		Args: append([]string{"run", "--dev", "--log-format", "json", "-s", "http.listen=127.0.0.1:0"}, args...),
		Env:  env,
	})
	e.process.Stderr.WaitFor(t, 0, "the address of HTTP", func(line string) bool {
		var l struct{ Address, Kafka string }
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Errorf("a line of the log is no JSON: %s", line)
		}
		if e.address = l.Address; l.Kafka != "" {
			e.kafka = l.Kafka
		}
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

// command runs another flechtwerk on the Kafka of the example and answers its output.
func (e *example) command(status int, args ...string) string {
	e.t.Helper()
	p := enginetest.Start(e.t, enginetest.Command{
		Path: enginetest.Build(e.t, "github.com/flechtwerk/flechtwerk/cmd/flechtwerk"),
		Args: append(args, "-s", "kafka.brokers="+e.kafka),
	})
	if got := p.Status(); got != status {
		e.t.Fatalf("flechtwerk %v: exit status %d, want %d:\n%s", args, got, status, p.Stderr)
	}
	return p.Stdout.String()
}

// get is what HTTP answers.
func (e *example) get(path string, status int) string {
	e.t.Helper()
	resp, err := http.Get("http://" + e.address + path)
	if err != nil {
		e.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != status {
		e.t.Fatalf("%s: %d %v", path, resp.StatusCode, err)
	}
	return string(text)
}

// await returns when the sample of /metrics has the value.
func (e *example) await(sample string, value int) {
	e.t.Helper()
	want := fmt.Sprintf("%s %d\n", sample, value)
	for range 3000 {
		if strings.Contains(e.get("/metrics", http.StatusOK), want) {
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

// The towns of a config topic, on a server that stands in for Open-Meteo: where each lies is asked once, and what is asked
// about its weather is of that place.
func TestTownTemperatures(t *testing.T) {
	t.Parallel()
	places := map[string][2]float64{"Oslo NO": {59.91, 10.75}, "Bergen NO": {60.39, 5.32}, "Almería ES": {36.84, -2.46}, "Quito EC": {-0.23, -78.52}, "Narvik NO": {68.44, 17.43}}
	var mu sync.Mutex
	asked, measured := map[string]int{}, map[string]int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		q := r.URL.Query()
		switch r.URL.Path {
		case "/v1/search":
			town := q.Get("name") + " " + q.Get("countryCode")
			asked[town]++
			at, known := places[town]
			if !known || q.Get("count") != "1" {
				fmt.Fprint(w, `{"generationtime_ms":0.4}`)
				return
			}
			fmt.Fprintf(w, `{"results":[{"name":"x","latitude":%v,"longitude":%v,"timezone":"Zone/%s"}]}`, at[0], at[1], q.Get("countryCode"))
		case "/v1/forecast":
			place := q.Get("latitude") + " " + q.Get("longitude")
			measured[place]++
			time := measured[place] / 2 // each hour is told twice
			fmt.Fprintf(w, `{"current":{"time":%d,"temperature_2m":%s}}`, 3600*time, q.Get("latitude"))
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	const file = "town-temperatures.yaml"
	e := run(t, file, "town-temperatures", "PLACES_URL="+server.URL, "WEATHER_URL="+server.URL)
	const configs = `flechtwerk_configs{pipeline="town-temperatures",stage="stations",state=%q}`
	const enrichments = `flechtwerk_enrichments_total{outcome=%q,pipeline="town-temperatures",stage="stations"}`
	e.await(fmt.Sprintf(enrichments, "ended"), 4)

	e.command(0, "config", "put", file, "narvik", `{"name":"Narvik","country":"NO","every":"50ms"}`)
	e.process.Stdout.WaitFor(t, 0, "three temperatures of Narvik", func(line string) bool {
		return strings.Contains(line, `"narvik"`) && strings.Contains(line, `"timestamp":10800000`)
	})
	if got, want := e.command(0, "state", "list", file, "stations", "--prefix", "narvik"), "narvik\t{\"time\":"; !strings.HasPrefix(got, want) || strings.Contains(got, "enrich") {
		t.Errorf("the state is shown as %q", got)
	}

	// A town that nobody knows backs off alone, until it is mended.
	e.command(0, "config", "put", file, "atlantis", `{"name":"Atlantis","country":"GR"}`)
	e.await(fmt.Sprintf(configs, "backing_off"), 1)
	e.await(fmt.Sprintf(configs, "ok"), 5)
	if text := e.get("/readyz", 200); !strings.Contains(text, `"config": "atlantis"`) || !strings.Contains(text, "enrich: Error: no town in GR is called Atlantis") {
		t.Errorf("/readyz says %s", text)
	}
	e.command(0, "config", "put", file, "atlantis", `{"name":"Oslo","country":"NO"}`)
	e.await(fmt.Sprintf(configs, "backing_off"), 0)
	e.await(fmt.Sprintf(configs, "ok"), 6)
	e.stop()

	mu.Lock()
	defer mu.Unlock()
	if asked["Atlantis GR"] == 0 {
		t.Error("nobody asked for Atlantis")
	}
	delete(asked, "Atlantis GR")
	if diff := cmp.Diff(map[string]int{"Oslo NO": 2, "Bergen NO": 1, "Almería ES": 1, "Quito EC": 1, "Narvik NO": 1}, asked); diff != "" {
		t.Error("where towns lie was asked (-want +got):\n" + diff)
	}
	last := int64(0)
	for _, line := range e.process.Stdout.All() {
		var r record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if r.Key != "narvik" {
			continue
		}
		if r.Timestamp != last+3600000 || string(r.Value) != `{"town":"Narvik","celsius":68.44,"zone":"Zone/NO"}` {
			t.Errorf("after %d comes %d with %s", last, r.Timestamp, r.Value)
		}
		last = r.Timestamp
	}
}

// The solar plants of a config topic: those that the seed has, and those that come, change and go while the pipeline runs.
func TestSolarSites(t *testing.T) {
	t.Parallel()
	// A height that an almanac knows: at the equinox of 2024 the sun stood over the equator, at 03:06 UTC at about 135.4° east.
	if h := sunHeight(0, 135.4, time.Date(2024, 3, 20, 3, 6, 0, 0, time.UTC)); h < 0.9999 {
		t.Fatalf("the sun is %v high where it stood in the zenith", h)
	}
	now := time.Now().UTC()
	noon := 180 - 15*(float64(now.Hour())+float64(now.Minute())/60) // the meridian where it is noon, so that the plant delivers
	plant := func(latitude any, more string) string {
		return fmt.Sprintf(`{"latitude":%v,"longitude":%v,"kwp":30,"every":"100ms"%s}`, latitude, noon, more)
	}
	const configs = `flechtwerk_configs{pipeline="solar-sites",stage="plants",state=%q}`
	polled := func(e *example, ok, backingOff int) {
		t.Helper()
		e.await(fmt.Sprintf(configs, "ok"), ok)
		e.await(fmt.Sprintf(configs, "backing_off"), backingOff)
	}
	const file = "solar-sites.yaml"
	e := run(t, file, "solar-power")
	polled(e, 4, 0) // the wind park is none

	e.command(0, "config", "put", file, "noon", plant(0, ""))
	of := func(key string) []solar {
		t.Helper()
		var out []solar
		for _, line := range e.process.Stdout.All() {
			var r struct {
				Key   string
				Value solar
			}
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			if r.Key == key {
				out = append(out, r.Value)
			}
		}
		return out
	}
	wait := func(key string, n int) {
		t.Helper()
		e.process.Stdout.WaitFor(t, 0, fmt.Sprintf("%d records of %s", n, key), func(line string) bool {
			if strings.Contains(line, `"key":"`+key+`"`) {
				n--
			}
			return n <= 0
		})
	}
	wait("noon", 3)
	polled(e, 5, 0)

	// P5: a suspended config is not polled and keeps its state.
	e.command(0, "config", "put", file, "noon", plant(0, `,"suspended":true`))
	polled(e, 4, 0)
	var state struct{ KWh json.Number }
	if text := e.command(0, "state", "get", file, "plants", "noon"); json.Unmarshal([]byte(text), &state) != nil {
		t.Fatalf("the state is %s", text)
	}
	e.process.Stdout.Wait(t, 0, `"kwh":`+state.KWh.String()+"}")
	before := len(of("noon"))
	e.command(0, "config", "put", file, "noon", plant(0, ""))
	wait("noon", before+2)

	// One that cannot be calculated backs off alone, until it is mended.
	e.command(2, "config", "put", file, "other", `{"latitude":0,"longitude":0}`)
	e.command(0, "config", "put", file, "other", plant(`"north"`, ""))
	polled(e, 5, 1)
	if text := e.get("/readyz", 200); !strings.Contains(text, `"config": "other"`) || !strings.Contains(text, "latitude is no number") {
		t.Errorf("/readyz says %s", text)
	}
	e.command(0, "config", "put", file, "other", plant(0, ""))
	polled(e, 6, 0)
	wait("other", 2)

	// A tombstone ends the polls.
	e.command(0, "config", "delete", file, "noon", "other")
	polled(e, 4, 0)
	for _, key := range []string{"berlin-adlershof", "almeria", "quito", "alice-springs"} {
		wait(key, 1)
	}
	e.stop()

	sites := map[string]site{"noon": {0, noon, 30}, "other": {0, noon, 30}, "berlin-adlershof": {52.4316, 13.5331, 120},
		"almeria": {36.8381, -2.4597, 2500}, "quito": {-0.1807, -78.4678, 80}, "alice-springs": {-23.6980, 133.8807, 450}}
	for key, s := range sites {
		kwh, last := 0.0, time.Time{}
		for _, r := range of(key) {
			if want := s.power(r.At); math.Abs(r.KW-want) > 1e-6*s.kwp {
				t.Errorf("%s at %v: %v kW, want %v", key, r.At, r.KW, want)
			}
			if !last.IsZero() {
				kwh += s.power(last) * r.At.Sub(last).Hours() // less than a minute, so one step
			}
			if last = r.At; math.Abs(r.KWh-kwh) > 1e-6*s.kwp {
				t.Errorf("%s at %v: %v kWh, want %v", key, r.At, r.KWh, kwh)
			}
			if r.Site != key {
				t.Errorf("a record of %s has the site %s", key, r.Site)
			}
		}
	}
	if n := len(of("berlin-tegel")); n != 0 {
		t.Errorf("the wind park has %d records", n)
	}
	if r := of("noon"); r[len(r)-1].KW < 20 {
		t.Errorf("at noon %v", r[len(r)-1])
	}
}

// solar is a record of solar-power.
type solar struct {
	Site    string
	At      time.Time
	KW, KWh float64
}

type site struct{ latitude, longitude, kwp float64 }

func (s site) power(at time.Time) float64 {
	h := sunHeight(s.latitude, s.longitude, at)
	if h <= 0 {
		return 0
	}
	return s.kwp * 1.098 * h * math.Exp(-0.057/h) * (1 - 0.14)
}

// sunHeight is the sine of the sun's height over the horizon, as solar-sites.yaml calculates it.
func sunHeight(latitude, longitude float64, at time.Time) float64 {
	radians := func(degrees float64) float64 { return degrees * math.Pi / 180 }
	d := float64(at.UnixMilli()-946728000000) / 86400000
	anomaly := radians(357.529 + 0.98560028*d)
	along := radians(280.459 + 0.98564736*d + 1.915*math.Sin(anomaly) + 0.02*math.Sin(2*anomaly))
	tilt := radians(23.439 - 0.00000036*d)
	ascension := math.Atan2(math.Cos(tilt)*math.Sin(along), math.Cos(along))
	declination := math.Asin(math.Sin(tilt) * math.Sin(along))
	hour := radians(15*(18.697374558+24.06570982441908*d)+longitude) - ascension
	lat := radians(latitude)
	return math.Sin(lat)*math.Sin(declination) + math.Cos(lat)*math.Cos(declination)*math.Cos(hour)
}

func TestTankMonitor(t *testing.T) {
	e := runWith(t, []string{"tank-monitor.yaml", "--print", "tank-alerts,tank-readings,tank-invalid", "--publish", "data/tank-levels.ndjson"},
		"MQTT_URL=mqtt://"+enginetest.FreeAddr(t))
	// Seven readings, of which one came twice; one message that is none; three alerts.
	got := map[string][]string{}
	for _, r := range e.records(7 + 1 + 3) {
		got[r.Topic+"/"+r.Key] = append(got[r.Topic+"/"+r.Key], string(r.Value))
	}
	want := map[string][]string{
		"tank-readings/t1": {
			`{"seq":1,"temperature":80,"unit":"C"}`, `{"seq":2,"temperature":95,"unit":"C"}`, `{"seq":3,"temperature":88,"unit":"C"}`, `{"seq":4,"temperature":60,"unit":"C"}`,
		},
		"tank-readings/t2": {
			`{"seq":1,"temperature":60.5,"unit":"C"}`, `{"seq":2,"temperature":61,"unit":"C"}`, `{"seq":3,"temperature":140,"unit":"C"}`,
		},
		"tank-alerts/t1":              {`{"tank":"t1","seq":2,"mean":87.5}`, `{"tank":"t1","seq":3,"mean":87.66666666666667}`},
		"tank-alerts/t2":              {`{"tank":"t2","seq":3,"mean":87.16666666666667}`},
		"tank-invalid/tanks/t3/level": {""},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what was written (-want +got):\n%s", diff)
	}
	e.await(`flechtwerk_mqtt_messages_total{outcome="acknowledged",pipeline="tank-monitor",stage="bridge"}`, 9)
	e.await(`flechtwerk_mqtt_connected{pipeline="tank-monitor",stage="bridge"}`, 1)
	e.await(`flechtwerk_mqtt_inbox_messages{pipeline="tank-monitor",stage="bridge"}`, 0)
	if ready := e.get("/readyz", http.StatusOK); !strings.Contains(ready, `"connected": true`) {
		t.Error(ready)
	}
	e.stop()
}
