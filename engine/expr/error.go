package expr

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Codes of errors found by Compile. They are stable.
const (
	CodeSyntax       = "expr.syntax"
	CodeUnknownName  = "expr.unknown_name"
	CodeUnknownFunc  = "expr.unknown_function"
	CodeType         = "expr.type"
	CodeArguments    = "expr.arguments"
	CodeRegexp       = "expr.regexp"
	CodeEnvironment  = "expr.environment"
	CodeNotSupported = "expr.not_supported"
	CodeConstant     = "expr.constant"
	CodeTooLarge     = "expr.too_large"
	CodeTemplate     = "template.syntax"
	CodeMessage      = "message.member"
)

// Codes of failures while an expression runs. They are stable.
const (
	CodeCondition = "expr.condition"    // a condition that is neither true, false nor nil
	CodeOperand   = "expr.operand"      // an operand or argument of a type that the operator cannot take
	CodeBigNumber = "expr.big_number"   // arithmetic on a number beyond 64 bits, or an overflow
	CodeBudget    = "expr.budget"       // more work or memory than one evaluation may take
	CodeNotFinite = "expr.not_finite"   // NaN or infinity where JSON is written
	CodeNilHole   = "template.nil"      // a hole of a template is nil
	CodeHole      = "template.hole"     // what a hole gives cannot stand where it stands
	CodeValue     = "expr.value"        // anything else that the data made fail
	CodeBytes     = "expr.bytes"        // bytes where JSON or text is written
	CodeNoUTF8    = "expr.utf8"         // bytes that are no UTF-8 where text is needed
	CodeMessageAt = "message.timestamp" // a timestamp or partition of a message that is none
)

// Error is what Compile finds wrong with a text.
type Error struct {
	// Line and Column are where, from 1, in characters of the text.
	Line, Column int
	// Code is stable; Message says what is wrong; Hint, if any, what to do.
	Code, Message, Hint string
}

func (e *Error) Error() string {
	if e.Hint == "" {
		return e.Message
	}
	return e.Message + " (" + e.Hint + ")"
}

// Failure is an expression that failed on a record. It never quotes data.
type Failure struct {
	// Text is the expression; Line and Column are where in it, from 1, in characters. For a hole of a template they are
	// relative to the whole template.
	Text         string
	Line, Column int
	Code         string
	Message      string
	// Ref is the Ref of the Tree that the expression was a leaf of, else nil.
	Ref any
}

func (f *Failure) Error() string {
	return fmt.Sprintf("expression %q: %s", shorten(f.Text), f.Message)
}

// shorten makes a text fit into an error message.
func shorten(text string) string {
	const most = 120
	text = strings.Join(strings.Fields(text), " ")
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}

// place is the line and column, from 1, of the character at offset (from 0, in characters).
func place(text string, offset int) (line, column int) {
	line, column = 1, 1
	for _, r := range text {
		if offset <= 0 {
			break
		}
		offset--
		if r == '\n' {
			line, column = line+1, 1
		} else {
			column++
		}
	}
	return line, column
}
