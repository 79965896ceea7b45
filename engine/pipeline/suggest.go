package pipeline

import (
	"fmt"
	"strings"
)

// didYouMean is the hint for a misspelt word: the nearest of the known ones, or nothing if none is near.
func didYouMean(word string, known []string) string {
	if best := nearest(word, known); best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	return ""
}

// nearest is the known word with the fewest changes from word, at most one in three characters.
func nearest(word string, known []string) string {
	best, least := "", max(1, len(word)/3)+1
	for _, k := range known {
		if d := distance(strings.ToLower(word), k, least); d < least {
			best, least = k, d
		}
	}
	if best == "" {
		for _, k := range known {
			if len(word) >= 4 && (strings.HasPrefix(k, word) || strings.HasPrefix(word, k)) {
				return k
			}
		}
	}
	return best
}

// distance is the number of insertions, deletions, replacements and swaps of neighbours between a and b (Damerau and
// Levenshtein, optimal string alignment); at least limit where it is known to reach it.
func distance(a, b string, limit int) int {
	if abs := len(a) - len(b); abs >= limit || -abs >= limit {
		return limit
	}
	var before []int
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}

// choice joins words as alternatives: "a, b or c".
func choice(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// listed joins words as a sentence has them: "a, b and c".
func listed(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}
