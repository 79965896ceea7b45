package pipeline

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/flechtwerk/flechtwerk/engine/wording"
)

// Printer writes problems for a person.
type Printer struct {
	// Source answers a line of a file, without its end, and whether there is one. Nil prints no source.
	Source func(file string, line int) (string, bool)
	Color  bool
}

// Print writes the problems in their order, each with its line of the file and a caret under the place, then the sum.
// files is how many files were looked at.
func (p *Printer) Print(w io.Writer, problems Problems, files int) error {
	var b strings.Builder
	for i := range problems {
		p.one(&b, &problems[i])
	}
	if len(problems) > 0 {
		b.WriteByte('\n')
	}
	errors, warnings := problems.Count()
	fmt.Fprintf(&b, "%s, %s in %s\n", wording.Count(errors, "error"), wording.Count(warnings, "warning"), wording.Count(files, "file"))
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("print problems: %w", err)
	}
	return nil
}

// Problem writes one problem, without a sum.
func (p *Printer) Problem(w io.Writer, problem Problem) error {
	var b strings.Builder
	p.one(&b, &problem)
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("print problem: %w", err)
	}
	return nil
}

const (
	bold   = "\x1b[1m"
	dim    = "\x1b[2m"
	red    = "\x1b[31m"
	yellow = "\x1b[33m"
	plain  = "\x1b[0m"
)

func (p *Printer) paint(style, text string) string {
	if !p.Color || text == "" {
		return text
	}
	return style + text + plain
}

func (p *Printer) one(b *strings.Builder, problem *Problem) {
	style := red
	if problem.Severity == Warning {
		style = yellow
	}
	place := problem.File
	if problem.Line > 0 {
		place = fmt.Sprintf("%s:%d:%d", problem.File, problem.Line, problem.Column)
	}
	fmt.Fprintf(b, "%s %s %s: %s\n", p.paint(bold, place+":"), p.paint(style, string(problem.Severity)), problem.Code, problem.Message)
	p.source(b, problem, style)
	for i, line := range strings.Split(problem.Hint, "\n") {
		switch {
		case line == "":
		case i == 0:
			fmt.Fprintf(b, "     → %s\n", line)
		default:
			fmt.Fprintf(b, "       %s\n", line)
		}
	}
}

// sourceWidth is how many characters of a long line are shown.
const sourceWidth = 160

func (p *Printer) source(b *strings.Builder, problem *Problem, style string) {
	if p.Source == nil || problem.Line == 0 {
		return
	}
	line, ok := p.Source(problem.File, problem.Line)
	if !ok {
		return
	}
	runes := []rune(strings.ToValidUTF8(line, string(utf8.RuneError)))
	column := min(problem.Column-1, len(runes))
	if from := column - sourceWidth/2; from > 0 && len(runes) > sourceWidth {
		runes, column = append([]rune("…"), runes[from+1:]...), column-from
	}
	if len(runes) > sourceWidth {
		runes = append(runes[:sourceWidth-1:sourceWidth-1], '…')
	}
	var pad strings.Builder
	for i, r := range runes {
		if r != '\t' && r < ' ' || r == 0x7f {
			runes[i] = utf8.RuneError
		}
		if i < column {
			if r == '\t' {
				pad.WriteByte('\t')
			} else {
				pad.WriteByte(' ')
			}
		}
	}
	fmt.Fprintf(b, "%s %s\n", p.paint(dim, fmt.Sprintf("%7d |", problem.Line)), string(runes))
	fmt.Fprintf(b, "%s %s%s\n", p.paint(dim, "        |"), pad.String(), p.paint(style, "^"))
}
