package devbroker

import (
	"fmt"

	"github.com/mochi-mqtt/server/v2/packets"
)

// Message is what somebody inside the process publishes.
type Message struct {
	Topic       string
	Payload     []byte
	QoS         byte
	Retained    bool
	ContentType string
	Properties  []Property // user properties
}

// Property is a user property.
type Property struct{ Name, Value string }

// Publish hands a message to who has subscribed to its topic, as if a client had sent it. It may be called by one goroutine at
// a time.
func (b *Broker) Publish(m Message) error {
	if b.inside == nil {
		b.inside = b.server.NewClient(nil, "inside", "inside", true)
		b.inside.Properties.ProtocolVersion = 5
	}
	packet := packets.Packet{
		FixedHeader: packets.FixedHeader{Type: packets.Publish, Qos: m.QoS, Retain: m.Retained},
		TopicName:   m.Topic,
		Payload:     m.Payload,
		PacketID:    uint16(m.QoS), // mochi wants one, and does not acknowledge to itself
		Properties:  packets.Properties{ContentType: m.ContentType},
	}
	for _, p := range m.Properties {
		packet.Properties.User = append(packet.Properties.User, packets.UserProperty{Key: p.Name, Val: p.Value})
	}
	if err := b.server.InjectPacket(b.inside, packet); err != nil {
		return fmt.Errorf("publish to %s: %w", m.Topic, err)
	}
	return nil
}
