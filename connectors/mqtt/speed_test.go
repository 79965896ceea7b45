package mqtt_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"

	"github.com/flechtwerk/flechtwerk/connectors/mqtt"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// flood is a broker that does nothing but send messages to each who has subscribed, as many at once as it may.
type flood struct {
	listen  net.Listener
	message []byte // a PUBLISH but for its packet identifier
	id      int    // where that is
	acked   atomic.Int64
	total   int64
	all     chan struct{}
}

const floodTopic = "plants/north/tanks/4711/level"

func newFlood(b *testing.B, total int64) *flood {
	listen, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	payload := `{"device":"4711","time":1767225600000,"level":73.25,"temperature":21.5,"pressure":1013.25,"status":"ok","site":"north","unit":"percent"}`
	f := &flood{listen: listen, total: total, all: make(chan struct{})}
	rest := 2 + len(floodTopic) + 2 + 1 + len(payload)
	f.message = append(f.message, packets.PUBLISH<<4|2, byte(rest&127|128), byte(rest>>7))
	f.message = binary.BigEndian.AppendUint16(f.message, uint16(len(floodTopic)))
	f.message = append(f.message, floodTopic...)
	f.id = len(f.message)
	f.message = append(f.message, 0, 0, 0)
	f.message = append(f.message, payload...)
	b.Cleanup(func() { listen.Close() })
	go func() {
		for {
			conn, err := listen.Accept()
			if err != nil {
				return
			}
			go f.serve(conn)
		}
	}()
	return f
}

func (f *flood) serve(conn net.Conn) {
	defer conn.Close()
	read := bufio.NewReaderSize(conn, 64<<10)
	connect, err := packets.ReadPacket(read)
	if err != nil {
		return
	}
	maximum := int64(*connect.Content.(*packets.Connect).Properties.ReceiveMaximum)
	_, _ = (&packets.Connack{Properties: &packets.Properties{}}).WriteTo(conn)
	subscribe, err := packets.ReadPacket(read)
	if err != nil {
		return
	}
	_, _ = (&packets.Suback{PacketID: subscribe.PacketID(), Reasons: []byte{1}, Properties: &packets.Properties{}}).WriteTo(conn)
	room := make(chan int64, 1<<16)
	go f.send(conn, maximum, room)
	defer close(room)
	var head [2]byte
	var body [128]byte
	for {
		if _, err := io.ReadFull(read, head[:]); err != nil {
			return
		}
		if _, err := io.ReadFull(read, body[:head[1]]); err != nil {
			return
		}
		if head[0] == packets.PUBACK<<4 {
			room <- 1
			if f.acked.Add(1) == f.total {
				close(f.all)
			}
		}
	}
}

func (f *flood) send(conn net.Conn, free int64, room <-chan int64) {
	write := bufio.NewWriterSize(conn, 64<<10)
	for i := range f.total {
		for free == 0 {
			select {
			case n := <-room:
				free += n
			default:
				if write.Flush() != nil {
					return
				}
				free += <-room
			}
		}
		free--
		binary.BigEndian.PutUint16(f.message[f.id:], uint16(i%65535+1))
		_, _ = write.Write(f.message)
	}
	_ = write.Flush()
	for range room {
	}
}

func (f *flood) report(b *testing.B) {
	<-f.all
	b.ReportMetric(float64(f.total)/b.Elapsed().Seconds(), "messages/s")
}

// BenchmarkSession is one session with a Kafka that commits at once; BenchmarkBarePaho is paho's own client that acknowledges
// each message as it comes. Both are sent the same, by the same broker, with the same receive maximum.
func BenchmarkSession(b *testing.B) {
	f := newFlood(b, int64(b.N))
	topic := &stream.Topic{Name: "levels"}
	s, err := mqtt.New(mqtt.Config{
		Broker: "mqtt://" + f.listen.Addr().String(), ClientID: "bench",
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
	f.report(b)
	b.StopTimer()
	cancel()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
}

func BenchmarkBarePaho(b *testing.B) {
	f := newFlood(b, int64(b.N))
	conn, err := net.Dial("tcp", f.listen.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	client := paho.NewClient(paho.ClientConfig{
		Conn:              packets.NewThreadSafeConn(conn),
		OnPublishReceived: []func(paho.PublishReceived) (bool, error){func(paho.PublishReceived) (bool, error) { return true, nil }},
	})
	maximum := uint16(1000)
	b.ReportAllocs()
	b.ResetTimer()
	if _, err := client.Connect(b.Context(), &paho.Connect{ClientID: "bench", KeepAlive: 30, Properties: &paho.ConnectProperties{ReceiveMaximum: &maximum}}); err != nil {
		b.Fatal(err)
	}
	if _, err := client.Subscribe(b.Context(), &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: "plants/#", QoS: 1}}}); err != nil {
		b.Fatal(err)
	}
	f.report(b)
	b.StopTimer()
	_ = client.Disconnect(&paho.Disconnect{})
}
