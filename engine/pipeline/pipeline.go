package pipeline

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/flechtwerk/flechtwerk/engine/decode"
	"github.com/flechtwerk/flechtwerk/engine/expr"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// Pipeline is one file, checked: nothing in it contradicts anything else in it.
type Pipeline struct {
	Name        string
	Description string
	File        string
	// Vars is a JSON object: what `vars` is in scripts, expressions and templates.
	Vars []byte
	// Topics are all topics that the pipeline declares or names, first the declared ones. A topic that several pipelines of
	// a Set name is the same *Topic in all of them.
	Topics       []*Topic
	Extractors   []*Extractor
	Transformers []*Transformer
	// Functions are evaluated in this order in each VM of the pipeline, before any body.
	Functions []stream.Text
	// Protobuf has the message types that scripts may decode; nil where the pipeline names no file of them.
	Protobuf *decode.Schema
	// Fetch is what every HTTP request of the pipeline has that does not say otherwise.
	Fetch FetchDefaults

	protobuf Place // where the key stands; the zero value is nowhere
}

// Topic is a topic that a pipeline declares or names.
type Topic struct {
	stream.Topic
	// Declared topics are created by `topics apply` and verified by `run`.
	Declared bool
	// Partitions is 0 where the pipeline does not say.
	Partitions int
	// Config are the broker's settings of the topic that the pipeline asks for. A topic that a stage reads configs from is
	// compacted unless the pipeline says otherwise.
	Config map[string]string
	// Seed fills the topic once, before stages start. It may be nil.
	Seed *Seed
	// Place is where the topic is declared, or named first.
	Place Place
}

// Place is a place in a user's file; Line and Column are from 1, in characters.
type Place struct {
	File         string
	Line, Column int
}

// Policy says what becomes of a failure.
type Policy uint8

// The policies.
const (
	Fail       Policy = iota // the process ends with exit status 1 and no offset moves
	Skip                     // the record, the poll or the config is passed over
	Retry                    // it is tried again after a pause; nothing commits meanwhile
	DeadLetter               // it is written to a topic of dead letters, in the same transaction as what stood beside it
)

func (p Policy) String() string {
	switch p {
	case Skip:
		return "skip"
	case Retry:
		return "retry"
	case DeadLetter:
		return "dlq"
	default:
		return "fail"
	}
}

// Backoff is how long a Retry pauses: Min before the second attempt and twice as long before each further one, at most Max.
type Backoff struct{ Min, Max time.Duration }

// DefaultBackoff is that of `retry` without a range.
var DefaultBackoff = Backoff{time.Second, 5 * time.Minute}

// Body is a script. A body without text is absent.
type Body struct {
	stream.Text
	// Module says that the text is a file of its own that exports a generator function named like the body's key.
	Module bool
}

// Present tells whether the pipeline has this body.
func (b *Body) Present() bool { return b.File != "" }

// What a stage has that does not say otherwise.
const (
	TransformTimeout   = 30 * time.Second
	PollTimeout        = 5 * time.Minute
	RelayTimeout       = 30 * time.Second
	DefaultWorkers     = 16
	DefaultConcurrency = 64
)

// FetchDefaults are what HTTP requests have that do not say otherwise.
type FetchDefaults struct {
	UserAgent    string        // empty is the program's own
	BaseURL      string        // empty where the pipeline does not say
	Timeout      time.Duration // of a request, with its body
	Rate         FetchRate     // per host; the zero value is without limit
	Breaker      FetchBreaker  // per host; the zero value never opens
	MaxBytes     int64         // of a body
	MaxRedirects int
}

// DefaultFetch is that of a pipeline without `fetch:`.
var DefaultFetch = FetchDefaults{Timeout: 30 * time.Second, MaxBytes: 64 << 20, MaxRedirects: 10}

// FetchRate is how many requests may be sent to one host within some time.
type FetchRate struct {
	Requests int
	Per      time.Duration
}

// FetchBreaker keeps requests from a host that failed so many times in a row, for so long.
type FetchBreaker struct {
	Failures int
	Pause    time.Duration
}

// Extractor is a stage that reads something outside Kafka.
type Extractor struct {
	Name          string
	ApplicationID string
	// Every is from the start of one poll of a config to the start of its next; 0 with EveryExpr or Schedule.
	Every time.Duration
	// EveryExpr gives it for each config, in scope expr.Config; Period runs it. It may be nil.
	EveryExpr *expr.Expr
	// Schedule says when each config is polled, in place of Every and EveryExpr. It may be nil.
	Schedule *Schedule
	// Configs are the inline ones that Where picks, in the order of the file, with their defaults. There is at least one, or
	// a topic of them.
	Configs []stream.Config
	// ConfigTopics hold further configs by key.
	ConfigTopics []*Topic
	// Config is what the stage wants of its configs; nil takes every JSON object as it is.
	Config *ConfigSpec
	// Where tells which configs of ConfigTopics are the stage's own, in scope expr.Choice, of a config that ConfigSpec.Fill has
	// filled and before ConfigSpec.Check; nil is all of them. A config on which it fails is an invalid one.
	Where *expr.Expr
	// OnInvalid is Fail or Skip, for each config of ConfigTopics on its own, and also DeadLetter for MQTT messages.
	OnInvalid Policy
	// InvalidTo and ErrorTo are the topics of DeadLetter policies, else nil.
	InvalidTo, ErrorTo *Topic
	// Enrich completes a config after ConfigSpec.Check: the body sees `config`, and the object that it returns takes its place
	// once ConfigSpec.Check finds nothing wrong with it either.
	Enrich Body
	// Tokens is into how many units of work the configs are spread; 0 with ConfigTopics, whose partition count it then is.
	Tokens int
	// Workers is how many polls may run at once.
	Workers int
	// Poll is the script that reads, HTTP the request that does, MQTT the session that brings messages; one of them is there.
	// A stage with MQTT has no Every, no Initial, no tokens and no workers.
	Poll Body
	HTTP *HTTP
	MQTT *MQTT
	// Require are the members that the payload of an MQTT message must have.
	Require []Required
	// Filter tells which MQTT messages are wanted, in scope expr.Delivery; nil is all of them.
	Filter *expr.Expr
	// Relay is the script that says what becomes of what has been read, in place of Message.
	Relay Body
	// Records is the list of records in an answer, in scope expr.Response; nil leaves it to the format of the answer.
	Records *expr.Expr
	// Message is what a record of an answer becomes, in scope expr.Item, or an MQTT message, in scope expr.Delivery.
	Message *expr.Message
	// Cursor is what the state becomes with a page.
	Cursor       []CursorField
	OutputTopics []*Topic
	// Initial is the state of a config that has none yet, a JSON object; nil where the pipeline does not say.
	Initial []byte
	Timeout time.Duration
	OnError Policy
	// Retry is how OnError waits where it is Retry.
	Retry Backoff
	// Place is where the stage's name stands.
	Place Place

	item *Item[ExtractorSpec]
	expressions
	// readsState says that the request, or an expression of its answers, reads the state.
	readsState bool
}

// Period is how long from the start of one poll of a config to the start of its next, where the stage has no Schedule. env
// is that of the config and its state. What fails is an *expr.Failure.
func (e *Extractor) Period(env *expr.Env) (time.Duration, error) {
	if e.EveryExpr == nil {
		return e.Every, nil
	}
	v, err := e.EveryExpr.Eval(env)
	if err != nil {
		return 0, err
	}
	period, trouble := time.Duration(0), "it gives neither a text nor a whole number"
	if ms, ok := v.Int(); ok {
		if trouble = ""; ms > 0 && ms <= int64(longest/time.Millisecond) {
			period = time.Duration(ms) * time.Millisecond
		}
	} else if text, ok := v.Text(); ok {
		if period, err = ParseDuration(text); err != nil {
			trouble = "it gives a text that is no duration"
		} else {
			trouble = ""
		}
	} else if v.Nil() {
		trouble = "it gives nothing"
	}
	switch {
	case trouble == "" && period > 0:
		return period, nil
	case trouble == "":
		trouble = "what it gives is not longer than nothing, or too long"
	}
	return 0, &expr.Failure{Text: e.EveryExpr.Text(), Line: 1, Column: 1, Code: expr.CodeValue,
		Message: trouble + ", and a duration such as 30s or a number of milliseconds is wanted"}
}

// Transformer is a stage that reads topics. It has either a Transform or a Message.
type Transformer struct {
	Name          string
	ApplicationID string
	// Inputs are in the order of their declaration, which is the order in which they are taken.
	Inputs       []*stream.Input
	InputTopics  []*Topic // of Inputs, in the same order
	OutputTopics []*Topic
	// ConfigTopics hold what `configs.get` reads.
	ConfigTopics []*Topic
	// HasState says that the pipeline declares `state:`. A stage without it is stateful all the same when its body or
	// the functions name `state` or `State`.
	HasState bool
	// Stateful says that the stage has a changelog: HasState, or what its script names. CheckScripts sets it.
	Stateful bool
	// Initial is the state of a key that has none yet, a JSON object; nil without HasState.
	Initial []byte
	// Filter tells which records the stage is for; nil is all of them.
	Filter *expr.Expr
	// StateKey names the state of a record; nil is the record's key.
	StateKey  *expr.Expr
	Transform Body
	Message   *expr.Message
	// Concurrency is how many records a body that awaits may have begun at once.
	Concurrency int
	OnInvalid   Policy // Fail or Skip
	OnError     Policy
	// Retry is how OnError waits where it is Retry.
	Retry Backoff
	// Timeout counts from a resume of the body to its next yield of State or its end.
	Timeout time.Duration
	// Place is where the stage's name stands.
	Place Place

	item *Item[TransformerSpec]
	expressions
}

// expressions are the texts of a stage's expressions, and what these read.
type expressions struct {
	texts []*leafText
	reads []readPaths
}

// readPaths are the paths that what stands at a node reads.
type readPaths struct {
	node  *node
	paths [][]string
}

func (x *expressions) read(n *node, paths [][]string) { x.reads = append(x.reads, readPaths{n, paths}) }

// At is where an expression of the stage failed, in the pipeline file. It answers false for an expression of another stage.
func (x *expressions) At(f *expr.Failure) (Place, bool) {
	at := func(l *leafText) (Place, bool) {
		line, column := l.text.Position(f.Line, f.Column)
		return Place{l.text.File, line, column}, true
	}
	if l, ok := f.Ref.(*leafText); ok && slices.Contains(x.texts, l) {
		return at(l)
	}
	for _, l := range x.texts {
		if l.text.Text == f.Text {
			return at(l)
		}
	}
	return Place{}, false
}

// Placed is err, with the place in the pipeline file if it is of an expression of the stage.
func (x *expressions) Placed(err error) error {
	if err == nil {
		return nil
	}
	if failure := (*expr.Failure)(nil); errors.As(err, &failure) {
		if at, ok := x.At(failure); ok {
			return fmt.Errorf("%s:%d:%d: %w", at.File, at.Line, at.Column, err)
		}
	}
	return err
}
