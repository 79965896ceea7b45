// Package stream holds the words that all rooms speak: what a record is, what a batch of records becomes, and what a page
// of an extractor is. It knows neither Kafka nor YAML nor JavaScript.
//
// The engine owns the loop; a Transform or a Source is asked, answers, and keeps nothing that it was not told is committed:
//
//  1. The engine decodes a batch and hands it to Transform.Run.
//  2. Run calls the body once per record, in the order of the batch for records of one state key, and leaves outputs and
//     state changes in the Batch. It touches neither Kafka nor the store.
//  3. The engine writes all of it in one Kafka transaction. Whatever a Transform keeps between batches (decoded states) is
//     true only if that transaction committed; otherwise the engine calls Forget before the next Run.
package stream

import (
	"context"
	"time"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
)

// Format is how the bytes of a key or a value are read and written.
type Format uint8

// The formats of keys and values.
const (
	JSON   Format = iota // UTF-8 JSON; a key in this format is canonical (sorted members) when written
	String               // UTF-8 text without quotes
	Bytes                // as they are
)

func (f Format) String() string {
	switch f {
	case String:
		return "string"
	case Bytes:
		return "bytes"
	default:
		return "json"
	}
}

// Topic is a topic as the pipeline declares it.
type Topic struct {
	Name       string
	Key, Value Format
	// MaxMessage is the largest record, in bytes, that the broker takes on this topic (max.message.bytes); 0 is unknown.
	MaxMessage int
}

// Header is one record header. A nil Value is a null header.
type Header struct {
	Key   string
	Value []byte
}

// Input is one input of a transformer.
type Input struct {
	Name string // the name in the map form of input_topics, else the topic's
	Topic
}

// Record is one record read from Kafka, already checked: a JSON value is valid JSON in valid UTF-8, a string is valid UTF-8.
// Its slices are shared and must not be changed; they stay valid as long as anyone holds them.
type Record struct {
	Input     *Input
	Partition int32
	Offset    int64
	Timestamp int64 // milliseconds since 1970
	Key       []byte
	Value     []byte // nil is a tombstone; an empty JSON value has become {}
	Headers   []Header
	// Members are the top-level members of Value where that is a JSON object.
	Members []rawjson.Member
	// Shape is the shape of such a Value, if it is known.
	Shape *rawjson.Shape
	// Kind is the kind of a JSON Value; Invalid for other formats and tombstones.
	Kind rawjson.Kind
	// StateKey names the state that the body sees; set only for stateful stages.
	StateKey string
}

// AnyPartition lets the partitioner place a Message by its key.
const AnyPartition = -1

// Message is one record to be written. Its bytes are encoded and belong to the Batch's or Page's Arena.
type Message struct {
	Topic     *Topic
	Partition int32 // AnyPartition, or the one that the body asked for
	Key       []byte
	Value     []byte // nil is a tombstone
	Headers   []Header
	Timestamp int64 // milliseconds since 1970
	From      int   // which record of the batch made it
}

// Change is the new state of one key. A nil Value deletes it.
type Change struct {
	Key   string
	Value []byte // compact JSON
	From  int    // which record of the batch yielded it last
}

// States reads the state that a batch starts from.
type States interface {
	// State is the state of key as compact JSON, or nil. The slice is valid until the next call and must not be changed.
	State(key string) ([]byte, error)
}

// Configs are the configs of a stage as they were when a batch or a poll began.
type Configs interface {
	// Get is the config of key as a JSON object, or nil. The slice must not be changed.
	Get(key string) []byte
}

// Batch is one unit of a task's work: what goes into a transaction.
type Batch struct {
	Records []Record
	// More appends further records, so that a record is worked on while what was read of it is still in the processor's cache.
	// It answers false when the batch has no more. An error ends Run, which returns it. Only a Gradual finds it to have any;
	// nil is as one that has none.
	More    func() (bool, error)
	States  States // nil for stateless stages
	Configs Configs
	// Fail is asked when a record's body fails. It answers nil if the record is to be passed over: then nothing that the
	// record yielded may be in Messages or Changes. Any other answer ends Run, which returns it.
	Fail func(i int, err error) error
	// Again, if not nil, is asked instead of Fail by a Transform that can run a single record again.
	Again *Again

	// What Run leaves. Messages are in the order of Records and, within one record, of the yields. Changes hold each changed
	// key once, in no particular order, with its last value; Run leaves out a key whose last value is what it was.
	Messages []Message
	Changes  []Change
	// Arena holds the bytes of Messages and Changes.
	Arena Arena
}

// Again runs records of a batch again whose bodies failed. What others have left in the batch stays, and later records of the same
// state key wait.
type Again struct {
	// Failed is told why record i failed, and answers how long to pause before it runs again and before any other begins.
	Failed func(i int, err error) time.Duration
	// Stop is closed when a pause is to end early.
	Stop <-chan struct{}
	// Resume is asked at the end of a pause. An error ends Run, which returns it.
	Resume func() error
}

// Reset makes the batch ready for the next records. Bytes that were kept in the Arena become invalid.
func (b *Batch) Reset() {
	clear(b.Records)
	clear(b.Messages)
	clear(b.Changes)
	b.Records, b.Messages, b.Changes = b.Records[:0], b.Messages[:0], b.Changes[:0]
	b.Arena.Reset()
}

// Transform is what a transformer does with its records. It belongs to one task and is used by one goroutine.
type Transform interface {
	// Run fills batch from its records. ctx ends it early with ctx's cause; nothing of the batch counts then.
	Run(ctx context.Context, batch *Batch) error
	// Forget drops everything kept between batches; called when the last batch did not commit, or the store was refilled.
	Forget()
	Close()
}

// Releasing is a Transform that may keep nothing of the Members of a batch's Records once the next batch begins, so that their
// memory is used again. The bytes of keys and values are never used again.
type Releasing interface {
	Transform
	// Releases tells whether it does.
	Releases() bool
}

// Gradual is a Transform that asks for More when it comes to the end of a batch's Records. The others get all of them at once.
type Gradual interface {
	Transform
	// Gradual does nothing.
	Gradual()
}

// Config is one config of an extractor.
type Config struct {
	Key   string
	Value []byte // a JSON object
}

// Page is what one transaction of an extractor commits: messages, and the cursor that says they are done.
type Page struct {
	Messages []Message
	// Cursor is the new state, compact JSON, if Moved. A nil Cursor deletes it.
	Cursor []byte
	Moved  bool
}

// Poll is one run of an extractor for one config.
type Poll struct {
	Config Config
	Cursor []byte // the committed state as JSON; nil when there is none
	// Configs are those of the stage when the poll began.
	Configs Configs
	// Commit returns after the page is committed. On an error the poll must end with that error; it may first run the
	// clean-up code of a body. The page's bytes may be used again once Commit has returned.
	Commit func(ctx context.Context, page *Page) error
}

// Source is what an extractor polls. Several polls may run at once, each for its own config.
type Source interface {
	// Poll runs once. What was not given to Commit when it returns an error counts as never read.
	Poll(ctx context.Context, poll *Poll) error
	Close()
}

// Enrich completes configs before they are polled. Several calls may run at once.
type Enrich interface {
	// Complete answers what takes the place of a config: a JSON object, compact, that belongs to the caller.
	Complete(ctx context.Context, config Config) ([]byte, error)
	// Digest tells an Enrich from one that may complete the same config otherwise: it changes with the script, and is the
	// same in every process that runs the same.
	Digest() []byte
	Close()
}

// Text is source text of a user (a body, an expression) and where it stands in the user's file. Line and Column are those of
// its first character, from 1, in characters. Every further line of the text begins at column Indent+1 of the next line of
// the file.
type Text struct {
	File         string
	Line, Column int
	Indent       int
	Text         string
}

// Position is the place in the file of line and column of the text, both from 1, in characters.
func (t *Text) Position(line, column int) (fileLine, fileColumn int) {
	if line <= 1 {
		return t.Line, t.Column + column - 1
	}
	return t.Line + line - 1, t.Indent + column
}
