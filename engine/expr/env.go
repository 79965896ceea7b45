package expr

import (
	"iter"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
)

// Format is how the bytes of a key or a value are read and written. Its numbers are those of stream.Format, so that
// Format(f) converts.
type Format uint8

// The formats of keys and values.
const (
	JSON  Format = iota // UTF-8 JSON, checked
	Text                // UTF-8 text, checked
	Bytes               // as they are
)

// Doc is a JSON value that many evaluations read: vars, a config, a state. The zero Doc is nil.
type Doc struct {
	raw     []byte
	members []rawjson.Member
	root    Value
}

// NewDoc checks text, which must be one JSON value, and keeps it. A nil text makes the zero Doc.
func NewDoc(text []byte) (Doc, error) {
	if text == nil {
		return Doc{}, nil
	}
	_, members, err := rawjson.Check(text, nil)
	if err != nil {
		return Doc{}, err
	}
	return Doc{raw: text, members: members, root: rawRoot(text)}, nil
}

// Items are what an expression of scope Page knows of the items of an answer.
type Items struct {
	First, Last Doc
	Count       int64
}

// Env is what an expression sees: one record, or one config. Make one per goroutine and fill it anew for each record; it
// keeps scratch space between evaluations. Nothing in it is changed or kept; a Value that Eval returns may share its bytes.
type Env struct {
	// The record (scope Record). A nil Key is an absent one, a nil Value is a tombstone. JSON and Text must have been
	// checked. Members are the top-level members of a Value that is a JSON object, and Shape is its shape, if that is known.
	Key, Value             []byte
	KeyFormat, ValueFormat Format
	Members                []rawjson.Member
	Shape                  *rawjson.Shape
	// Headers walks over the headers in their order; nil is none. Set it once, as a closure over the current record.
	Headers           iter.Seq2[string, []byte]
	Timestamp, Offset int64 // Timestamp in ms since 1970
	Topic             string
	Partition         int32

	// The config (scope Config). ConfigKey is config.$key.
	Config, State Doc
	ConfigKey     string

	// How a message of MQTT came (scope Delivery), beside what a record has. Properties walks over its user properties in
	// their order; nil is none.
	Levels     []string
	QoS        int
	Retained   bool
	Properties iter.Seq2[string, []byte]

	// The answer (scope Response), whose headers are in Headers. An item of it (scope Item) is in Value, ValueFormat and
	// Members, as a record's value is. What is said of all its items (scope Page) is in Page.
	Body   Doc
	Status int
	Index  int64
	Page   Items
	// FoldHeaders says that a header is found in whatever case its name is written.
	FoldHeaders bool

	Vars Doc
	Now  int64 // the engine's clock, ms since 1970

	scratch
}
