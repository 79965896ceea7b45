package expr

import (
	"regexp"
	"unicode/utf8"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
)

// budget is how many units of work one evaluation may spend. A byte that is made costs one, an element that is visited or
// made costVisit, and bytesPerUnit bytes that are walked over one. It allows two million visits, about half a second.
const (
	budget       = 32 << 20
	costVisit    = 16
	bytesPerUnit = 8
)

// maxRegexps is how many patterns from data an Env keeps compiled.
const maxRegexps = 64

// scratch is what an Env keeps between and during evaluations.
type scratch struct {
	left    int // of the budget
	failure failure
	frames  []frame // one per nesting of predicates
	locals  []Value // of let
	args    []Value // of the function calls that are under way
	regexps map[string]*regexp.Regexp
}

// frame is where a predicate stands: # is item, #index is index, #acc is acc.
type frame struct {
	item, acc Value
	index     int
}

// failure is the first thing that went wrong; code is empty while nothing did. pos is in characters in from's text, or in
// that of the Expr that runs when from is nil.
type failure struct {
	code, message string
	pos           int
	from          *Expr
}

// fail notes a failure. What is evaluated after it counts for nothing.
func (env *Env) fail(pos int, code, message string) Value {
	if env.failure.code == "" {
		env.failure = failure{code: code, message: message, pos: pos}
	}
	return Value{}
}

// spend takes n from the budget and answers false when the evaluation should stop, because of that or because it has failed.
func (env *Env) spend(n int) bool {
	if env.left -= n; env.left < 0 || n < 0 {
		env.fail(0, CodeBudget, "more work than one evaluation may do; the lists or texts are too large")
	}
	return env.failure.code == ""
}

// program is what an Expr needs of an Env.
type program struct{ frames, locals int }

func (p *program) include(other program) {
	p.frames = max(p.frames, other.frames)
	p.locals = max(p.locals, other.locals)
}

// enter makes env ready for an evaluation.
func (e *Expr) enter(env *Env) {
	env.left = budget
	if env.failure.code != "" {
		env.failure = failure{}
	}
	if e.frames > len(env.frames) {
		env.frames = make([]frame, e.frames)
	}
	if e.locals > len(env.locals) {
		env.locals = make([]Value, e.locals)
	}
	env.args = env.args[:0]
}

// fail is the failure of env as an error.
func (e *Expr) fail(env *Env) *Failure {
	from := env.failure.from
	if from == nil {
		from = e
	}
	line, column := place(from.text, env.failure.pos)
	return &Failure{Text: from.text, Line: line, Column: column, Code: env.failure.code, Message: env.failure.message, Ref: from.ref}
}

// failure is one of e as a whole.
func (e *Expr) failure(code, message string) *Failure {
	line, column := place(e.text, e.root.pos)
	return &Failure{Text: e.text, Line: line, Column: column, Code: code, Message: message, Ref: e.ref}
}

// run evaluates e and gives a value that is not nil to write.
func (e *Expr) run(dst []byte, env *Env, write func([]byte, Value, *Env) []byte) (out []byte, isNil bool, err error) {
	e.enter(env)
	v := e.root.eval(env)
	out = dst
	if env.failure.code == "" && v.kind != kNil {
		out = write(dst, v, env)
	}
	if env.failure.code != "" {
		return dst, false, e.fail(env)
	}
	return out, v.kind == kNil, nil
}

// appendJSON appends v as JSON.
func (env *Env) appendJSON(dst []byte, v Value, pos int) []byte {
	switch v.kind {
	case kNil:
		return append(dst, "null"...)
	case kBool:
		if v.num != 0 {
			return append(dst, "true"...)
		}
		return append(dst, "false"...)
	case kRawNumber, kRawText, kRawList, kRawMap, kBig:
		return append(dst, v.str...)
	case kInt, kFloat:
		if v.str != "" {
			return append(dst, v.str...)
		}
		return env.appendNumber(dst, v, pos)
	case kText:
		return rawjson.AppendString(dst, v.str)
	case kBytes:
		env.fail(pos, CodeBytes, "bytes have no JSON; use base64.encode or hex.encode")
		return dst
	case kList:
		dst = append(dst, '[')
		for i, item := range v.box.items {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = env.appendJSON(dst, item, pos)
		}
		return append(dst, ']')
	default: // kMap
		dst = append(dst, '{')
		for i, item := range v.box.items {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendName(dst, v.box.names[i])
			dst = env.appendJSON(dst, item, pos)
		}
		return append(dst, '}')
	}
}

// appendNumber appends a resolved number as JavaScript prints it, without looking at the digits that it came with, save for
// a big one.
func (env *Env) appendNumber(dst []byte, v Value, pos int) []byte {
	switch v.kind {
	case kInt:
		return appendInt(dst, v.int())
	case kBig:
		return append(dst, v.str...)
	default: // kFloat
		f := v.float()
		if f-f != 0 {
			env.fail(pos, CodeNotFinite, "the result is infinite or not a number; a division by zero, perhaps")
			return dst
		}
		return rawjson.AppendFloat(dst, f)
	}
}

// appendText appends v as the text of a key: a text or bytes as they are, nothing for nil, else canonical JSON.
func (env *Env) appendText(dst []byte, v Value, pos int) []byte {
	switch v = resolve(v); v.kind {
	case kNil:
		return dst
	case kText, kBytes:
		return append(dst, v.str...)
	default:
		return env.appendCanonical(dst, v, pos)
	}
}

// appendCanonical appends v as canonical JSON, see Canonical.
func (env *Env) appendCanonical(dst []byte, v Value, pos int) []byte {
	switch v = resolve(v); v.kind {
	case kInt, kFloat, kBig:
		return env.appendNumber(dst, v, pos)
	case kRawList, kRawMap:
		return rawjson.Canonical(dst, rawjson.Bytes(v.str))
	case kList, kMap:
		start := len(dst)
		dst = env.appendJSON(dst, v, pos)
		if env.failure.code != "" {
			return dst
		}
		plain := string(dst[start:])
		return rawjson.Canonical(dst[:start], rawjson.Bytes(plain))
	default:
		return env.appendJSON(dst, v, pos)
	}
}

// Canonical appends checked JSON in its canonical form, in which equal values have equal bytes: members sorted by name, no
// space, numbers as JavaScript prints them.
func Canonical(dst, text []byte) []byte { return rawjson.Canonical(dst, text) }

// textOf is v as a text, like appendText.
func (env *Env) textOf(v Value, pos int) string {
	if v = resolve(v); v.kind == kText {
		return v.str
	}
	return string(env.appendText(nil, v, pos))
}

// pattern is a compiled regular expression that came from data, or nil.
func (env *Env) pattern(text string) *regexp.Regexp {
	if re, ok := env.regexps[text]; ok {
		return re
	}
	if !env.spend(len(text) * costVisit) {
		return nil
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil
	}
	if env.regexps == nil || len(env.regexps) >= maxRegexps {
		env.regexps = make(map[string]*regexp.Regexp)
	}
	env.regexps[string([]byte(text))] = re
	return re
}

// valid tells whether a text that was made from bytes is UTF-8.
func valid(s string) bool { return utf8.ValidString(s) }
