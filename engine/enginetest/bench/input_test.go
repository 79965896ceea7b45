package main

import (
	"encoding/json"
	"testing"
)

func TestInputIsWhatTheBenchmarkSays(t *testing.T) {
	in, again := newInput(1), newInput(1)
	const n = 20_000
	bytes, hot := 0, 0
	keys := map[string]bool{}
	for range n {
		key, value, at := in.Next()
		if _, v, _ := again.Next(); string(v) != string(value) {
			t.Fatal("equal seeds make unequal readings")
		}
		var members map[string]any
		if err := json.Unmarshal(value, &members); err != nil {
			t.Fatalf("%s: %v", value, err)
		}
		objects, arrays := 0, 0
		for _, m := range members {
			switch m.(type) {
			case map[string]any:
				objects++
			case []any:
				arrays++
			}
		}
		if len(members) != 12 || objects != 1 || arrays != 1 {
			t.Fatalf("%d members, %d objects, %d arrays: %s", len(members), objects, arrays, value)
		}
		if string(key) != members["sensor_id"] || at.Format("2006-01-02T15:04:05.000Z") != members["timestamp"] {
			t.Fatalf("key %s, time %v: %s", key, at, value)
		}
		keys[string(key)] = true
		bytes += len(value)
		if members["temperature"].(float64) > 85 {
			hot++
		}
	}
	if mean := bytes / n; mean < 320 || mean > 340 {
		t.Errorf("a reading has %d bytes at the mean, want about 330", mean)
	}
	if share := float64(hot) / n; share < 0.28 || share > 0.30 {
		t.Errorf("%.3f are above 85 degrees, want 0.29", share)
	}
	if len(keys) != sensors {
		t.Errorf("%d keys, want %d", len(keys), sensors)
	}
}
