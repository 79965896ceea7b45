package pipeline

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/flechtwerk/flechtwerk/engine/stream"
	"github.com/flechtwerk/flechtwerk/engine/wording"
)

// Set is what was loaded together: it runs in one process.
type Set struct {
	Pipelines []*Pipeline
	// Files are all files that were read as pipelines, also those with problems, sorted.
	Files []string
	// Topics are the topics of all pipelines, each once.
	Topics []*Topic

	readFile func(name string) ([]byte, error)

	mu    sync.Mutex
	lines map[string][]string // of Files and of every script that they name; under mu
}

// Line answers a line of a file that was loaded, from 1, without its end: what a Printer shows as source.
func (s *Set) Line(file string, line int) (string, bool) {
	s.mu.Lock()
	lines := s.lines[file]
	s.mu.Unlock()
	if line < 1 || line > len(lines) {
		return "", false
	}
	return lines[line-1], true
}

func (s *Set) remember(file, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines[file] = strings.Split(text, "\n")
}

// Script reads a file that a script imports. It may be called by several goroutines at once.
func (s *Set) Script(file string) (stream.Text, error) {
	text, err := s.readFile(file)
	if err != nil {
		return stream.Text{}, reason(err)
	}
	clean := cleaned(text)
	s.remember(file, clean)
	return stream.Text{File: file, Line: 1, Column: 1, Text: clean}, nil
}

// across checks what only all files together show.
func (l *loader) across() {
	names := map[string]*draft{}
	stages := map[string]Place{}
	for _, d := range l.drafts {
		name := &d.spec.Pipeline
		if name.given() && !name.missing {
			if first := names[name.Value]; first != nil {
				d.report(name.node, "pipeline.duplicate", fmt.Sprintf("the pipeline of %s has the same name", first.src.file), "name one of them otherwise; the names of stages in Kafka begin with it")
				continue
			}
			names[name.Value] = d
		}
		for _, e := range d.pipe.Extractors {
			d.oneApplication(stages, e.ApplicationID, &e.item.Value.ApplicationID, e.Place)
		}
		for _, t := range d.pipe.Transformers {
			d.oneApplication(stages, t.ApplicationID, &t.item.Value.ApplicationID, t.Place)
		}
	}
	l.collisions()
}

// oneApplication reports two stages that would share a consumer group and a changelog.
func (d *draft) oneApplication(stages map[string]Place, id string, given *Text, place Place) {
	if given.missing || d.spec.Pipeline.missing {
		return
	}
	if given.given() {
		place.Line, place.Column = given.node.line, given.node.column
	}
	if first, ok := stages[id]; ok {
		d.problem(place.File, place.Line, place.Column, "application_id.duplicate",
			fmt.Sprintf("the stage at %s:%d has the same application id, %s", first.File, first.Line, d.shown(id, given)), "two stages with one application id would share offsets and state")
		return
	}
	stages[id] = place
}

// shown is an application id as a problem may show it.
func (d *draft) shown(id string, given *Text) string {
	if given.given() {
		return given.node.text
	}
	if d.spec.Pipeline.given() && strings.Contains(d.spec.Pipeline.node.text, "${") {
		return d.spec.Pipeline.node.text + strings.TrimPrefix(id, d.spec.Pipeline.Value)
	}
	return id
}

// collisions reports topics that Kafka cannot have both, because it takes `.` and `_` for the same in the names of metrics.
func (l *loader) collisions() {
	seen := map[string]*Topic{}
	for _, t := range l.set.Topics {
		plain := strings.ReplaceAll(t.Name, ".", "_")
		if first := seen[plain]; first != nil {
			l.problem(t.Place.File, t.Place.Line, t.Place.Column, "topic.collision",
				fmt.Sprintf("Kafka cannot have this topic beside the one of %s:%d: their names differ only in `.` and `_`", first.Place.File, first.Place.Line), "spell them alike, or rename one")
			continue
		}
		seen[plain] = t
	}
}

// near warns about a topic that is not declared while one with nearly the same name is declared and used by no stage.
func (d *draft) near() {
	var idle []string
	used := map[string]bool{}
	for _, e := range d.pipe.Extractors {
		for _, t := range slices.Concat(e.OutputTopics, e.ConfigTopics) {
			used[t.Name] = true
		}
		for _, t := range []*Topic{e.InvalidTo, e.ErrorTo} {
			if t != nil {
				used[t.Name] = true
			}
		}
	}
	for _, tr := range d.pipe.Transformers {
		for _, t := range slices.Concat(tr.InputTopics, tr.OutputTopics, tr.ConfigTopics) {
			used[t.Name] = true
		}
	}
	for i := range d.spec.Topics.Items {
		if item := &d.spec.Topics.Items[i]; !used[item.Name] && item.Name == item.key.text {
			idle = append(idle, item.Name)
		}
	}
	for _, t := range d.pipe.Topics {
		if t.Declared || t.Place.File != d.src.file || strings.Contains(t.Name, "${") || len(t.Name) < 4 {
			continue
		}
		if other := nearest(t.Name, idle); other != "" && wording.Distance(t.Name, other) < 3 {
			d.problem(t.Place.File, t.Place.Line, t.Place.Column, "topic.undeclared", "the topic is not declared, and the declared one with nearly the same name is not used", fmt.Sprintf("did you mean %q?", other))
		}
	}
}
