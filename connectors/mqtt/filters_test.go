package mqtt

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestFiltersThatAreNone(t *testing.T) {
	for filter, want := range map[string]string{
		"":                         "not empty",
		"a/#/b":                    "# is the last level",
		"a/b+":                     "a whole level",
		"a#":                       "a whole level",
		"a\x00b":                   "U+0000",
		"\xff":                     "UTF-8",
		"$share/g/a":               "without $share",
		strings.Repeat("a", 65536): "at most 65535 bytes",
	} {
		if err := CheckFilter(filter); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %q", filter, err, want)
		}
	}
	for _, filter := range []string{"#", "+", "/", "a//b", "+/+", "a/+/#", "$SYS/#", "ä/ö"} {
		if err := CheckFilter(filter); err != nil {
			t.Errorf("%q: %v", filter, err)
		}
	}
}

// matches is the definition: what a filter matches, level by level.
func matches(filter, topic string) bool {
	f, t := strings.Split(filter, "/"), strings.Split(topic, "/")
	if strings.HasPrefix(topic, "$") && (f[0] == "+" || f[0] == "#") {
		return false
	}
	for i, level := range f {
		if level == "#" {
			return true
		}
		if i >= len(t) || level != "+" && level != t[i] {
			return false
		}
	}
	return len(f) == len(t)
}

func TestFilterTreeIsTheDefinition(t *testing.T) {
	words := []string{"a", "b", "$x", ""}
	var topics, filters []string
	var grow func(prefix []string, depth int)
	grow = func(prefix []string, depth int) {
		if len(prefix) > 0 {
			text := strings.Join(prefix, "/")
			if !strings.ContainsAny(text, "+#") && text != "" {
				topics = append(topics, text)
			}
			if CheckFilter(text) == nil {
				filters = append(filters, text)
			}
		}
		if depth == 0 {
			return
		}
		for _, w := range append([]string{"+", "#"}, words...) {
			grow(append(prefix[:len(prefix):len(prefix)], w), depth-1)
		}
	}
	grow(nil, 3)
	// Topics are one level deeper than filters need, so that what only # reaches is there too.
	for _, topic := range topics[:len(topics):len(topics)] {
		topics = append(topics, topic+"/z")
	}
	r := rand.New(rand.NewPCG(1, 2))
	clashes := 0
	for range 3000 {
		var tree filterTree
		var held []string
		for range 1 + r.IntN(4) {
			f := filters[r.IntN(len(filters))]
			want := map[string]bool{}
			for _, other := range held {
				for _, topic := range topics {
					if matches(f, topic) && matches(other, topic) {
						want[other] = true
						break
					}
				}
			}
			other, clash := tree.add(f, len(held))
			if clash != (len(want) > 0) || clash && !want[other] {
				t.Fatalf("%q to %q: clash %v with %q, want one of %v", f, held, clash, other, want)
			}
			if clash {
				clashes++
				continue
			}
			held = append(held, f)
		}
		if last := len(held) - 1; last > 0 && r.IntN(4) == 0 {
			tree.remove(held[last])
			held = held[:last]
		}
		for _, topic := range topics {
			found, owner, ok := tree.match(topic)
			for i, f := range held {
				if matches(f, topic) != (ok && owner == i && found == f) {
					t.Fatalf("topic %q in %q: %q", topic, held, found)
				}
			}
		}
	}
	if clashes == 0 {
		t.Fatal("no two filters overlapped")
	}
}

func TestOverlapSaysWhy(t *testing.T) {
	err := Overlap([]string{"a/+", "b", "+/c"})
	var overlap *OverlapError
	if !errors.As(err, &overlap) || overlap.Filter != "+/c" || overlap.Other != "a/+" || !strings.Contains(err.Error(), "twice") {
		t.Fatal(err)
	}
	if err := Overlap([]string{"a/+", "b/+", "$SYS/x", "+"}); err != nil {
		t.Fatal(err)
	}
}
