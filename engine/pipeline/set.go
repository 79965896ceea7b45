package pipeline

import (
	"strings"
)

// Set is what was loaded together: it runs in one process.
type Set struct {
	Pipelines []*Pipeline
	// Files are all files that were read as pipelines, also those with problems, sorted.
	Files []string
	// Topics are the topics of all pipelines, each once.
	Topics []*Topic

	lines map[string][]string // of Files and of every script that they name
}

// Line answers a line of a file that was loaded, from 1, without its end: what a Printer shows as source.
func (s *Set) Line(file string, line int) (string, bool) {
	lines := s.lines[file]
	if line < 1 || line > len(lines) {
		return "", false
	}
	return lines[line-1], true
}

func (s *Set) remember(file, text string) {
	s.lines[file] = strings.Split(text, "\n")
}
