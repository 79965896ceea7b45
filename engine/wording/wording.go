// Package wording has the turns of phrase that messages of all rooms share: what a misspelt name was meant to be, and lists as
// a sentence has them.
package wording

import (
	"fmt"
	"strings"
)

// DidYouMean is a hint that names the one of known that name was probably meant to be, or "" if none is near.
func DidYouMean(name string, known []string) string {
	if near := Nearest(name, known); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return ""
}

// longest is the longest name, in characters, that is compared.
const longest = 64

// Nearest is the one of known that is most like name, or "" if none is near enough to be meant: if it takes more than one change
// for each three characters, or more than three, or as many as name has characters. Case does not count. Of equally near
// ones the order of the alphabet decides, whatever that of known.
func Nearest(name string, known []string) string {
	letters := len([]rune(name))
	if letters > longest {
		return ""
	}
	best, least := "", min(max(letters/3, 1), 3, letters-1)
	for _, k := range known {
		if strings.EqualFold(k, name) {
			return k
		}
		if len(k) > 4*longest {
			continue
		}
		if d := Distance(strings.ToLower(name), strings.ToLower(k)); d < least || d == least && (best == "" || k < best) {
			best, least = k, d
		}
	}
	return best
}

// Distance is how many characters must be added, taken away, changed or swapped with their neighbour to make b of a (optimal
// string alignment).
func Distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	before, last, row := make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range last {
		last[j] = j
	}
	for i := range x {
		row[0] = i + 1
		for j := range y {
			change := last[j]
			if x[i] != y[j] {
				change++
			}
			row[j+1] = min(change, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && x[i] == y[j-1] && x[i-1] == y[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(y)]
}

// List joins words as a sentence has them: "a, b and c", where last is "and".
func List(words []string, last string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	n := len(words) - 1
	return strings.Join(words[:n], ", ") + " " + last + " " + words[n]
}

// Count is a number of things: "1 field", "2 fields".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Size is a number of bytes.
func Size(n int64) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10 && n%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}
