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
