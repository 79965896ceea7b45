package stream

import (
	"context"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
)

// Arrival is one thing that a source has read and that becomes messages: a message of a broker, an item of a response. Its
// slices are shared and must not be changed; they stay valid as long as anyone holds them.
type Arrival struct {
	// Topic is what the source calls the place that it came from: the topic of an MQTT message. Items of a response have
	// none.
	Topic     string
	Timestamp int64  // milliseconds since 1970, of the arrival where the source tells no other
	Key       []byte // nil is null
	// Value is in Format, and checked as a Record's is. nil is null.
	Value   []byte
	Format  Format
	Members []rawjson.Member // of a Value that is a JSON object
	Kind    rawjson.Kind     // of a JSON Value
	Headers []Header
	// Delivery is how an MQTT message came; nil for what was asked for.
	Delivery *Delivery
}

// Delivery is what an MQTT message says of itself beside topic and payload.
type Delivery struct {
	Levels      []string // the topic, split at each slash
	QoS         uint8    // 0, 1 or 2, as it was delivered
	Retained    bool
	Properties  []Header // user properties, in order, with duplicates
	ContentType string   // empty where it says none
}

// Response is the answer that the arrivals of a Relaying stand in.
type Response struct {
	Status  int
	URL     string // after redirects, without secrets
	Headers []Header
	Elapsed int64 // milliseconds
	// Body is the whole body as it was received and decompressed; nil where it was read item by item.
	Body []byte
}

// Relaying is one unit of a Relay's work: what goes into a page.
type Relaying struct {
	Config   Config
	Configs  Configs
	Arrivals []Arrival
	// Response and Cursor are those of an HTTP request; Response is nil for a push source, whose relay has no state.
	Response *Response
	Cursor   []byte // the committed state as JSON; nil when there is none
	// Fail is asked when the body fails for an arrival. It answers nil if the arrival is to be passed over: then nothing that
	// it yielded is in the page. Any other answer ends Run, which returns it.
	Fail func(i int, err error) error

	// Arena holds the bytes of the page.
	Arena *Arena
}

// Relay makes messages of what a source has read. It is used by one goroutine at a time.
type Relay interface {
	// Run appends to page.Messages what each arrival becomes, in the order of the arrivals and, within one, of the yields;
	// From counts the arrivals. A State that a body yields becomes the page's cursor, the last one if there are several. ctx
	// ends it early with ctx's cause.
	Run(ctx context.Context, in *Relaying, page *Page) error
	Close()
}
