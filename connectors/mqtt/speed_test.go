package mqtt_test

import (
	"context"
	"testing"
	"time"

	"github.com/flechtwerk/flechtwerk/connectors/connectortest/mqtttest"
	"github.com/flechtwerk/flechtwerk/connectors/mqtt"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// BenchmarkSession is one session with a Kafka that commits at once; BenchmarkBarePaho is paho's own client that acknowledges
// each message as it comes. Both are sent the same, by the same broker, with the same receive maximum.
func BenchmarkSession(b *testing.B) {
	f := newFlood(b)
	topic := &stream.Topic{Name: "levels"}
	s, err := mqtt.New(mqtt.Config{
		Broker: "mqtt://" + f.Addr(), ClientID: "bench",
		Filters: func(stream.Config) ([]string, error) { return []string{"plants/#"}, nil },
		Message: func(_ stream.Config, a *stream.Arrival, _ *stream.Arena) (stream.Message, error) {
			return stream.Message{Topic: topic, Key: a.Key, Value: a.Value, Timestamp: a.Timestamp}, nil
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	b.ReportAllocs()
	b.ResetTimer()
	go func() {
		ended <- s.Run(ctx, &stream.Push{
			Configs: func() ([]stream.Config, <-chan struct{}) { return []stream.Config{{Value: []byte("{}")}}, nil },
			Lookup:  func() stream.Configs { return nil },
			Commit:  func(context.Context, *stream.Page) error { return nil },
			Gather:  100 * time.Millisecond,
			Grace:   b.Context(),
		})
	}()
	report(b, f)
	b.StopTimer()
	cancel()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
}

func BenchmarkBarePaho(b *testing.B) {
	f := newFlood(b)
	b.ReportAllocs()
	b.ResetTimer()
	end, err := mqtttest.Bare(b.Context(), f.Addr())
	if err != nil {
		b.Fatal(err)
	}
	report(b, f)
	b.StopTimer()
	end()
}

func newFlood(b *testing.B) *mqtttest.Flood {
	f, err := mqtttest.NewFlood(int64(b.N))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(f.Close)
	return f
}

func report(b *testing.B, f *mqtttest.Flood) {
	<-f.All()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
}
