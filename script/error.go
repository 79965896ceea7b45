package script

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/dop251/goja"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// The codes of run-time errors.
const (
	CodeError     = "script.error"               // the script threw
	CodeTimeout   = "script.timeout"             // it ran longer than it may
	CodeStack     = "script.recursion"           // calls nest too deep
	CodeYield     = "script.yield"               // it yielded or returned what is neither a Message nor a State
	CodeMessage   = "script.message"             // a member of a Message is wrong
	CodeTopic     = "script.topic"               // a Message names no topic, or one that is not an output of the stage
	CodeState     = "script.state"               // a State is no object, or the stage has none
	CodeEnrich    = "script.enrich"              // an enrich does not return a config
	CodeStuck     = "script.stuck"               // it awaits what nothing can settle
	CodeForgotten = "script.forgotten_await"     // it ended before something that it began did
	CodeUnhandled = "script.unhandled_rejection" // a promise was rejected and nothing awaits it
	CodeFetch     = "script.fetch"               // an argument of fetch is wrong
	CodeShared    = "script.shared_variable"
	CodeRefused   = "value.refused" // a value cannot leave in the format of its topic
	CodeTooLarge  = "record.too_large"
)

// Error is a failure of a script while it ran.
type Error struct {
	code, message, hint string
	at                  place
	stack               []string
	omitted             int
	thrown              string
	causes              []string
	err                 error
}

// Code is one of the Code constants; it is stable.
func (e *Error) Code() string { return e.code }

// Position is the place in the user's file, from 1, in characters. The line is 0 when no line of the user's ran.
func (e *Error) Position() (file string, line, column int) { return e.at.file, e.at.line, e.at.column }

// Message says what went wrong, without place and stack.
func (e *Error) Message() string { return e.message }

// Hint says what to do; it may be empty.
func (e *Error) Hint() string { return e.hint }

// Stack is the JavaScript stack, innermost call first, each as "function (file:line:column)".
func (e *Error) Stack() []string { return e.stack }

// ThrownCode is the code of the error that was thrown, such as connect of a request's, if it has one.
func (e *Error) ThrownCode() string { return e.thrown }

// Omitted is how many further calls the stack had, that Stack does not show.
func (e *Error) Omitted() int { return e.omitted }

// Causes are the messages of the error's cause chain, outermost first.
func (e *Error) Causes() []string { return e.causes }

// Error is one line.
func (e *Error) Error() string {
	if e.at.line == 0 {
		return e.message
	}
	return fmt.Sprintf("%s (%s:%d:%d)", e.message, e.at.file, e.at.line, e.at.column)
}

// Detail is the error with its causes and the JavaScript stack, one a line.
func (e *Error) Detail() string {
	var b strings.Builder
	b.WriteString(e.message)
	for _, frame := range e.stack {
		b.WriteString("\n    at ")
		b.WriteString(frame)
	}
	if e.omitted > 0 {
		fmt.Fprintf(&b, "\n    … and %d calls more", e.omitted)
	}
	for _, cause := range e.causes {
		b.WriteString("\n  caused by: ")
		b.WriteString(cause)
	}
	if e.hint != "" {
		b.WriteString("\n  → ")
		b.WriteString(e.hint)
	}
	return b.String()
}

// Unwrap reaches the Go error that a native function threw, if there is one.
func (e *Error) Unwrap() error { return e.err }

// refusal is what a native function throws: it becomes an Error with the place of its caller.
type refusal struct {
	code, message, hint string
	err                 error
	call                uint64 // which call an interrupt is meant for
}

func (r *refusal) Error() string { return r.message }
func (r *refusal) Unwrap() error { return r.err }

func refuse(code, hint, format string, args ...any) *refusal {
	return &refusal{code: code, message: fmt.Sprintf(format, args...), hint: hint}
}

// throw throws err in the script. A refusal has its code there.
func (v *vm) throw(err error) {
	o := v.rt.NewGoError(err)
	var native *refusal
	if errors.As(err, &native) {
		must(o.DefineDataProperty("name", v.rt.ToValue("Error"), goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_FALSE))
		must(o.DefineDataProperty("code", v.rt.ToValue(native.code), goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_TRUE))
	}
	panic(o)
}

// guard calls f, which may run code of the script's (a getter of an error's message, say), and lets nothing of it through:
// neither an exception nor an interrupt.
func (v *vm) guard(f func()) {
	call, _ := goja.AssertFunction(v.rt.ToValue(func(goja.FunctionCall) goja.Value {
		f()
		return nil
	}))
	_, _ = call(goja.Undefined())
}

// failure turns what goja returned into an *Error.
func (v *vm) failure(err error) *Error {
	e := &Error{code: CodeError, message: "an error that cannot be shown"}
	//nolint:errorlint // goja answers these as they are, and to look inside an exception is to run code of the script's
	switch err := err.(type) {
	case *goja.StackOverflowError:
		e.code, e.message, e.hint = CodeStack, fmt.Sprintf("calls nest deeper than %d", maxCallDepth), "does the function end its recursion?"
		v.locate(e, err.Stack())
	case *goja.InterruptedError:
		e.code, e.message = CodeTimeout, "the script was stopped"
		if reason, ok := err.Value().(*refusal); ok {
			e.code, e.message, e.hint, e.err = reason.code, reason.message, reason.hint, reason.err
		}
		v.locate(e, err.Stack())
	case *goja.Exception:
		var makers []string
		v.guard(func() { makers = constructors(err.Value()) })
		at := v.locate(e, err.Stack(), makers...)
		v.guard(func() {
			thrown := err.Unwrap()
			var native *refusal
			if errors.As(thrown, &native) {
				e.code, e.message, e.hint, e.err = native.code, native.message, native.hint, native.err
				return
			}
			e.err = thrown
			e.message = v.describe(err.Value())
			if o, ok := err.Value().(*goja.Object); ok {
				if code := o.Get("code"); code != nil && goja.IsString(code) {
					e.thrown = cut(code.String(), maxCounterName)
				}
			}
			v.explain(e, at)
		})
		v.guard(func() { e.causes = v.causes(err.Value()) })
	default:
		e.message, e.err = err.Error(), err
	}
	return e
}

// constructors are the names of the classes that made an error: it is thrown where it is made with new, not in their
// constructors.
func constructors(value goja.Value) (names []string) {
	o, ok := value.(*goja.Object)
	if !ok || o.ClassName() != "Error" {
		return nil
	}
	for o = o.Prototype(); o != nil; o = o.Prototype() {
		if c, ok := o.Get("constructor").(*goja.Object); ok {
			if name := c.Get("name"); name != nil {
				names = append(names, name.String())
			}
		}
	}
	return names
}

// interruption is the reason that a call was interrupted with, or nil if it was not.
func interruption(err error) *refusal {
	//nolint:errorlint // as in failure
	if i, ok := err.(*goja.InterruptedError); ok {
		if reason, ok := i.Value().(*refusal); ok {
			return reason
		}
		return &refusal{code: CodeTimeout}
	}
	return nil
}

// locate notes the user's frames of a stack, and the innermost as the place of the error, save those of the functions called
// makers. It answers that place as an offset of the joined text, or -1.
func (v *vm) locate(e *Error, stack []goja.StackFrame, makers ...string) int {
	first, making := -1, true
	for i := range stack {
		f := &stack[i]
		position := f.Position()
		if f.SrcName() != programName || position.Line == 0 {
			continue
		}
		offset := v.program.src.offset(position.Line, position.Column)
		if offset < 0 || v.program.src.find(offset) == nil {
			continue
		}
		at := v.program.src.place(offset)
		if first < 0 || making {
			first, e.at = offset, at
		}
		making = making && slices.Contains(makers, f.FuncName())
		where := fmt.Sprintf("%s:%d:%d", at.file, at.line, at.column)
		if name := f.FuncName(); name != "<anonymous>" {
			where = fmt.Sprintf("%s (%s)", name, where)
		}
		if len(e.stack) < maxStackLines {
			e.stack = append(e.stack, where)
		} else {
			e.omitted++
		}
	}
	return first
}

const maxStackLines = 10

// describe is a thrown value as a person reads it: "TypeError: …", or what was thrown if it is no error.
func (v *vm) describe(value goja.Value) string {
	if o, ok := value.(*goja.Object); ok && o.ClassName() == "Error" {
		return o.String()
	}
	return "thrown: " + inspect(v, value)
}

// maxCauses bounds a chain of causes, which may be a circle.
const maxCauses = 10

// causes follows the cause members of thrown errors.
func (v *vm) causes(value goja.Value) (causes []string) {
	seen := []goja.Value{value}
	for len(seen) <= maxCauses {
		o, ok := value.(*goja.Object)
		if !ok {
			break
		}
		if value = o.Get("cause"); value == nil || goja.IsUndefined(value) {
			break
		}
		for _, s := range seen {
			if s == value {
				return causes
			}
		}
		seen = append(seen, value)
		text := v.describe(value)
		if cause, ok := value.(*goja.Object); ok && cause.ClassName() == "Error" {
			e := &Error{}
			if ex := v.rt.Try(func() { panic(cause) }); ex != nil {
				v.locate(e, ex.Stack())
			}
			if e.at.line > 0 {
				text = fmt.Sprintf("%s (%s:%d:%d)", text, e.at.file, e.at.line, e.at.column)
			}
		}
		causes = append(causes, text)
	}
	return causes
}

// explain adds hints to errors of goja that do not say enough.
func (v *vm) explain(e *Error, at int) {
	switch {
	case strings.Contains(e.message, "Cannot mix BigInt") && at >= 0:
		line := v.program.src.line(at)
		for _, name := range v.values.bigs {
			if strings.Contains(line, name) {
				e.message = fmt.Sprintf("%s: %q is an integer beyond 2^53 and came as a BigInt", e.message, name)
				e.hint = fmt.Sprintf("write Number(x.%s) to round it, or 1n instead of 1 to count with all digits", name)
				return
			}
		}
		if len(v.values.bigs) > 0 {
			name := v.values.bigs[len(v.values.bigs)-1]
			e.message = fmt.Sprintf("%s: %q is an integer beyond 2^53 and came as a BigInt", e.message, name)
		}
		e.hint = "write Number(x) to round it, or 1n instead of 1 to count with all digits"
	case at >= 0 && (strings.HasPrefix(e.message, "TypeError: Cannot read property '") || strings.HasPrefix(e.message, notCoercible)):
		v.explainNull(e, at)
	case strings.Contains(e.message, "read only property") || strings.Contains(e.message, "not extensible"):
		e.hint = "built-ins, vars and what functions declare are shared by all calls and frozen; copy before you change: {...x} or [...x]"
	}
}

// notCoercible is what goja says when null or undefined is taken apart.
const notCoercible = "TypeError: Value is not object coercible"

// valueChain is an expression like msg.value.a.b at the end of a text.
var valueChain = regexp.MustCompile(`(?:^|[^\w$.])msg\.value((?:\??\.[A-Za-z_$][\w$]*)*)$`)

// explainNull tells null from undefined, which goja does not, where a member of the record's value was null, and reminds of
// tombstones.
func (v *vm) explainNull(e *Error, at int) {
	if strings.HasPrefix(e.message, notCoercible) {
		e.message = "TypeError: Cannot destructure undefined or null"
	}
	record := v.record()
	if record == nil || record.Input.Value != stream.JSON {
		return
	}
	tombstone := record.Value == nil
	const hint = "the record is a tombstone: its value is null. Test msg.value === null, or pass such records over with filter: value != nil"
	text := v.program.src.text.String()
	start := at
	for start > 0 && text[start-1] != '\n' {
		start--
	}
	m := valueChain.FindStringSubmatch(strings.TrimSuffix(text[start:min(at, len(text))], "."))
	switch {
	case m == nil && tombstone:
		if !strings.HasSuffix(e.message, "null") {
			e.message += " or null"
		}
		e.hint = hint
	case m == nil:
	case m[1] == "" && tombstone:
		e.message = strings.Replace(e.message, "of undefined", "of null", 1)
		e.hint = hint
	case !tombstone && isNullAt(trim(record.Value), strings.Split(strings.ReplaceAll(m[1], "?", ""), ".")[1:]):
		e.message = strings.Replace(e.message, "of undefined", "of null", 1)
	}
}

// isNullAt tells whether a JSON text has null under the names.
func isNullAt(text []byte, names []string) bool {
	for _, name := range names {
		if len(text) == 0 || text[0] != '{' {
			return false
		}
		text = trim(rawjson.Find(text, rawjson.Members(text, nil), name))
	}
	return string(text) == "null"
}
