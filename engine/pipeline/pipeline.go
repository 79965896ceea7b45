package pipeline

import (
	"time"

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
}

// Topic is a topic that a pipeline declares or names.
type Topic struct {
	stream.Topic
	// Declared topics are created by `topics apply` and verified by `run`.
	Declared bool
	// Partitions is 0 where the pipeline does not say.
	Partitions int
	// Config are the broker's settings of the topic that the pipeline asks for.
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
	Fail Policy = iota // the process ends with exit status 1 and no offset moves
	Skip               // the record is passed over
)

func (p Policy) String() string {
	if p == Skip {
		return "skip"
	}
	return "fail"
}

// Body is a script. A body without text is absent.
type Body struct {
	stream.Text
	// Module says that the text is a file of its own that exports a generator function named like the body's key.
	Module bool
}

// Present tells whether the pipeline has this body.
func (b *Body) Present() bool { return b.File != "" }

// Timeouts of bodies where a stage has no `timeout:`.
const (
	TransformTimeout = 30 * time.Second
	PollTimeout      = 5 * time.Minute
)

// Extractor is a stage that reads something outside Kafka.
type Extractor struct {
	Name          string
	ApplicationID string
	// Every is from the start of one poll of a config to the start of its next.
	Every time.Duration
	// Configs are in the order of the file; there is at least one.
	Configs []stream.Config
	// Tokens is into how many units of work the configs are spread; at least 1.
	Tokens       int
	Poll         Body
	OutputTopics []*Topic
	// Initial is the state of a config that has none yet, a JSON object; nil where the pipeline does not say.
	Initial []byte
	Timeout time.Duration
	OnError Policy
	// Place is where the stage's name stands.
	Place Place

	item *Item[ExtractorSpec]
}

// Transformer is a stage that reads topics. It has either a Transform or a Message.
type Transformer struct {
	Name          string
	ApplicationID string
	// Inputs are in the order of their declaration, which is the order in which they are taken.
	Inputs       []*stream.Input
	InputTopics  []*Topic // of Inputs, in the same order
	OutputTopics []*Topic
	// HasState says that the pipeline declares `state:`. A stage without it is stateful all the same when its body or
	// the functions name `state` or `State`.
	HasState bool
	// Initial is the state of a key that has none yet, a JSON object; nil without HasState.
	Initial []byte
	// Filter tells which records the stage is for; nil is all of them.
	Filter *expr.Expr
	// StateKey names the state of a record; nil is the record's key.
	StateKey  *expr.Expr
	Transform Body
	Message   *expr.Message
	OnInvalid Policy
	OnError   Policy
	// Timeout counts from a resume of the body to its next yield of State or its end.
	Timeout time.Duration
	// Place is where the stage's name stands.
	Place Place

	item  *Item[TransformerSpec]
	texts []*leafText // of all its expressions
}

// At is where an expression of the stage failed, in the pipeline file. It answers false for an expression of another stage.
func (t *Transformer) At(f *expr.Failure) (Place, bool) {
	for _, l := range t.texts {
		if l.text.Text == f.Text {
			line, column := l.text.Position(f.Line, f.Column)
			return Place{l.text.File, line, column}, true
		}
	}
	return Place{}, false
}
