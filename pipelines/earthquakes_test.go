package pipelines_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flechtwerk/flechtwerk/connectors/connectortest"
)

// quake is a feature of the feed.
type quake struct {
	ID         string
	Properties struct {
		Mag           *float64
		Place         string
		Time, Updated int64
		Status, Type  string
		URL           string
	}
}

func (q *quake) region() string {
	parts := strings.Split(q.Properties.Place, ", ")
	return parts[len(parts)-1]
}

// TestEarthquakes plays three versions of the feed, with a server in between that is overloaded for a second: each new quake
// and each revision comes once, what is not new comes not at all, and so do the alerts that follow from them.
func TestEarthquakes(t *testing.T) {
	t.Parallel()
	const day = 24 * 3600 * 1000
	type strongest struct {
		id        string
		magnitude float64
		at        int64
	}
	var (
		seen            = map[string]int64{}
		states          = map[string]strongest{}
		quakes, alerts  = map[string][]string{}, map[string][]string{}
		nQuakes, nAlert = 0, 0
		revisions       = 0
	)
	for n := 1; n <= 3; n++ {
		text, err := os.ReadFile(filepath.Join("data", "earthquakes", fmt.Sprintf("feed-%d.geojson", n)))
		if err != nil {
			t.Fatal(err)
		}
		var feed struct{ Features []quake }
		if err := json.Unmarshal(text, &feed); err != nil {
			t.Fatal(err)
		}
		slices.Reverse(feed.Features)
		now := map[string]int64{}
		for i := range feed.Features {
			q := &feed.Features[i]
			p := &q.Properties
			now[q.ID] = p.Updated
			before, known := seen[q.ID]
			if known && before == p.Updated {
				continue
			}
			if known {
				revisions++
			}
			region := q.region()
			quakes[region] = append(quakes[region], fmt.Sprintf("%d %s %v revised=%t %s", p.Time, q.ID, *p.Mag, known, p.Status))
			nQuakes++
			s, any := states[region]
			same := any && s.id == q.ID
			switch {
			case p.Type != "earthquake", any && !same && *p.Mag <= s.magnitude && p.Time-s.at < day, same && *p.Mag == s.magnitude:
				continue
			}
			states[region] = strongest{q.ID, *p.Mag, p.Time}
			if *p.Mag < 4.5 {
				continue
			}
			was := "null"
			if same {
				was = fmt.Sprint(s.magnitude)
			}
			alerts[region] = append(alerts[region], fmt.Sprintf(`{"region":%q,"magnitude":%v,"place":%q,"was":%s,"url":%q}`, region, *p.Mag, p.Place, was, p.URL))
			nAlert++
		}
		seen = now
	}
	if revisions < 5 || nAlert < 5 {
		t.Fatalf("the feeds have %d revisions and make %d alerts, too few to show anything", revisions, nAlert)
	}

	server := connectortest.NewReplay(t, filepath.Join("data", "earthquakes"))
	e := run(t, "earthquakes.yaml", "earthquakes,earthquake-alerts", "USGS_URL="+server.URL, "EARTHQUAKES_EVERY=100ms")
	e.records(nQuakes + nAlert)
	if err := server.Await(t.Context(), 8); err != nil {
		t.Fatal(err)
	}
	e.stop()
	got := map[string]map[string][]string{"earthquakes": {}, "earthquake-alerts": {}}
	for _, r := range e.records(nQuakes + nAlert) {
		text := string(r.Value)
		if r.Topic == "earthquakes" {
			var v struct {
				ID        string
				Magnitude float64
				At        time.Time
				Revised   bool
				Status    string
			}
			if err := json.Unmarshal(r.Value, &v); err != nil || v.At.UnixMilli() != r.Timestamp {
				t.Fatalf("%s at %d: %v", r.Value, r.Timestamp, err)
			}
			text = fmt.Sprintf("%d %s %v revised=%t %s", r.Timestamp, v.ID, v.Magnitude, v.Revised, v.Status)
		}
		got[r.Topic][r.Key] = append(got[r.Topic][r.Key], text)
	}
	if diff := cmp.Diff(map[string]map[string][]string{"earthquakes": quakes, "earthquake-alerts": alerts}, got); diff != "" {
		t.Errorf("what was written (-want +got):\n%s", diff)
	}
	// The first version twice, of which the second time as 304; the overload; and so on.
	conditional := 0
	for _, r := range server.Requests()[1:8] {
		if r.Header.Get("If-None-Match") != "" {
			conditional++
		}
	}
	if conditional != 7 {
		t.Errorf("%d of 7 requests say which version is known", conditional)
	}
}
