package engine

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flechtwerk/flechtwerk/engine/expr"
	"github.com/flechtwerk/flechtwerk/engine/pipeline"
	"github.com/flechtwerk/flechtwerk/engine/rawjson"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// emptyObject is what an empty JSON value is read as (W2).
var emptyObject = []byte("{}")

// slab hands out room for the members of the records of a batch. It is used again for the next one only where nothing of
// a batch outlives it (stream.Releasing).
type slab struct {
	chunks [][]rawjson.Member
	last   int // the chunk that is filled
}

const slabMembers = 4096

// room is the chunk to append the members of a record to.
func (s *slab) room() []rawjson.Member {
	for ; s.last < len(s.chunks); s.last++ {
		if c := s.chunks[s.last]; cap(c)-len(c) >= rawjson.MaxShaped {
			return c
		}
	}
	s.chunks = append(s.chunks, make([]rawjson.Member, 0, slabMembers))
	return s.chunks[s.last]
}

// keep keeps what was appended to room. Members that did not fit have moved to memory of their own.
func (s *slab) keep(members []rawjson.Member) {
	if cap(members) == cap(s.chunks[s.last]) {
		s.chunks[s.last] = members
	}
}

// back gives back the members of the record that was kept last.
func (s *slab) back(members []rawjson.Member) {
	if s.last == len(s.chunks) || len(members) == 0 {
		return
	}
	c := s.chunks[s.last]
	if n := len(c) - len(members); n >= 0 && &c[n] == &members[0] {
		s.chunks[s.last] = c[:n]
	}
}

// renew begins a batch.
func (s *slab) renew(released bool) {
	if !released {
		if s.last < len(s.chunks) {
			s.chunks = [][]rawjson.Member{s.chunks[s.last]}
		}
		s.last = 0
		return
	}
	for i, c := range s.chunks {
		s.chunks[i] = c[:0]
	}
	s.last = 0
}

// decode fills rec from r, a record of the input of that number. The error says what is wrong with the record, never what it
// holds.
func (b *batches) decode(input int, r *kgo.Record, rec *stream.Record) error {
	in := b.spec.Inputs[input]
	rec.Input = in
	rec.Partition, rec.Offset, rec.Timestamp = r.Partition, r.Offset, r.Timestamp.UnixMilli()
	rec.Key, rec.Value = r.Key, r.Value
	if len(r.Headers) > 0 {
		rec.Headers = make([]stream.Header, len(r.Headers))
		for i, h := range r.Headers {
			rec.Headers[i] = stream.Header(h)
		}
	}
	if r.Key != nil {
		switch in.Key {
		case stream.JSON:
			if _, _, err := rawjson.Check(r.Key, nil); err != nil {
				return fmt.Errorf("the key is not JSON: %w", err)
			}
		case stream.String:
			if !utf8.Valid(r.Key) {
				return errors.New("the key is not a string: invalid UTF-8")
			}
		case stream.Bytes:
		}
	}
	if r.Value == nil {
		return nil
	}
	switch in.Value {
	case stream.JSON:
		if len(r.Value) == 0 {
			rec.Value, rec.Kind = emptyObject, rawjson.Object
			return nil
		}
		room := b.members.room()
		at := len(room)
		kind, members, shape, err := b.shapes[input].Check(r.Value, room)
		if err != nil {
			return fmt.Errorf("the value is not JSON: %w", err)
		}
		rec.Kind, rec.Shape = kind, shape
		rec.Members = members[at:len(members):len(members)]
		b.members.keep(members)
	case stream.String:
		if !utf8.Valid(r.Value) {
			return errors.New("the value is not a string: invalid UTF-8")
		}
	case stream.Bytes:
	}
	return nil
}

// look lets expressions look at one record after another.
type look struct {
	env     expr.Env
	now     func() time.Time
	headers []stream.Header
	key     []byte
}

func newLook(e *Engine, p *pipeline.Pipeline) (*look, error) {
	vars, err := expr.NewDoc(p.Vars)
	if err != nil {
		return nil, fmt.Errorf("vars: %w", err)
	}
	l := &look{now: e.o.Now}
	l.env.Vars = vars
	l.env.Headers = func(yield func(string, []byte) bool) {
		for _, h := range l.headers {
			if !yield(h.Key, h.Value) {
				return
			}
		}
	}
	return l, nil
}

// tick sets what `now` is; once per batch.
func (l *look) tick() { l.env.Now = l.now().UnixMilli() }

// at points the expressions at r.
func (l *look) at(r *stream.Record) {
	e := &l.env
	e.Key, e.Value, e.Members, e.Shape = r.Key, r.Value, r.Members, r.Shape
	e.KeyFormat, e.ValueFormat = expr.Format(r.Input.Key), expr.Format(r.Input.Value)
	e.Timestamp, e.Offset, e.Partition = r.Timestamp, r.Offset, r.Partition
	e.Topic = r.Input.Topic.Name
	l.headers = r.Headers
}

// admit tells whether the filter keeps a record, and finds its state key.
func (l *look) admit(r *stream.Record, spec *pipeline.Transformer, stateful bool) (keep bool, err error) {
	if spec.Filter != nil || spec.StateKey != nil {
		l.at(r)
	}
	if spec.Filter != nil {
		if keep, err = spec.Filter.Bool(&l.env); err != nil || !keep {
			return false, err
		}
	}
	if stateful {
		if r.StateKey, err = l.stateKey(r, spec.StateKey); err != nil {
			return false, err
		}
	}
	return true, nil
}

// errNoKey is a record that needs a state key and has none.
var errNoKey = &codedError{code: "state.no_key", text: "the record has no state key (it is null); give the record a key, or say state_key"}

// codedError is an error with a stable code.
type codedError struct{ code, text string }

func (e *codedError) Error() string { return e.text }

// Code is the error's stable code.
func (e *codedError) Code() string { return e.code }

// stateKey is the text that names the state of a record: by default its key, else what the expression by answers.
func (l *look) stateKey(r *stream.Record, by *expr.Expr) (string, error) {
	var key string
	switch {
	case by != nil:
		text, isNil, err := by.AppendText(l.key[:0], &l.env)
		if err != nil {
			return "", err
		}
		if l.key = text; isNil {
			return "", errNoKey
		}
		key = string(text)
	case r.Key == nil:
		return "", errNoKey
	case r.Input.Key == stream.JSON:
		if len(r.Key) > 0 && r.Key[0] == '"' {
			key, _ = rawjson.Text(r.Key)
			break
		}
		if l.key = expr.Canonical(l.key[:0], r.Key); string(l.key) == "null" {
			return "", errNoKey
		}
		key = string(l.key)
	default:
		key = rawjson.View(r.Key)
	}
	if !utf8.ValidString(key) {
		return "", &codedError{code: "state.bad_key", text: "the state key is not UTF-8"}
	}
	if strings.HasPrefix(key, reserved) {
		return "", &codedError{code: "state.bad_key", text: "the state key begins with U+0000, which is kept for the engine"}
	}
	return key, nil
}
