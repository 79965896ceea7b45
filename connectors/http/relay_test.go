package http_test

import (
	"context"
	"fmt"

	"github.com/flechtwerk/flechtwerk/connectors/http"
	"github.com/flechtwerk/flechtwerk/engine/rawjson"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// idRelay passes arrivals on and keeps the id of the last one in the state, as a script may do.
type idRelay struct {
	topic *stream.Topic
	seen  func(in *stream.Relaying)
}

func newIDRelay(config *http.PollerConfig) func() (stream.Relay, error) {
	return func() (stream.Relay, error) { return &idRelay{topic: config.Outputs[0]}, nil }
}

func (r *idRelay) Run(_ context.Context, in *stream.Relaying, page *stream.Page) error {
	if r.seen != nil {
		r.seen(in)
	}
	for i, a := range in.Arrivals {
		page.Messages = append(page.Messages, stream.Message{Topic: r.topic, Partition: stream.AnyPartition, Value: in.Arena.Copy(a.Value), From: i})
		page.Cursor, page.Moved = fmt.Appendf(nil, `{"since":%s}`, rawjson.Find(a.Value, a.Members, "id")), true
	}
	return nil
}

func (r *idRelay) Close() {}
