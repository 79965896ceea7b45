package script

import (
	"fmt"
	"sort"
	"strings"
)

// Problem is one thing that is wrong with a script, found without running it.
type Problem struct {
	// File, Line and Column are the place in the user's file, from 1, in characters.
	File         string
	Line, Column int
	// Code is stable, such as "script.syntax".
	Code    string
	Message string
	// Hint says what to do; it may be empty.
	Hint string
}

func (p *Problem) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s: %s", p.File, p.Line, p.Column, p.Code, p.Message)
}

// Problems is the error of Compile: all that was found, in the order of the source.
type Problems []*Problem

func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, problem := range p {
		lines[i] = problem.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.As find the single problems.
func (p Problems) Unwrap() []error {
	errs := make([]error, len(p))
	for i, problem := range p {
		errs[i] = problem
	}
	return errs
}

func (p Problems) sorted() Problems {
	sort.SliceStable(p, func(i, j int) bool {
		a, b := p[i], p[j]
		if a.File != b.File {
			return false
		}
		if a.Line != b.Line {
			return a.Line < b.Line
		}
		return a.Column < b.Column
	})
	return p
}

// nearest is the candidate that is most like name, or "" if none is near enough to be meant.
func nearest(name string, candidates []string) string {
	best, bound := "", max(1, len(name)/3)+1
	for _, c := range candidates {
		if strings.EqualFold(c, name) {
			return c
		}
		// A name with no letter of the other in its place is another name; of equally near ones the order decides, whatever
		// that of the candidates.
		if d := distance(name, c, bound+1); d < len(name) && (d < bound || d == bound && best != "" && c < best) {
			best, bound = c, d
		}
	}
	return best
}

// distance is the Damerau-Levenshtein distance (adjacent transpositions count one), or bound if it is not smaller.
func distance(a, b string, bound int) int {
	if len(a)-len(b) >= bound || len(b)-len(a) >= bound {
		return bound
	}
	rows := [3][]int{make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)}
	for j := range rows[1] {
		rows[1][j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, row := rows[(i+2)%3], rows[i%3], rows[(i+1)%3]
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
	}
	return min(rows[(len(a)+1)%3][len(b)], bound)
}
