package script

import (
	"slices"

	"github.com/dop251/goja"

	"github.com/flechtwerk/flechtwerk/engine/decode"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// Kind is what a script is for.
type Kind uint8

// The kinds of scripts.
const (
	Transform Kind = iota // once per record of a transformer: msg, state
	Poll                  // once per config and cycle of an extractor: config, state
	Relay                 // once per arrival of a source: msg, config, and of what was asked for response and state
	Enrich                // once per config as it was written: config; it returns what takes the config's place
)

func (k Kind) String() string {
	switch k {
	case Poll:
		return "poll"
	case Relay:
		return "relay"
	case Enrich:
		return "enrich"
	default:
		return "transform"
	}
}

// Source is a script as the user wrote it.
type Source struct {
	Kind Kind
	Body stream.Text
	// Push says that a Relay is of a source that tells without being asked: it has no response, and no state, since what
	// arrives may be spread over several processes.
	Push bool
	// Module says that Body is the text of a whole file that exports a generator, of an Enrich a function, that is called as its Kind.
	Module bool
	// Functions are texts whose declarations the body and each other know.
	Functions []stream.Text
	// Vars is the pipeline's vars, a JSON object, and Outputs the names of the topics that Messages may go to. Where they are
	// given, a member or a topic that is not among them is a problem. Nil is not known.
	Vars    []byte
	Outputs []string
	// Protobuf has the message types that the script may decode; nil is none.
	Protobuf *decode.Schema
	// Read reads a file that one of the texts imports, by its path: that of the text's file joined with what import says.
	Read func(path string) (stream.Text, error)
}

// arguments are the names that the body knows its arguments by.
func (s *Source) arguments() []string {
	switch {
	case s.Kind == Transform:
		return []string{"msg", "state"}
	case s.Kind == Poll:
		return []string{"config", "state"}
	case s.Kind == Enrich:
		return []string{"config"}
	case s.Push:
		return []string{"msg", "config"}
	default:
		return []string{"msg", "config", "response", "state"}
	}
}

// Program is a compiled script. It is safe for concurrent use.
type Program struct {
	kind     Kind
	schema   *decode.Schema
	further  []string // the arguments of the body behind the first; "" stands for one that it does not name
	code     *goja.Program
	src      *source
	shared   [][]string      // what functions and each file that is imported declare
	builtins []string        // passed in, in this order, so that naming one costs no look-up by name
	objects  []*shape        // object literals that spread something
	messages []*messageShape // yield Message({…})
	runs     [][]action
	// plain keeps values in ordinary objects: the script names something that lazy ones cannot do.
	plain bool

	// flat says that the body takes msg.value and, if it reads it, msg.key in place of msg.
	flat, readsValue, readsKey bool

	// lendsValue and lendsState say that the body cannot get hold of the object msg.value or state, only of what is in it.
	lendsValue, lendsState bool

	// guard tells records that the body would do nothing with; nil if it cannot be told.
	guard *guard

	// async says that the body, or something that it can reach, may wait. Its function is asynchronous, and calls overlap.
	async bool

	// loops says that the body's function, which is asynchronous, runs one record after the other.
	loops bool

	members map[int]member // by the offset of the object in the joined text

	yields, namesState, yieldsMessage, returns bool
	namesProtobuf                              bool
}

// YieldsMessage tells whether the script names Message, and so needs output topics.
func (p *Program) YieldsMessage() bool { return p.yieldsMessage }

// NamesResponse tells whether a Relay names `response`.
func (p *Program) NamesResponse() bool { return slices.Contains(p.further, "response") }

// NamesState tells whether the body or its functions name state or State. A script that does not is stateless.
func (p *Program) NamesState() bool { return p.namesState }
