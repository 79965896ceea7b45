package expr

// Want is what the place where an expression stands can use. Compile refuses an expression that can never be that.
type Want uint8

// What may be wanted.
const (
	Any       Want = iota
	Condition      // true or false; nil is false
	AText
	ANumber
	AList
)

// Expr is a compiled expression.
type Expr struct {
	text string
	root node
	ref  any // of the Tree that it was a leaf of
	program
	textVars []TextVar
	reads    [][]string
	path     []string
}

// MaxText is the longest text of an expression, in bytes.
const MaxText = 64 << 10

// Compile compiles text. The error is an *Error.
func Compile(text string, scope Scope, want Want) (*Expr, error) {
	e, err := compile(text, scope, want)
	if err != nil {
		return nil, err
	}
	return e, nil
}

// Text is the text that was compiled.
func (e *Expr) Text() string { return e.text }

// TextVars are the places where a var that is a text of the environment meets an ordering or arithmetic (see
// Scope.WithVars). Their places are in the text; those of an Expr made of a tree are in its leaves.
func (e *Expr) TextVars() []TextVar { return e.textVars }

// Reads are the paths of names that e looks at, each from a name of its scope on and as far as the text tells:
// `len(body.items) + state.n` reads body.items and state.n, and `body[config.list]` the whole body.
func (e *Expr) Reads() [][]string { return e.reads }

// Path is the path that e is and nothing else, as `body.items`, or nil.
func (e *Expr) Path() []string { return e.path }

// Constant tells whether e has the same value for every record.
func (e *Expr) Constant() bool { return e.root.constant }

// Bool runs e as a condition: nil is false, anything else that is no boolean is an error. Errors are *Failure.
func (e *Expr) Bool(env *Env) (bool, error) {
	e.enter(env)
	ok := e.root.cond(env)
	if env.failure.code != "" {
		return false, e.fail(env)
	}
	return ok, nil
}

// Eval runs e. The Value may share memory with env's slices. Errors are *Failure.
func (e *Expr) Eval(env *Env) (Value, error) {
	e.enter(env)
	v := e.root.eval(env)
	if env.failure.code != "" {
		return Value{}, e.fail(env)
	}
	return v, nil
}

// AppendJSON appends the result as JSON: what was not touched byte for byte, nil as null. On an error, a *Failure, dst is
// returned as it was.
func (e *Expr) AppendJSON(dst []byte, env *Env) ([]byte, error) {
	e.enter(env)
	out := e.root.json(dst, env)
	if env.failure.code != "" {
		return dst, e.fail(env)
	}
	return out, nil
}

// AppendText appends the result as the text of a key: a text or bytes as they are, anything else as canonical JSON. Nil
// appends nothing and is told. Errors are *Failure.
func (e *Expr) AppendText(dst []byte, env *Env) (out []byte, isNil bool, err error) {
	out, isNil, f := e.appendText(dst, env)
	if f != nil {
		return out, isNil, f
	}
	return out, isNil, nil
}

func (e *Expr) appendText(dst []byte, env *Env) (out []byte, isNil bool, f *Failure) {
	e.enter(env)
	v := e.root.eval(env)
	out = env.appendText(dst, v, e.root.pos)
	if env.failure.code != "" {
		return dst, false, e.fail(env)
	}
	return out, v.kind == kNil, nil
}
