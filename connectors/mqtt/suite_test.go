package mqtt_test

import (
	"testing"

	"github.com/eclipse/paho.golang/packets"

	"github.com/flechtwerk/flechtwerk/connectors/connectortest"
	"github.com/flechtwerk/flechtwerk/connectors/connectortest/mqtttest"
	"github.com/flechtwerk/flechtwerk/connectors/mqtt"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

func TestSessionSuite(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) string{
		"embedded":  func(t *testing.T) string { return mqtttest.Embedded(t) },
		"mosquitto": func(t *testing.T) string { return mqtttest.NewMosquitto(t).Addr },
	} {
		t.Run(name, func(t *testing.T) {
			connectortest.Sessions(t, func(t *testing.T) connectortest.SessionKind {
				b := newBench(t, start(t))
				sessions := 0
				return connectortest.SessionKind{
					New: func(t *testing.T) stream.Session {
						sessions++
						s, err := mqtt.New(b.config)
						if err != nil {
							t.Fatal(err)
						}
						return s
					},
					Send: func(t *testing.T, values ...string) {
						b.subscribed(sessions) // the embedded broker may lose what comes just when a session comes back
						for _, v := range values {
							b.publish.Publish(t, "tanks/a/level", v)
						}
					},
					Acknowledged: func(t *testing.T, n int) []string {
						b.acks(n)
						type place struct {
							conn int
							id   uint16
						}
						sent := map[place]string{}
						var values []string
						for _, p := range b.tap.Packets() {
							switch c := p.Content.(type) {
							case *packets.Publish:
								sent[place{p.Conn, c.PacketID}] = string(c.Payload)
							case *packets.Puback:
								values = append(values, sent[place{p.Conn, c.PacketID}])
							}
						}
						return values
					},
				}
			})
		})
	}
}
