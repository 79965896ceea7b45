package script

import (
	"github.com/dop251/goja"

	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// message is the object msg of a record. Its members are made when they are read; with the first write it becomes an
// ordinary object.
type message struct {
	vm      *vm
	record  *stream.Record
	value   goja.Value
	key     goja.Value
	headers *goja.Object
	own     *goja.Object
	arrival *arrival // of a relay; nil for a record
}

const messageSlab = 64

var (
	messageNames      = []string{"key", "value", "topic", "partition", "offset", "timestamp", "headers"}
	messageNamesInput = append(messageNames[:len(messageNames):len(messageNames)], "input")
)

// msg makes the object msg.
func (v *vm) msg(record *stream.Record) *goja.Object {
	if len(v.slab) == 0 {
		v.slab = make([]message, messageSlab)
	}
	m := &v.slab[0]
	v.slab = v.slab[1:]
	m.vm, m.record = v, record
	if v.relaying != nil {
		m.arrival = &arrival{Arrival: &v.relaying.in.Arrivals[v.index]}
	}
	return v.rt.NewDynamicObject(m)
}

// named tells whether the input has a name of its own, which is then shown; it can be read in any case.
func (m *message) named() bool { return m.record.Input.Name != m.record.Input.Topic.Name }

// Get implements goja.DynamicObject.
func (m *message) Get(name string) goja.Value {
	if m.own != nil {
		if !hasOwn(m.own, name) {
			return nil
		}
		return m.own.Get(name)
	}
	v, record := m.vm, m.record
	if m.arrival != nil && !m.arrival.has(name) {
		return nil
	}
	switch name {
	case "value":
		if m.value == nil {
			m.value = v.recordValue(record)
		}
		return m.value
	case "key":
		if m.key == nil {
			m.key = v.recordKey(record)
		}
		return m.key
	case "topic":
		return v.values.string(record.Input.Topic.Name)
	case "partition":
		return v.rt.ToValue(record.Partition)
	case "offset":
		return v.rt.ToValue(record.Offset)
	case "timestamp":
		return v.rt.ToValue(record.Timestamp)
	case "headers":
		if m.headers == nil {
			m.headers = v.rt.NewDynamicObject(&headers{vm: v, list: record.Headers})
		}
		return m.headers
	case "input":
		return v.values.string(record.Input.Name)
	}
	if m.arrival != nil {
		return m.arrival.get(v, name)
	}
	return nil
}

// become makes it an ordinary object.
func (m *message) become() *goja.Object {
	if m.own == nil {
		own := m.vm.rt.NewObject()
		for _, name := range m.Keys() {
			define(own, name, m.Get(name))
		}
		m.own = own
	}
	return m.own
}

// Set implements goja.DynamicObject.
func (m *message) Set(name string, value goja.Value) bool {
	define(m.become(), name, value)
	return true
}

// Delete implements goja.DynamicObject.
func (m *message) Delete(name string) bool {
	must(m.become().Delete(name))
	return true
}

// Has implements goja.DynamicObject.
func (m *message) Has(name string) bool {
	if m.own != nil {
		return hasOwn(m.own, name)
	}
	if m.arrival != nil {
		return m.arrival.has(name)
	}
	if name == "input" {
		return true
	}
	for _, n := range messageNames {
		if n == name {
			return true
		}
	}
	return false
}

// Keys implements goja.DynamicObject.
func (m *message) Keys() []string {
	switch {
	case m.own != nil:
		return m.own.Keys()
	case m.arrival != nil:
		return m.arrival.names()
	case m.named():
		return messageNamesInput
	default:
		return messageNames
	}
}

func hasOwn(o *goja.Object, name string) bool {
	for _, key := range o.GetOwnPropertyNames() {
		if key == name {
			return true
		}
	}
	return false
}
