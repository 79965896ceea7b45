package expr

import (
	"cmp"
	"fmt"
	"math"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
	"github.com/flechtwerk/flechtwerk/engine/wording"
)

// Part is a member of a message.
type Part uint8

// The parts of a message.
const (
	PartTopic Part = iota
	PartKey
	PartValue
	PartHeaders
	PartTimestamp
	PartPartition
	partCount
)

var partNames = [partCount]string{"topic", "key", "value", "headers", "timestamp", "partition"}

func (p Part) String() string { return partNames[p] }

// Message is a compiled `message:`. Like an Expr it is immutable.
type Message struct {
	set                              [partCount]bool
	topic                            *Template
	key, value, timestamp, partition *Expr
	headers                          []headerExpr // the map form
	headersExpr                      *Expr        // the leaf form
	copiesHeaders                    bool
}

type headerExpr struct {
	name  string
	value *Expr
}

// CompileMessage compiles the tree of a `message:`, which must be a Map of parts: topic is a template, every other leaf an
// expression. It answers all errors at once.
func CompileMessage(tree *Tree, scope Scope) (*Message, []TreeError) {
	m := &Message{}
	var errs []TreeError
	fail := func(t *Tree, code, message, hint string) {
		errs = append(errs, TreeError{t, &Error{1, 1, code, message, hint}})
	}
	if tree.Kind != Map {
		fail(tree, CodeMessage, "message is a map of topic, key, value, headers, timestamp and partition", "")
		return nil, errs
	}
	for i, name := range tree.Names {
		item := tree.Items[i]
		part := Part(0)
		for part < partCount && partNames[part] != name {
			part++
		}
		if part == partCount {
			fail(item, CodeMessage, fmt.Sprintf("message has no member %q", name), cmp.Or(wording.DidYouMean(name, partNames[:]),
				"it has topic, key, value, headers, timestamp and partition; what the record says belongs under value"))
			continue
		}
		m.set[part] = true
		switch part {
		case PartTopic:
			if item.Kind != Leaf {
				fail(item, CodeMessage, "the topic of a message is a name", "")
				continue
			}
			t, err := compileTemplate(item.Text, scope, nil)
			if err != nil {
				errs = append(errs, TreeError{item, err})
				continue
			}
			t.ref = item.Ref
			m.topic = t
		case PartKey:
			m.key = compileTree(item, scope, Any, &errs)
		case PartValue:
			m.value = compileTree(item, scope, Any, &errs)
		case PartTimestamp, PartPartition:
			if item.Kind != Leaf {
				fail(item, CodeMessage, "the "+name+" of a message is one expression", "")
				continue
			}
			e := compileTree(item, scope, ANumber, &errs)
			if part == PartTimestamp {
				m.timestamp = e
			} else {
				m.partition = e
			}
		default: // PartHeaders
			switch item.Kind {
			case List:
				fail(item, CodeMessage, "the headers of a message are a map of names and expressions", "")
			case Leaf:
				m.headersExpr = compileTree(item, scope, aMap, &errs)
				m.copiesHeaders = m.headersExpr != nil && m.headersExpr.root.isHeaders
			case Map:
				for j, header := range item.Names {
					m.headers = append(m.headers, headerExpr{header, compileTree(item.Items[j], scope, Any, &errs)})
				}
			}
		}
	}
	if len(errs) > 0 {
		return nil, errs
	}
	return m, nil
}

// Sets tells whether the message says what part is.
func (m *Message) Sets(part Part) bool { return m.set[part] }

// Reads are those of all the message's expressions; see Expr.Reads.
func (m *Message) Reads() [][]string {
	var reads [][]string
	if m.topic != nil {
		reads = m.topic.Reads()
	}
	for _, e := range []*Expr{m.key, m.value, m.timestamp, m.partition, m.headersExpr} {
		if e != nil {
			reads = append(reads, e.reads...)
		}
	}
	for _, h := range m.headers {
		reads = append(reads, h.value.reads...)
	}
	return reads
}

// StaticTopic is the topic if it is set and has no holes.
func (m *Message) StaticTopic() (string, bool) {
	if m.topic == nil {
		return "", false
	}
	return m.topic.Static()
}

// AppendTopic appends the topic's name; call it only when the part is set, like all that follow. Errors are *Failure, and
// dst is then returned as it was.
func (m *Message) AppendTopic(dst []byte, env *Env) ([]byte, error) { return m.topic.Append(dst, env) }

// AppendKey appends the key in the topic's format: as JSON it is canonical; in the other formats texts and bytes go as they
// are and anything else as canonical JSON. Nil appends nothing and is told.
func (m *Message) AppendKey(dst []byte, env *Env, format Format) (out []byte, isNil bool, err error) {
	if format != JSON {
		return m.key.AppendText(dst, env)
	}
	return m.key.run(dst, env, func(dst []byte, v Value, env *Env) []byte {
		return env.appendCanonical(dst, v, m.key.root.pos)
	})
}

// AppendValue appends the value in the topic's format: as JSON; in the other formats texts and bytes go as they are and
// anything else as JSON. Nil appends nothing and is told: it is a tombstone.
func (m *Message) AppendValue(dst []byte, env *Env, format Format) (out []byte, isNil bool, err error) {
	if format == JSON && m.value.root.types&tNil == 0 {
		out, err = m.value.AppendJSON(dst, env)
		return out, false, err
	}
	return m.value.run(dst, env, func(dst []byte, v Value, env *Env) []byte {
		if format != JSON {
			if v = resolve(v); v.kind == kText || v.kind == kBytes {
				return append(dst, v.str...)
			}
		}
		return env.appendJSON(dst, v, m.value.root.pos)
	})
}

// CopiesHeaders tells that the headers are the record's own: copy them with their order, duplicates and bytes instead of
// calling Headers.
func (m *Message) CopiesHeaders() bool { return m.copiesHeaders }

// Headers calls yield for each header. A nil value is a null header; value is valid only during the call. Texts and bytes
// go as they are, anything else as canonical JSON. Errors are *Failure; what was yielded before counts for nothing then.
func (m *Message) Headers(env *Env, yield func(name string, value []byte)) error {
	var buf []byte
	for i := range m.headers {
		h := &m.headers[i]
		out, isNil, err := h.value.AppendText(buf[:0], env)
		if err != nil {
			return err
		}
		if buf = out; isNil {
			yield(h.name, nil)
		} else {
			yield(h.name, nonNil(out))
		}
	}
	if e := m.headersExpr; e != nil {
		v, err := e.Eval(env)
		if err != nil {
			return err
		}
		if v.kind == kNil {
			return nil
		}
		if !v.isMap() {
			return e.failure(CodeOperand, "the headers of a message are a map")
		}
		for it := membersOf(v); it.next(); {
			item := resolve(it.value)
			if item.kind == kNil {
				yield(it.name(), nil)
				continue
			}
			buf = env.appendText(buf[:0], item, e.root.pos)
			if env.failure.code != "" {
				return e.fail(env)
			}
			yield(it.name(), nonNil(buf))
		}
	}
	return nil
}

func nonNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// Timestamp is the timestamp in ms since 1970; nil in the expression is told as not set.
func (m *Message) Timestamp(env *Env) (ms int64, set bool, err error) {
	ms, set, err = wholeNumber(m.timestamp, env, "the timestamp of a message is a whole number of milliseconds since 1970")
	if err == nil && set && ms < 0 {
		return 0, false, m.timestamp.failure(CodeMessageAt, "the timestamp of a message is before 1970")
	}
	return ms, set, err
}

// Partition is the partition; nil in the expression is told as not set.
func (m *Message) Partition(env *Env) (partition int32, set bool, err error) {
	n, set, err := wholeNumber(m.partition, env, "the partition of a message is a whole number")
	if err == nil && set && (n < 0 || n > math.MaxInt32) {
		return 0, false, m.partition.failure(CodeMessageAt, "the partition of a message is not between 0 and 2147483647")
	}
	return int32(n), set, err
}

func wholeNumber(e *Expr, env *Env, what string) (int64, bool, error) {
	v, err := e.Eval(env)
	if err != nil || v.kind == kNil {
		return 0, false, err
	}
	n, ok := resolve(v).whole()
	if !ok {
		return 0, false, e.failure(CodeMessageAt, what)
	}
	return n, true, nil
}

// CompileTree compiles a tree of expressions into one Expr whose value is the whole structure. A nil leaf is null.
func CompileTree(tree *Tree, scope Scope) (*Expr, []TreeError) {
	var errs []TreeError
	e := compileTree(tree, scope, Any, &errs)
	if len(errs) > 0 {
		return nil, errs
	}
	return e, nil
}

// appendName appends the head of a member.
func appendName(dst []byte, name string) []byte {
	return append(rawjson.AppendString(dst, name), ':')
}
