package script

import (
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/dop251/goja"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// The codes of run-time errors.
const (
	CodeError     = "script.error"               // the script threw
	CodeTimeout   = "script.timeout"             // it ran longer than it may
	CodeStack     = "script.recursion"           // calls nest too deep
	CodeMemory    = "script.memory"              // it made the process hold too much
	CodeEngine    = "script.engine"              // the JavaScript engine failed
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

// showTime is how long the code of a script may run while what it threw is looked at: getters of an error's message, say.
const showTime = time.Second

// guard calls show, which may run code of the script's, and lets nothing of it through: neither an exception nor an interrupt. What
// is still running at the end of showTime is stopped, and the VM is spent.
func (v *vm) guard(show func()) {
	left := time.Until(v.showUntil)
	if v.spent || left <= 0 {
		return
	}
	call, _ := goja.AssertFunction(v.rt.ToValue(func(goja.FunctionCall) goja.Value {
		show()
		return nil
	}))
	timer := time.AfterFunc(left, func() { v.rt.Interrupt(v.overtime()) })
	err := contained(func() error {
		_, err := call(goja.Undefined())
		return err
	})
	var f *fault
	if inTime := timer.Stop(); !inTime || interruption(err) != nil || errors.As(err, &f) {
		v.spent = true
	}
}

// failure turns what goja returned into an *Error.
func (v *vm) failure(err error) *Error {
	e := &Error{code: CodeError, message: "an error that cannot be shown"}
	v.showUntil = time.Now().Add(showTime)
	//nolint:errorlint // goja answers these as they are, and to look inside an exception is to run code of the script's
	switch err := err.(type) {
	case *Error:
		return err
	case *goja.StackOverflowError:
		e.code, e.message, e.hint = CodeStack, fmt.Sprintf("calls nest deeper than %d", maxCallDepth), "does the function end its recursion?"
		v.locate(e, err.Stack())
	case *goja.InterruptedError:
		e.code, e.message = CodeTimeout, "the script was stopped"
		if reason, ok := err.Value().(*refusal); ok {
			e.code, e.message, e.hint, e.err = reason.code, reason.message, reason.hint, reason.err
		}
		v.locate(e, err.Stack())
	case *fault:
		e.code, e.message, e.err = CodeEngine, "the JavaScript engine failed: "+err.Error(), err
		e.hint = "this is a fault of the engine, which one of the built-in functions in this line has; write it in another way, and please report it"
		v.locate(e, v.faultAt)
	case *goja.Exception:
		var makers []string
		v.guard(func() { makers = constructors(err.Value()) })
		at := v.locate(e, err.Stack(), makers...)
		var native *refusal
		v.guard(func() {
			e.err = err.Unwrap()
			errors.As(e.err, &native)
		})
		if native != nil {
			e.code, e.message, e.hint, e.err = native.code, native.message, native.hint, native.err
			break
		}
		e.message, e.thrown = v.describe(err.Value()), v.codeOf(err.Value())
		v.explain(e, v.atMember(e, at))
		v.causes(e, err.Value(), []goja.Value{err.Value()})
	default:
		e.message, e.err = err.Error(), err
	}
	return e
}

// fault is a run-time panic of goja's. The VM that had it must go.
type fault struct{ what runtime.Error }

func (f *fault) Error() string { return f.what.Error() }
func (f *fault) Unwrap() error { return f.what }

// contained calls f, which enters goja, and answers a run-time panic in it as an error: some built-in functions of goja stumble
// over what a script may give them, and the other tasks of the process have nothing to do with that.
func contained(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			what, ok := r.(runtime.Error)
			if !ok {
				panic(r)
			}
			err = &fault{what}
		}
	}()
	return f()
}

// spoilt tells whether a VM that failed so must not be used again.
func (e *Error) spoilt() bool { return e.code == CodeStack || e.code == CodeEngine }

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

// describe is a thrown value as a person reads it, in one line: "TypeError: …", or what was thrown if it is no error.
func (v *vm) describe(value goja.Value) string {
	if o, ok := value.(*goja.Object); ok && v.isError(o) {
		return cut(oneLine(v.errorText(o)), inspectBytes)
	}
	return cut(oneLine("thrown: "+v.inspectThrown(value)), inspectBytes)
}

// isError tells whether a thrown object is an error, or inherits from Error without being made by it.
func (v *vm) isError(o *goja.Object) (is bool) {
	if o.ClassName() == "Error" {
		return true
	}
	v.guard(func() {
		base := v.rt.GlobalObject().Get("Error").(*goja.Object).Get("prototype")
		for o = o.Prototype(); o != nil && !is; o = o.Prototype() {
			is = o == base
		}
	})
	return is
}

// errorText is what Error.prototype.toString says, whatever the class of the error makes of that.
func (v *vm) errorText(o *goja.Object) string {
	member := func(name, otherwise, unreadable string) (text string) {
		text = unreadable
		v.guard(func() {
			if value := o.Get(name); value == nil || goja.IsUndefined(value) {
				text = otherwise
			} else {
				text = value.String()
			}
		})
		return text
	}
	name, message := member("name", "Error", "Error"), member("message", "", "its message cannot be shown")
	switch {
	case message == "":
		return name
	case name == "":
		return message
	}
	return name + ": " + message
}

// codeOf is the code of a thrown object: a text, or a number as text. It is empty if there is none.
func (v *vm) codeOf(value goja.Value) (code string) {
	if o, ok := value.(*goja.Object); ok {
		v.guard(func() {
			if c := o.Get("code"); c != nil && (goja.IsString(c) || goja.IsNumber(c) || goja.IsBigInt(c)) {
				code = cut(oneLine(c.String()), maxCounterName)
			}
		})
	}
	return code
}

// oneLine writes what would end a line, or command a terminal, as JavaScript does in a string.
func oneLine(text string) string {
	if !strings.ContainsFunc(text, unicode.IsControl) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch {
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case unicode.IsControl(r):
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// maxCauses bounds the causes that are shown; a chain of them may be a circle.
const maxCauses = 10

// causes adds what is behind a thrown error: what an AggregateError holds, and the cause, each with what is behind it in turn. Those
// in seen are shown already.
func (v *vm) causes(e *Error, value goja.Value, seen []goja.Value) []goja.Value {
	o, ok := value.(*goja.Object)
	if !ok {
		return seen
	}
	var behind []goja.Value
	if v.isError(o) {
		v.guard(func() {
			if list, ok := o.Get("errors").(*goja.Object); ok && list.ClassName() == "Array" {
				length := list.Get("length").ToInteger()
				for i := range min(length, maxCauses) {
					behind = append(behind, present(list.Get(strconv.FormatInt(i, 10))))
				}
			}
		})
	}
	v.guard(func() {
		if cause := o.Get("cause"); cause != nil && !goja.IsUndefined(cause) {
			behind = append(behind, cause)
		}
	})
	for _, value := range behind {
		_, object := value.(*goja.Object)
		if len(e.causes) >= maxCauses || object && slices.ContainsFunc(seen, func(s goja.Value) bool { return s == value }) {
			continue
		}
		seen = append(seen, value)
		e.causes = append(e.causes, v.describeCause(value))
		seen = v.causes(e, value, seen)
	}
	return seen
}

// describeCause is a cause with its code and its place.
func (v *vm) describeCause(value goja.Value) string {
	text := v.describe(value)
	cause, ok := value.(*goja.Object)
	if !ok || !v.isError(cause) {
		return text
	}
	if code := v.codeOf(cause); code != "" {
		text += " [" + code + "]"
	}
	at := &Error{}
	v.guard(func() {
		if ex := v.rt.Try(func() { panic(cause) }); ex != nil {
			v.locate(at, ex.Stack())
		}
	})
	if at.at.line > 0 {
		text = fmt.Sprintf("%s (%s:%d:%d)", text, at.at.file, at.at.line, at.at.column)
	}
	return text
}

// atMember moves an error to the member that was to be read of nothing, where goja shows it at what should have had the member. It
// answers the place as locate does.
func (v *vm) atMember(e *Error, at int) int {
	m, ok := v.program.members[at]
	if !ok || !strings.HasPrefix(e.message, "TypeError: Cannot read property '"+m.name+"' of undefined") {
		return at
	}
	before := e.at.String()
	e.at = v.program.src.place(m.at)
	e.stack[0] = strings.Replace(e.stack[0], before, e.at.String(), 1)
	return m.at
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

// valueChain is an expression like msg.value.a.b at the end of a text, and valueSpace what may stand between its parts.
var (
	valueChain = regexp.MustCompile(`(?:^|[^\w$.])msg\.value((?:\s*\??\.\s*[A-Za-z_$][\w$]*)*)\s*$`)
	valueSpace = regexp.MustCompile(`[\s?]+`)
	// ofUndefined is how goja says either.
	ofUndefined = regexp.MustCompile(`of undefined( or null)?$`)
)

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
	text = strings.TrimRight(text[v.program.src.find(at).start:min(at, len(text))], ".?")
	m := valueChain.FindStringSubmatch(text[max(0, len(text)-maxChain):])
	switch {
	case m == nil && tombstone:
		if !strings.HasSuffix(e.message, "null") {
			e.message += " or null"
		}
		e.hint = hint
	case m == nil:
	case m[1] == "" && tombstone:
		e.message = ofUndefined.ReplaceAllString(e.message, "of null")
		e.hint = hint
	case !tombstone && isNullAt(trim(record.Value), strings.Split(valueSpace.ReplaceAllString(m[1], ""), ".")[1:]):
		e.message = ofUndefined.ReplaceAllString(e.message, "of null")
	}
}

// maxChain is the longest chain, in bytes, that explainNull looks at.
const maxChain = 500

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
