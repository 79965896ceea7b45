package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/flechtwerk/flechtwerk/engine"
	"github.com/flechtwerk/flechtwerk/engine/pipeline"
	"github.com/flechtwerk/flechtwerk/script"
)

// showFailure prints what ended the program. For a script that failed it adds the line of the user's file, the causes and
// the JavaScript stack.
func (p *program) showFailure(err error) {
	var failure *script.Error
	isScript := errors.As(err, &failure)
	if p.json != nil {
		keys := []any{"error", message(err), "exit_status", exitStatus(err)}
		if isScript {
			keys = append(keys, "code", failure.Code(), "thrown_code", failure.ThrownCode(), "stack", failure.Stack(), "stack_omitted", failure.Omitted(), "causes", failure.Causes())
		}
		if allow := engine.MissingRight(err); allow != "" {
			keys = append(keys, "hint", allow)
		}
		p.json.Error("run ended", keys...)
		return
	}
	fmt.Fprintf(p.stderr, "%s %s\n", p.paint(p.stderr, red, "flechtwerk:"), message(err))
	if allow := engine.MissingRight(err); allow != "" {
		fmt.Fprintf(p.stderr, "     → %s\n", allow)
	}
	file, line, column := "", 0, 0
	if isScript {
		file, line, column = failure.Position()
	}
	if line == 0 || p.set == nil {
		return
	}
	printer := pipeline.Printer{Source: p.set.Line, Color: p.colour(p.stderr)}
	var b strings.Builder
	b.WriteByte('\n')
	if err := printer.Problem(&b, pipeline.Problem{File: file, Line: line, Column: column, Severity: pipeline.Error,
		Code: failure.Code(), Message: failure.Message(), Hint: failure.Hint()}); err != nil {
		return
	}
	if code := failure.ThrownCode(); code != "" {
		fmt.Fprintf(&b, "     its code is %s\n", code)
	}
	for _, frame := range failure.Stack() {
		fmt.Fprintf(&b, "     at %s\n", frame)
	}
	if n := failure.Omitted(); n > 0 {
		fmt.Fprintf(&b, "     … and %d calls more\n", n)
	}
	for _, cause := range failure.Causes() {
		fmt.Fprintf(&b, "     caused by %s\n", cause)
	}
	fmt.Fprint(p.stderr, b.String())
}
