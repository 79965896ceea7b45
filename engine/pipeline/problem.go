package pipeline

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
)

// Severity says whether a problem keeps a pipeline from running.
type Severity string

// The severities.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// Problem is one thing that is wrong with a file.
type Problem struct {
	File string `json:"file"`
	// Line and Column are from 1, the column in characters. Both are 0 for a problem of the whole file.
	Line     int      `json:"line,omitempty"`
	Column   int      `json:"column,omitempty"`
	Severity Severity `json:"severity"`
	// Code is stable: Explain knows more about it.
	Code    string `json:"code"`
	Message string `json:"message"`
	// Hint says what to do. It may be empty.
	Hint string `json:"hint,omitempty"`
}

func (p *Problem) String() string {
	place := p.File
	if p.Line > 0 {
		place = fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
	}
	return fmt.Sprintf("%s: %s %s: %s", place, p.Severity, p.Code, p.Message)
}

// Problems are problems of any number of files.
type Problems []Problem

// Failed tells whether one of them is an error.
func (ps Problems) Failed() bool {
	return slices.ContainsFunc(ps, func(p Problem) bool { return p.Severity == Error })
}

// Count answers how many are errors and how many are warnings.
func (ps Problems) Count() (errors, warnings int) {
	for _, p := range ps {
		if p.Severity == Error {
			errors++
		} else {
			warnings++
		}
	}
	return errors, warnings
}

// Sort orders them by file, line and column, and drops what is said twice.
func (ps *Problems) Sort() {
	slices.SortStableFunc(*ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	*ps = slices.Compact(*ps)
}

// JSON is all of them as one JSON object, with a line feed at its end. files is how many files were looked at.
func (ps Problems) JSON(files int) ([]byte, error) {
	errors, warnings := ps.Count()
	if ps == nil {
		ps = Problems{}
	}
	text, err := json.MarshalIndent(struct {
		Problems Problems `json:"problems"`
		Errors   int      `json:"errors"`
		Warnings int      `json:"warnings"`
		Files    int      `json:"files"`
	}{ps, errors, warnings, files}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write problems: %w", err)
	}
	return append(text, '\n'), nil
}
