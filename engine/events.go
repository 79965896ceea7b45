package engine

import (
	"fmt"
	"reflect"
	"time"

	"github.com/flechtwerk/flechtwerk/engine/pipeline"
)

// Events is how the engine tells what happens. Log, metrics and the tests' effect log listen; the engine itself writes no
// log. A nil function is not called. Functions run on the engine's goroutines: they must be quick, must not call back into
// the engine, and may be called by several goroutines at once.
type Events struct {
	// A stage.
	StageStarted func(StageInfo)
	StageStopped func(StageInfo)

	// The start of a task, in the order of invariant E3.
	TaskAssigned    func(TaskInfo)
	TaskFenced      func(TaskInfo)
	OffsetsFetched  func(OffsetsInfo)
	TakeoverWritten func(TaskInfo)
	RestoreProgress func(RestoreInfo)
	TaskRunning     func(TaskInfo)

	// The end of a task, or a new start of it.
	TaskRevoked    func(TaskInfo)
	TaskLost       func(TaskInfo)
	TaskStopped    func(TaskInfo)
	TaskRestarting func(TaskInfo)

	// One transaction, in the order of its steps.
	TransactionBegun     func(TransactionInfo)
	TransactionProduced  func(TransactionInfo)
	OffsetsSent          func(TransactionInfo)
	TransactionCommitted func(TransactionInfo)
	TransactionAborted   func(TransactionInfo)
	StateApplied         func(TransactionInfo)
	// OffsetsCommitted tells of a batch that left nothing but offsets and went without a transaction.
	OffsetsCommitted func(TransactionInfo)

	// Records and polls.
	BatchTaken    func(BatchInfo) // records read, decoded and filtered
	BatchRun      func(BatchInfo) // the body has handled what was left of them
	RecordInvalid func(RecordInfo)
	RecordFailed  func(RecordInfo)
	PollStarted   func(PollInfo)
	PollEnded     func(PollInfo)
	// ConfigEnriched tells of a run of enrich: one that failed, or one whose result is committed.
	ConfigEnriched func(PollInfo)

	// The surroundings.
	TopicCreated  func(TopicInfo)
	TopicSeeded   func(TopicInfo)
	StoreSetAside func(StoreInfo)
	Warning       func(WarningInfo)
}

// StageInfo tells of one stage of one pipeline.
type StageInfo struct {
	Pipeline, Stage string
	ApplicationID   string
	Err             error
}

func (i StageInfo) String() string { return i.Pipeline + "/" + i.Stage }

// TaskInfo tells of one task. Err says why, where something went wrong.
type TaskInfo struct {
	Pipeline, Stage string
	Task            int32 // partition or token
	Duration        time.Duration
	Err             error
}

func (i TaskInfo) String() string { return fmt.Sprintf("%s/%s/%d", i.Pipeline, i.Stage, i.Task) }

// Offset is a place in one partition of an input.
type Offset struct {
	Topic     string
	Partition int32
	Offset    int64 // the next record to handle

	committed bool // the group had an offset there
}

func (o Offset) String() string { return fmt.Sprintf("%s/%d=%d", o.Topic, o.Partition, o.Offset) }

// OffsetsInfo tells where a task begins.
type OffsetsInfo struct {
	TaskInfo
	Offsets []Offset
}

// RestoreInfo tells how far a restore is. Next runs from From to End.
type RestoreInfo struct {
	TaskInfo
	From, Next, End int64 // changelog offsets
	Records         int64 // applied so far
	Done            bool
}

// TransactionInfo tells of one transaction. Slices are valid during the call only.
type TransactionInfo struct {
	TaskInfo
	Records  int   // input records
	Messages int   // output records
	Bytes    int64 // their keys and values
	Changes  int   // changelog records
	Outputs  []TopicCount
	States   []string // the changed keys
	Offsets  []Offset
	Configs  []string // extractors: whose pages
}

// TopicCount is how many records went to a topic.
type TopicCount struct {
	Topic string
	Count int
}

// BatchInfo tells of one batch: when it was taken, how many records and bytes were read; when it was run, how many records
// the body handled and how long that took. The transaction is not part of it.
type BatchInfo struct {
	TaskInfo
	Records, Bytes int
	Filtered       int
	Newest         int64 // timestamp of the newest record, milliseconds
}

// RecordInfo tells of a record that was invalid or whose body failed. It never holds the payload.
type RecordInfo struct {
	TaskInfo
	Topic     string
	Partition int32
	Offset    int64
	Policy    pipeline.Policy // what becomes of it
}

// PollInfo tells of one poll of a config, or of one run of its enrich.
type PollInfo struct {
	TaskInfo
	Config   string
	Pages    int
	Messages int
	Overrun  bool // it took longer than every
	// Policy is what becomes of the error, if there is one.
	Policy pipeline.Policy
}

// TopicInfo tells of a topic that was created or seeded.
type TopicInfo struct {
	Topic      string
	Partitions int
	Records    int
}

// StoreInfo tells of a store that could not be read and was renamed.
type StoreInfo struct {
	Path string
	Err  error
}

// WarningInfo is something a person should look at that stops nothing.
type WarningInfo struct {
	Pipeline, Stage string
	Code, Text      string
}

// fill gives every nil function a body that does nothing.
func (e *Events) fill() {
	v := reflect.ValueOf(e).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.IsNil() {
			f.Set(reflect.MakeFunc(f.Type(), func([]reflect.Value) []reflect.Value { return nil }))
		}
	}
}

// Tee answers Events that tells both.
func Tee(a, b Events) Events {
	a.fill()
	b.fill()
	var out Events
	va, vb, vo := reflect.ValueOf(&a).Elem(), reflect.ValueOf(&b).Elem(), reflect.ValueOf(&out).Elem()
	for i := range vo.NumField() {
		fa, fb := va.Field(i), vb.Field(i)
		vo.Field(i).Set(reflect.MakeFunc(fa.Type(), func(in []reflect.Value) []reflect.Value {
			fa.Call(in)
			fb.Call(in)
			return nil
		}))
	}
	return out
}
