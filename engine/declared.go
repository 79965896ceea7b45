package engine

import (
	"context"
	"fmt"

	"github.com/flechtwerk/flechtwerk/engine/expr"
	"github.com/flechtwerk/flechtwerk/engine/pipeline"
	"github.com/flechtwerk/flechtwerk/engine/rawjson"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// declared is the Transform of a stage that says with `message:` what a record becomes.
type declared struct {
	message *expr.Message
	only    *stream.Topic // where messages go that name no topic; nil if there are several outputs
	topics  map[string]*stream.Topic
	look    *look
	room    int // what the last values took, in bytes
	topic   []byte
}

func newDeclared(e *Engine, p *pipeline.Pipeline, t *pipeline.Transformer) (*declared, error) {
	look, err := newLook(e, p)
	if err != nil {
		return nil, err
	}
	return newDeclaration(look, t.Message, t.OutputTopics)
}

func newDeclaration(look *look, message *expr.Message, outputs []*pipeline.Topic) (*declared, error) {
	d := &declared{message: message, topics: map[string]*stream.Topic{}, look: look}
	for _, out := range outputs {
		d.topics[out.Name] = &out.Topic
	}
	if len(outputs) == 1 {
		d.only = &outputs[0].Topic
	}
	if name, ok := message.StaticTopic(); ok {
		if d.only, ok = d.topics[name]; !ok {
			return nil, fmt.Errorf("message.topic: %q is none of the stage's output_topics", name)
		}
	}
	return d, nil
}

func (d *declared) Forget() {}

func (d *declared) Close() {}

// Releases implements stream.Releasing.
func (d *declared) Releases() bool { return true }

// Gradual implements stream.Gradual.
func (d *declared) Gradual() {}

// Run makes one message of each record.
func (d *declared) Run(ctx context.Context, batch *stream.Batch) error {
	d.look.tick()
	for i := 0; ; i++ {
		if i == len(batch.Records) {
			if more, err := batch.More(); err != nil || !more {
				return err
			}
		}
		if i%256 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		m, err := d.make(&batch.Records[i], &batch.Arena)
		if err != nil {
			if err := batch.Fail(i, err); err != nil {
				return err
			}
			continue
		}
		m.From = i
		batch.Messages = append(batch.Messages, m)
	}
}

func (d *declared) make(r *stream.Record, arena *stream.Arena) (m stream.Message, err error) {
	d.look.at(r)
	env := &d.look.env
	m = stream.Message{Topic: d.only, Partition: stream.AnyPartition, Key: r.Key, Timestamp: r.Timestamp}
	if _, static := d.message.StaticTopic(); d.message.Sets(expr.PartTopic) && !static {
		if d.topic, err = d.message.AppendTopic(d.topic[:0], env); err != nil {
			return m, err
		}
		if m.Topic = d.topics[string(d.topic)]; m.Topic == nil {
			return m, &codedError{code: "message.topic", text: "message.topic is none of the stage's output_topics for this record"}
		}
	}
	if d.message.Sets(expr.PartKey) {
		key, isNil, err := d.message.AppendKey(arena.Grab(64), env, expr.Format(m.Topic.Key))
		if err != nil {
			return m, err
		}
		if m.Key = nil; !isNil {
			m.Key = keep(arena, key)
		}
	}
	if d.message.Sets(expr.PartValue) {
		value, isNil, err := d.message.AppendValue(arena.Grab(max(d.room, 64)), env, expr.Format(m.Topic.Value))
		if err != nil {
			return m, err
		}
		if !isNil {
			d.room = len(value)
			m.Value = keep(arena, value)
		}
	} else {
		m.Value = r.Value
	}
	if d.message.Sets(expr.PartTimestamp) {
		at, set, err := d.message.Timestamp(env)
		if err != nil {
			return m, err
		}
		if set {
			m.Timestamp = at
		}
	}
	if d.message.Sets(expr.PartPartition) {
		p, set, err := d.message.Partition(env)
		if err != nil {
			return m, err
		}
		if set {
			m.Partition = p
		}
	}
	if d.message.CopiesHeaders() {
		m.Headers = r.Headers
	} else if d.message.Sets(expr.PartHeaders) {
		err = d.message.Headers(env, func(name string, value []byte) {
			m.Headers = append(m.Headers, stream.Header{Key: name, Value: append([]byte(nil), value...)})
		})
		if err != nil {
			return m, err
		}
	}
	if size := len(m.Key) + len(m.Value); m.Topic.MaxMessage > 0 && size > m.Topic.MaxMessage {
		return m, tooLarge(m.Topic.Name, m.Key, size, m.Topic.MaxMessage)
	}
	return m, nil
}

// tooLarge is a record that its topic does not take.
func tooLarge(topic string, key []byte, size, limit int) error {
	return &codedError{code: "record.too_large", text: fmt.Sprintf("the record for topic %s of key %s has %d bytes, and the topic's max.message.bytes was %d at start; "+
		"send less in one record, or raise max.message.bytes of the topic", topic, shortKey(rawjson.View(key)), size, limit)}
}

// keep is Arena.Keep for a piece that may be empty and still is no null.
func keep(arena *stream.Arena, piece []byte) []byte {
	if len(piece) == 0 {
		return []byte{}
	}
	return arena.Keep(piece)
}
