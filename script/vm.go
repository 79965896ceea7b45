package script

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dop251/goja"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// Env is what a Program runs in.
type Env struct {
	// Stage names the stage in errors.
	Stage string
	// Vars is the pipeline's vars, a JSON object; nil is {}.
	Vars []byte
	// Outputs are the topics that Messages may go to.
	Outputs []*stream.Topic
	// Initial is the declared initial state, a JSON object; nil is {}.
	Initial []byte
	// Timeout bounds one call: a record's transform, a poll from one State to the next, or a relay's arrival. 0 is no bound.
	Timeout time.Duration
	// Grace is how long a cancelled poll may run its finally blocks; 0 is a second.
	Grace time.Duration
	// Now is the clock of Date and of default timestamps; nil is the real one.
	Now func() time.Time
	// StateCache is how much state a task keeps decoded between batches, in bytes; 0 is 16 MiB.
	StateCache int
	// Concurrency is how many records a body that awaits may have begun at once; 0 is DefaultConcurrency.
	Concurrency int
	// Fetch sends the requests of scripts. It is called on many goroutines at once and returns soon after its context ends.
	Fetch func(context.Context, *FetchRequest) (*FetchResponse, error)
	// Console takes what a script prints: level is debug, info, warn or error.
	Console func(level, text string)
	// Log takes what a script logs: level is info or warn. The fields are in the script's order.
	Log func(level, text string, fields []Field)
	// Count adds n, which is not negative, to what the script counts under name.
	Count func(name string, n float64)
	// Memory is shared by all that run the stage in this process; nil is one for each Transform or Source.
	Memory *Memory
}

// maxCallDepth is how deep JavaScript calls may nest.
const maxCallDepth = 1000

// plainValues makes every VM keep values in ordinary objects.
var plainValues = false

// vm is one goja runtime with a program in it. It is used by one goroutine at a time.
type vm struct {
	rt      *goja.Runtime
	program *Program
	env     *Env
	values  values
	// ordinary makes values as JSON.parse does.
	ordinary values
	encoder  encoder
	freezer  *freezer
	handler  *goja.Object
	slab     []message
	initial  []byte
	configs  stream.Configs // of the batch or poll under way

	// While what was thrown is shown: until when its code may run, and whether it had to be stopped, after which the VM must go.
	showUntil time.Time
	spent     bool

	relaying *relaying        // what a relay is at; nil for records
	urls     *[2]*goja.Object // URL and URLSearchParams, once made
	readers  []reader         // of what has a content

	interrupted atomic.Bool
	looks       uint32
	faultAt     []goja.StackFrame // of a run-time panic under way

	bytesClass   *goja.Object  // Uint8Array without its limit
	power, shift goja.Callable // the operators ** and <<

	// What bodies that await have beside: the loop, and the call that the slice under way belongs to.
	loop    *loop
	turn    *turn
	last    *turn      // the call that the last slice ended in
	settled goja.Value // what is awaited, between @ready and @settled
	promise goja.Value // the built-in Promise
	// combining takes what Promise.race, any or all gives to a then while it runs.
	combining *[]*goja.Promise
	yes, no   goja.Value

	// The call under way.
	records  []stream.Record // of the batch; none in a poll
	ctx      context.Context
	messages *[]stream.Message
	arena    *stream.Arena
	index    int
	draft    draft
	scratch  lazy
	glance   glance
	formulas []goja.Callable // the JavaScript of formulas, by their numbers
	parts    []goja.Value    // room for those of a draft
	operands []operand
	emitters []func(goja.FunctionCall) goja.Value // by messageShape
	given    [2]goja.Value                        // msg.value and state, while actions run
	args     []goja.Value                         // room for those of an action

	// What differs between a transform and a poll.
	proceed          func() // throws if the call is to end
	keep             func(state goja.Value)
	complete         func(config goja.Value) // takes what an enrich returns; nil in other bodies
	defaultKey       func(topic *stream.Topic) []byte
	defaultTimestamp func() int64
}

// newVM makes a VM for a program.
func newVM(p *Program, env *Env) (*vm, error) {
	v := bareVM()
	if err := v.load(p, env); err != nil {
		return nil, err
	}
	return v, nil
}

// bareVM makes a VM whose built-ins are bounded and frozen. Nothing can run in it before load.
func bareVM() *vm {
	rt := goja.New()
	v := &vm{rt: rt}
	v.ordinary = newValues(rt, true)
	v.ordinary.parse = true
	v.encoder = encoder{vm: v, limit: maxValue}
	rt.SetMaxCallStackSize(maxCallDepth)
	rt.SetTimeSource(v.clock)
	v.readers = contentReaders()
	rt.SetPromiseRejectionTracker(v.track)
	limitBuiltins(v)
	v.operators()
	watchThen(v)
	findBytes(v)
	replaceJSON(v)
	v.freezer = newFreezer(rt)
	v.freezer.builtins()
	return v
}

// load evaluates the functions of a program and finds the handler. What was loaded before must have come to its end.
func (v *vm) load(p *Program, env *Env) error {
	initial, err := objectText("initial state of stage", env.Stage, env.Initial)
	if err != nil {
		return err
	}
	vars, err := objectText("vars of stage", env.Stage, env.Vars)
	if err != nil {
		return err
	}
	if env.Memory == nil {
		env.Memory = NewMemory()
	}
	v.program, v.env, v.initial = p, env, trim(initial)
	v.values = newValues(v.rt, plainValues || p.plain)
	v.proceed, v.emitters = func() {}, nil
	given, err := v.natives(trim(vars))
	if err != nil {
		return err
	}
	var args []goja.Value
	for _, name := range p.parameters() {
		args = append(args, given[name])
	}
	outer, err := v.rt.RunProgram(p.code)
	if err != nil {
		return v.failure(err)
	}
	start, _ := goja.AssertFunction(outer)
	if env.Timeout > 0 {
		timer := time.AfterFunc(env.Timeout, func() { v.interrupt(v.overtime()) })
		defer timer.Stop()
	}
	var handler goja.Value
	err = contained(func() error {
		handler, err = start(goja.Undefined(), args...)
		return err
	})
	if err != nil {
		return v.failure(err)
	}
	v.calm()
	v.handler = handler.(*goja.Object)
	v.values.begin()
	return nil
}

// objectText is a JSON object as it was given, {} if it was not. what and of name it in the error.
func objectText(what, of string, raw []byte) ([]byte, error) {
	if len(raw) == 0 {
		return []byte("{}"), nil
	}
	switch kind, _, err := rawjson.Check(raw, nil); {
	case err != nil:
		return nil, fmt.Errorf("%s %s: not a JSON object: %w", what, of, err)
	case kind != rawjson.Object:
		return nil, fmt.Errorf("%s %s: not a JSON object", what, of)
	}
	return raw, nil
}

// natives are what the program is called with, by the names of its parameters.
func (v *vm) natives(vars []byte) (map[string]goja.Value, error) {
	p, f := v.program, v.freezer
	given := map[string]goja.Value{}
	// shown is how stacks name the function.
	native := func(name, shown string, length int, run func(goja.FunctionCall) goja.Value) goja.Value {
		given[name] = v.native(shown, length, run)
		return given[name]
	}
	api := func(name string, value goja.Value) {
		f.deep(name, value)
		given[name] = value
	}
	state := v.native("State", 1, v.newState)
	must(state.Set("initial", v.native("initial", 0, func(goja.FunctionCall) goja.Value { return v.values.decode(v.initial) })))
	plain := newValues(v.rt, true)
	v.glance.vars = &lazy{text: &text{raw: vars}}
	api("Message", v.native("Message", 1, v.newMessage))
	api("State", state)
	api("vars", plain.decode(vars))
	api("console", newConsole(v))

	over, err := v.over(native(nameYield, "yield", 1, v.yield))
	if err != nil {
		return nil, err
	}
	given[nameOver] = over
	native(nameKeep, "State", 1, v.yieldState)
	native(nameReturned, "returned", 1, v.returned)
	native(namePass, "pass", 1, v.pass)
	native(nameSnap, "snap", 1, v.snap)
	native(nameFreeze, "freeze", 0, func(call goja.FunctionCall) goja.Value {
		names, list := p.shared[call.Argument(0).ToInteger()], call.Arguments[1:]
		for i, arg := range list {
			f.deep(names[i], arg)
		}
		return list[len(list)-1]
	})
	native(nameAwait, "await", 2, v.awaited)
	native(nameAnswer, "answer", 1, v.answered)
	native(nameReady, "await", 2, v.ready)
	native(nameSettled, "await", 0, v.settledValue)
	native(nameMemo, "memo", 3, v.awaitedMemo)
	native(nameExecutor, "Promise", 1, v.executor)
	native(nameThrown, "throw", 2, v.thrown)
	native(nameBounded, "operator", 3, v.bounded)
	native(nameFormulas, "formulas", 0, v.takeFormulas)
	for i, s := range p.objects {
		native(fmt.Sprint(nameObject, i), "object", 0, v.maker(s))
	}
	for i, s := range p.messages {
		v.emitters = append(v.emitters, v.emitter(s))
		native(fmt.Sprint(nameEmit, i), "emit", 0, v.emitters[i])
	}
	for i, list := range p.runs {
		native(fmt.Sprint(nameRun, i), "run", 2, v.run(list))
	}
	for _, name := range p.builtins {
		given[name] = v.named(name, f)
	}
	return given, nil
}

// interrupt ends the script before its next instruction, and what is done in Go for it at its next look.
func (v *vm) interrupt(reason *refusal) {
	v.interrupted.Store(true)
	v.rt.Interrupt(reason)
}

// calm takes an interrupt back that came too late.
func (v *vm) calm() {
	v.rt.ClearInterrupt()
	v.interrupted.Store(false)
}

// look is called all along what may take long in Go. If the script is to end, it does so here.
func (v *vm) look() {
	if v.looks++; v.looks&1023 == 0 && v.interrupted.Load() {
		_, err := v.power(goja.Undefined(), v.yes, v.yes) // any code of a script's
		must(err)
	}
}

func (v *vm) overtime() *refusal {
	return refuse(CodeTimeout, "raise timeout of the stage, or look for a loop that does not end", "the script ran longer than %s", v.env.Timeout)
}

// native makes a function object of a Go function.
func (v *vm) native(name string, length int, f func(goja.FunctionCall) goja.Value) *goja.Object {
	o := v.rt.ToValue(f).(*goja.Object)
	must(o.DefineDataProperty("name", v.rt.ToValue(name), goja.FLAG_FALSE, goja.FLAG_TRUE, goja.FLAG_FALSE))
	return o
}

// over makes the function behind yield*: it yields what an iterable gives and answers what the iterable returns. When a
// yield throws, the iterable is closed, which runs its finally blocks.
func (v *vm) over(yield goja.Value) (goja.Value, error) {
	maker, err := v.rt.RunProgram(overProgram)
	if err != nil {
		return nil, err
	}
	call, _ := goja.AssertFunction(maker)
	return call(goja.Undefined(), yield, v.rt.ToValue(func(call goja.FunctionCall) goja.Value {
		v.throw(refuse(CodeYield, "yield* takes an array, a generator or another iterable of Messages and States", "yield* was given %s", kindName(call.Argument(0))))
		return nil
	}))
}

var overProgram = goja.MustCompile("yield*", `(function(yieldOne, refuse) {
	return function(list) {
		if (list === null || list === undefined || typeof list === 'string' || typeof list[Symbol.iterator] !== 'function') refuse(list);
		const inner = list[Symbol.iterator]();
		for (;;) {
			const step = inner.next(); // not in a for-of: to close it at an interrupt would hide where that came
			if (step.done) return step.value;
			try {
				yieldOne(step.value);
			} catch (e) {
				try { if (inner.return !== undefined) inner.return(); } catch {}
				throw e;
			}
		}
	};
})`, true)

// record is the record that the call under way is for, or nil in a poll.
func (v *vm) record() *stream.Record {
	i := v.index
	if v.turn != nil {
		i = v.turn.record
	}
	if i < 0 || i >= len(v.records) {
		return nil
	}
	return &v.records[i]
}

// pass rethrows the cancel sentinel; every catch clause calls it first.
func (v *vm) pass(call goja.FunctionCall) goja.Value {
	if o, ok := call.Argument(0).(*goja.Object); ok && o.ClassName() == "Error" {
		if _, is := sentinelOf(o); is {
			panic(o)
		}
	}
	return goja.Undefined()
}

// ended is the error inside the cancel sentinel.
type ended struct{ err error }

func (e *ended) Error() string { return e.err.Error() }
func (e *ended) Unwrap() error { return e.err }

func sentinelOf(o *goja.Object) (*ended, bool) {
	value := o.Get("value")
	if value == nil {
		return nil, false
	}
	e, ok := value.Export().(*ended)
	return e, ok
}

// snap answers a copy of what is about to be spread, so that later code cannot change it.
func (v *vm) snap(call goja.FunctionCall) goja.Value {
	o, ok := call.Argument(0).(*goja.Object)
	if !ok {
		return call.Argument(0)
	}
	if l := v.values.lazyOf(o); l != nil {
		return v.values.expose(l.derive(0))
	}
	copied := v.rt.NewObject()
	v.spread(copied, o)
	return copied
}

// maker is the native function behind an object literal that spreads something.
func (v *vm) maker(s *shape) func(goja.FunctionCall) goja.Value {
	return func(call goja.FunctionCall) goja.Value { return v.literal(s, call.Arguments) }
}

// literal makes the object of a literal that spreads something. What begins with a lazy object stays one.
func (v *vm) literal(s *shape, parts []goja.Value) *goja.Object {
	if l := v.firstLazy(s, parts); l != nil {
		d := l.derive(len(parts) - 1)
		v.fill(d, s, parts)
		return v.values.expose(d)
	}
	o := v.rt.NewObject()
	for i, name := range s.names {
		if s.spread[i] {
			v.spread(o, parts[i])
		} else {
			define(o, name, parts[i])
			v.forget(o, name)
		}
	}
	return o
}

func (v *vm) firstLazy(s *shape, parts []goja.Value) *lazy {
	if len(parts) == 0 || !s.spread[0] {
		return nil
	}
	if o, ok := parts[0].(*goja.Object); ok {
		return v.values.lazyOf(o)
	}
	return nil
}

// fill sets all members of a literal but the first, which d was derived from.
func (v *vm) fill(d *lazy, s *shape, parts []goja.Value) {
	for i := 1; i < len(parts); i++ {
		if !s.spread[i] {
			d.Set(s.names[i], parts[i])
			continue
		}
		value := parts[i]
		if goja.IsString(value) {
			value = value.ToObject(v.rt)
		}
		if from, ok := value.(*goja.Object); ok {
			for _, name := range from.Keys() {
				value := from.Get(name)
				d.Set(name, value)
				if _, ok := value.(*goja.Object); !ok {
					d.spell(name, v.values.rawMember(from, name, value))
				}
			}
		}
	}
}

// spread copies the own enumerable members of value into an ordinary object, as {...value} does.
func (v *vm) spread(o *goja.Object, value goja.Value) {
	if goja.IsString(value) {
		value = value.ToObject(v.rt)
	}
	from, ok := value.(*goja.Object)
	if !ok {
		return
	}
	for _, name := range from.Keys() {
		value := from.Get(name)
		define(o, name, value)
		if raw := v.values.rawMember(from, name, value); raw != nil {
			to := v.values.origins[o]
			if to == nil {
				to = &origin{}
				v.values.origins[o] = to
			}
			to.add(name, originPart{raw, value})
		} else {
			v.forget(o, name)
		}
	}
	for _, symbol := range from.Symbols() {
		must(o.DefineDataPropertySymbol(symbol, from.GetSymbol(symbol), goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_TRUE))
	}
}

// forget says that a member of an ordinary object is no longer what a text said.
func (v *vm) forget(o *goja.Object, name string) {
	if from := v.values.origins[o]; from != nil {
		if i, ok := from.index[name]; ok {
			from.parts[i].raw = nil
		}
	}
}

// encodeState is the JSON of a yielded state, or nil if it is empty.
func (v *vm) encodeState(value goja.Value) []byte {
	if value == nil || goja.IsUndefined(value) || goja.IsNull(value) {
		return nil
	}
	text := v.encodeObject(value, notAState)
	if string(text) == "{}" {
		return nil
	}
	return text
}

// encodeObject is the JSON of a plain object, without white space. otherwise is thrown for what is none.
func (v *vm) encodeObject(value goja.Value, otherwise func(goja.Value) *refusal) []byte {
	o, ok := value.(*goja.Object)
	if !ok || o.ClassName() != "Object" {
		v.throw(otherwise(value))
	}
	text := v.encoder.encode(nil, value)
	if hasSpace(text) {
		text = rawjson.Compact(nil, text)
	}
	if text[0] != '{' {
		v.throw(otherwise(value))
	}
	return text
}

func (v *vm) recordKey(record *stream.Record) goja.Value {
	switch {
	case record.Key == nil:
		return goja.Null()
	case record.Input.Key == stream.JSON:
		if len(record.Key) == 0 {
			return v.values.decode([]byte("{}"))
		}
		return v.values.decode(trim(record.Key))
	case record.Input.Key == stream.Bytes:
		return v.bytes(record.Key)
	default:
		return v.rt.ToValue(rawjson.View(record.Key))
	}
}

func (v *vm) recordValue(record *stream.Record) goja.Value {
	switch {
	case record.Value == nil:
		return goja.Null()
	case record.Input.Value == stream.JSON:
		if record.Kind == rawjson.Object {
			if !v.values.plain {
				if v.program.lendsValue {
					t := text{raw: record.Value, members: record.Members, shape: record.Shape, scanned: true}
					return v.values.again(&v.values.value, &t, nil)
				}
				return v.values.lazyRecord(record)
			}
			return v.values.object(&text{raw: trim(record.Value)})
		}
		return v.values.decode(trim(record.Value))
	case record.Input.Value == stream.Bytes:
		return v.bytes(record.Value)
	default:
		return v.rt.ToValue(rawjson.View(record.Value))
	}
}

// bytes makes a byte array of a copy of b.
func (v *vm) bytes(b []byte) goja.Value {
	buffer := v.rt.NewArrayBuffer(append([]byte(nil), b...))
	array, err := v.rt.New(v.bytesClass, v.rt.ToValue(buffer))
	must(err)
	return array
}

// trim cuts white space around a JSON text.
func trim(raw []byte) []byte {
	for len(raw) > 0 && raw[0] <= ' ' {
		raw = raw[1:]
	}
	for len(raw) > 0 && raw[len(raw)-1] <= ' ' {
		raw = raw[:len(raw)-1]
	}
	return raw
}

// recordKeyFor is the key of a Message that names none: that of its record or, in a relay, of its config where an arrival
// has none.
func (v *vm) recordKeyFor(record *stream.Record, topic *stream.Topic) []byte {
	if v.relaying != nil && record.Key == nil {
		return v.convertKey([]byte(v.relaying.in.Config.Key), stream.String, topic.Key)
	}
	return v.convertKey(record.Key, record.Input.Key, topic.Key)
}

// convertKey is a record's key as the key of another topic.
func (v *vm) convertKey(key []byte, from, to stream.Format) []byte {
	switch {
	case key == nil || from == to && from != stream.JSON || to == stream.Bytes:
		return key
	case from == stream.JSON && to == stream.JSON:
		if len(key) == 0 {
			return key
		}
		return v.keepPiece(rawjson.Canonical(v.arena.Grab(len(key)), key))
	case to == stream.JSON:
		return v.arena.Keep(rawjson.AppendString(v.arena.Grab(len(key)+8), strings.ToValidUTF8(string(key), "\uFFFD")))
	case from == stream.JSON && len(key) > 0 && rawjson.KindOf(trim(key)[0]) == rawjson.String:
		text, _ := rawjson.Text(trim(key))
		return v.keepPiece(append(v.arena.Grab(len(text)), text...))
	default:
		return key
	}
}
