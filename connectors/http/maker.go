package http

import (
	"fmt"

	"github.com/flechtwerk/flechtwerk/engine/expr"
	"github.com/flechtwerk/flechtwerk/engine/rawjson"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// maker makes messages of items as `message:` says.
type maker struct {
	walk   *walk
	only   *stream.Topic // where messages go whose topic does not hang on the item
	topics map[string]*stream.Topic
	room   int // what the last value took, in bytes
	topic  []byte
}

func (m *maker) init(w *walk) {
	m.walk = w
	message := w.config.Message
	if message == nil {
		return
	}
	static, ok := message.StaticTopic()
	m.topics = make(map[string]*stream.Topic, len(w.config.Outputs))
	for _, t := range w.config.Outputs {
		m.topics[t.Name] = t
		if ok && t.Name == static || !message.Sets(expr.PartTopic) {
			m.only = t
		}
	}
}

// make adds the message of the item that the walk's env has.
func (m *maker) make() (err error) {
	w, message := m.walk, m.walk.config.Message
	env := &w.env
	env.Now = w.config.Now().UnixMilli() // here it is the clock: when the item was read
	out := stream.Message{Topic: m.only, Partition: stream.AnyPartition, Timestamp: env.Now}
	if out.Topic == nil {
		if m.topic, err = message.AppendTopic(m.topic[:0], env); err != nil {
			return err
		}
		if out.Topic = m.topics[string(m.topic)]; out.Topic == nil {
			return newPollError(CodeTopic, "message.topic is none of the stage's output_topics for this item", nil)
		}
	}
	if message.Sets(expr.PartKey) {
		key, isNil, err := message.AppendKey(w.arena.Grab(64), env, expr.Format(out.Topic.Key))
		if err != nil {
			return err
		}
		if !isNil {
			out.Key = m.keep(key)
		}
	} else {
		out.Key = m.configKey(out.Topic.Key)
	}
	if message.Sets(expr.PartValue) {
		value, isNil, err := message.AppendValue(w.arena.Grab(max(m.room, 64)), env, expr.Format(out.Topic.Value))
		if err != nil {
			return err
		}
		if !isNil {
			m.room = len(value)
			out.Value = m.keep(value)
		}
	} else {
		out.Value = w.arena.Copy(env.Value)
	}
	if message.Sets(expr.PartTimestamp) {
		at, set, err := message.Timestamp(env)
		if err != nil {
			return err
		}
		if set {
			out.Timestamp = at
		}
	}
	if message.Sets(expr.PartPartition) {
		p, set, err := message.Partition(env)
		if err != nil {
			return err
		}
		if set {
			out.Partition = p
		}
	}
	if message.CopiesHeaders() {
		for name, value := range env.Headers {
			out.Headers = append(out.Headers, stream.Header{Key: name, Value: value})
		}
	} else if message.Sets(expr.PartHeaders) {
		err := message.Headers(env, func(name string, value []byte) {
			if value != nil {
				value = append([]byte{}, value...)
			}
			out.Headers = append(out.Headers, stream.Header{Key: name, Value: value})
		})
		if err != nil {
			return err
		}
	}
	size := len(out.Key) + len(out.Value)
	if limit := out.Topic.MaxMessage; limit > 0 && size > limit {
		return newPollError(CodeRecordBig, fmt.Sprintf("item %d is a record of %d bytes for topic %s, whose max.message.bytes was %d at start; "+
			"send less in one record, or raise max.message.bytes of the topic", env.Index, size, out.Topic.Name, limit), nil)
	}
	w.page.Messages = append(w.page.Messages, out)
	w.bytes += size
	return nil
}

// configKey is the config's key in the format of a topic.
func (m *maker) configKey(format stream.Format) []byte {
	key := m.walk.poll.Config.Key
	if format == stream.JSON {
		return m.keep(rawjson.AppendString(m.walk.arena.Grab(len(key)+2), key))
	}
	return m.keep(append(m.walk.arena.Grab(len(key)), key...))
}

// keep is Arena.Keep for a piece that may be empty and still is no null.
func (m *maker) keep(piece []byte) []byte {
	if len(piece) == 0 {
		return []byte{}
	}
	return m.walk.arena.Keep(piece)
}
