package mqtttest

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync/atomic"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"
)

// Flood is a broker that does nothing but send messages to each who has subscribed, as many at once as it may.
type Flood struct {
	listen  net.Listener
	message []byte // a PUBLISH but for its packet identifier
	id      int    // where that is
	acked   atomic.Int64
	total   int64
	begun   chan struct{}
	all     chan struct{}
}

const (
	floodTopic   = "plants/north/tanks/4711/level"
	floodPayload = `{"device":"4711","time":1767225600000,"level":73.25,"temperature":21.5,"pressure":1013.25,"status":"ok","site":"north","unit":"percent"}`
)

// NewFlood starts a broker that sends total messages, to the topic plants/north/tanks/4711/level. The caller closes it.
func NewFlood(total int64) (*Flood, error) {
	listen, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start a flood: %w", err)
	}
	f := &Flood{listen: listen, total: total, begun: make(chan struct{}), all: make(chan struct{})}
	rest := 2 + len(floodTopic) + 2 + 1 + len(floodPayload)
	f.message = append(f.message, packets.PUBLISH<<4|2, byte(rest&127|128), byte(rest>>7))
	f.message = binary.BigEndian.AppendUint16(f.message, uint16(len(floodTopic)))
	f.message = append(f.message, floodTopic...)
	f.id = len(f.message)
	f.message = append(f.message, 0, 0, 0)
	f.message = append(f.message, floodPayload...)
	go func() {
		conn, err := listen.Accept()
		if err == nil {
			f.serve(conn)
		}
	}()
	return f, nil
}

// Addr is where it listens.
func (f *Flood) Addr() string { return f.listen.Addr().String() }

// Begun is closed when the first message is sent, All when the last one is acknowledged.
func (f *Flood) Begun() <-chan struct{} { return f.begun }

// All is closed when the last message is acknowledged.
func (f *Flood) All() <-chan struct{} { return f.all }

// Close ends it, but not its connection.
func (f *Flood) Close() { f.listen.Close() }

func (f *Flood) serve(conn net.Conn) {
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

func (f *Flood) send(conn net.Conn, free int64, room <-chan int64) {
	close(f.begun)
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

// Bare is paho's own client that acknowledges each message as it comes, which is what there is without Kafka: it subscribes to
// everything at a broker. The caller ends it.
func Bare(ctx context.Context, broker string) (end func(), err error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", broker)
	if err != nil {
		return nil, fmt.Errorf("bare subscriber: %w", err)
	}
	client := paho.NewClient(paho.ClientConfig{
		Conn:              packets.NewThreadSafeConn(conn),
		OnPublishReceived: []func(paho.PublishReceived) (bool, error){func(paho.PublishReceived) (bool, error) { return true, nil }},
	})
	maximum := uint16(1000)
	if _, err := client.Connect(ctx, &paho.Connect{ClientID: "bare", KeepAlive: 30, Properties: &paho.ConnectProperties{ReceiveMaximum: &maximum}}); err != nil {
		return nil, fmt.Errorf("bare subscriber: %w", err)
	}
	if _, err := client.Subscribe(ctx, &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: "#", QoS: 1}}}); err != nil {
		return nil, fmt.Errorf("bare subscriber: %w", err)
	}
	return func() { _ = client.Disconnect(&paho.Disconnect{}) }, nil
}
