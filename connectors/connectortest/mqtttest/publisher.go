package mqtttest

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"
)

// Publisher publishes messages with QoS 1 unless told otherwise.
type Publisher struct{ client *paho.Client }

// NewPublisher connects one to a broker. It ends with the test.
func NewPublisher(t testing.TB, broker string) *Publisher {
	t.Helper()
	conn, err := net.Dial("tcp", broker)
	if err != nil {
		t.Fatal(err)
	}
	client := paho.NewClient(paho.ClientConfig{Conn: packets.NewThreadSafeConn(conn), PacketTimeout: Patience})
	if _, err := client.Connect(t.Context(), &paho.Connect{ClientID: "publisher-" + time.Now().Format("150405.000000000"), CleanStart: true, KeepAlive: 60}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Disconnect(&paho.Disconnect{}) })
	return &Publisher{client}
}

// Publish publishes one message and waits until the broker has it.
func (p *Publisher) Publish(t testing.TB, topic, payload string) {
	t.Helper()
	p.Send(t, &paho.Publish{Topic: topic, Payload: []byte(payload), QoS: 1})
}

// Send is Publish with everything that a message may have.
func (p *Publisher) Send(t testing.TB, message *paho.Publish) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	if _, err := p.client.Publish(ctx, message); err != nil {
		t.Fatal(err)
	}
}
