package wording

import (
	"slices"
	"strings"
	"testing"
)

// What is suggested does not hang on the order of the candidates, and is not just any other name.
func TestNearest(t *testing.T) {
	known := []string{"a", "every", "input_topics", "map", "max", "on_error", "output_topics", "state", "state_key", "temperature", "transform", "value", "x", "über"}
	for name, want := range map[string]string{
		"input_topic": "input_topics", "transfrom": "transform", "Transform": "transform", "stat": "state", "statekey": "state_key", "evry": "every", "onerror": "on_error",
		"temprature": "temperature", "mag": "map", "VALUE": "value", "uber": "über", "": "", "y": "", "X": "x", "yz": "", "banana": "",
		strings.Repeat("x", 65): "",
	} {
		for range known {
			if got := Nearest(name, known); got != want {
				t.Errorf("%q is near %q, want %q", name, got, want)
			}
			known = append(known[1:], known[0])
		}
	}
	if got := DidYouMean("evry", known) + DidYouMean("banana", known); got != `did you mean "every"?` {
		t.Errorf("the hints are %s", got)
	}
}

func TestDistance(t *testing.T) {
	for pair, want := range map[[2]string]int{{"", ""}: 0, {"", "ab"}: 2, {"ab", ""}: 2, {"ab", "ba"}: 1, {"abc", "acb"}: 1, {"kitten", "sitting"}: 3, {"ä", "a"}: 1} {
		if got := Distance(pair[0], pair[1]); got != want {
			t.Errorf("from %q to %q it is %d, want %d", pair[0], pair[1], got, want)
		}
	}
}

func TestList(t *testing.T) {
	for want, words := range map[string][]string{"": nil, "a": {"a"}, "a or b": {"a", "b"}, "a, b or c": {"a", "b", "c"}} {
		if got := List(slices.Clone(words), "or"); got != want {
			t.Errorf("%v is %q, want %q", words, got, want)
		}
	}
}

func TestAmounts(t *testing.T) {
	got := strings.Join([]string{Count(0, "field"), Count(1, "field"), Count(2, "field"), Size(1), Size(1000), Size(1 << 10), Size(1<<10 + 1), Size(3 << 20)}, ", ")
	if want := "0 fields, 1 field, 2 fields, 1 bytes, 1000 bytes, 1 KiB, 1025 bytes, 3 MiB"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
