// Package devbroker is the MQTT broker inside the process that `run --dev` uses, and tests. Nothing in it outlives the
// process.
//
// It is mochi-mqtt with what that lacks for messages which must not be lost:
//
//  1. mochi has room for 8,192 messages that a client has not acknowledged, and drops the others. Here it is 65,535, as many
//     as there are packet identifiers.
//  2. When a client's receive maximum is used up, mochi puts messages aside; it forgets each when it sends it, so that a
//     connection that breaks then loses it, and counts it against the maximum for ever. Here there is no maximum: a client is
//     sent what there is, and must be able to leave it on the wire.
//  3. mochi sends again in no order what was published in the same second. Here each message has its own.
//
// What remains: mochi loses what is published in the very moment in which a client comes back to its session, and it
// acknowledges a message shortly before it hands it on.
package devbroker

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"

	mochi "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/listeners"
	"github.com/mochi-mqtt/server/v2/packets"
)

// Config says how the broker is started.
type Config struct {
	// Address is where it listens, host:port; port 0 is any free one.
	Address string
	// User and Password are those that clients need; without a User everybody may come in.
	User, Password string
	// TLS makes connections encrypted; nil leaves them open.
	TLS *tls.Config
	// Log receives the broker's warnings and errors; nil drops them.
	Log *slog.Logger
}

// Broker is a running broker.
type Broker struct {
	server *mochi.Server
	addr   string
	close  sync.Once
	inside *mochi.Client // who publishes without a connection; made when first needed
}

// Start starts a broker that answers when Start returns. The caller closes it.
func Start(config Config) (*Broker, error) {
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	capabilities := mochi.NewDefaultServerCapabilities()
	capabilities.MaximumInflight = math.MaxUint16
	capabilities.MaximumClientWritesPending = math.MaxUint16
	capabilities.MaximumMessageExpiryInterval = 0 // messages do not expire by themselves: see hook.OnPublish
	server := mochi.New(&mochi.Options{Logger: config.Log, Capabilities: capabilities})
	if err := server.AddHook(&hook{config: config}, nil); err != nil {
		return nil, fmt.Errorf("start the embedded MQTT broker: %w", err)
	}
	tcp := listeners.NewTCP(listeners.Config{ID: "tcp", Address: config.Address, TLSConfig: config.TLS})
	if err := server.AddListener(tcp); err != nil {
		return nil, fmt.Errorf("start the embedded MQTT broker at %s: %w", config.Address, err)
	}
	if err := server.Serve(); err != nil {
		return nil, fmt.Errorf("start the embedded MQTT broker: %w", err)
	}
	return &Broker{server: server, addr: tcp.Address()}, nil
}

// Addr is where the broker listens, host:port.
func (b *Broker) Addr() string { return b.addr }

// Close stops the broker; its sessions and messages are gone.
func (b *Broker) Close() { b.close.Do(func() { _ = b.server.Close() }) }

// hook is what differs from mochi.
type hook struct {
	mochi.HookBase
	config    Config
	published atomic.Int64
}

func (h *hook) ID() string { return "devbroker" }

func (h *hook) Provides(b byte) bool {
	switch b {
	case mochi.OnConnect, mochi.OnConnectAuthenticate, mochi.OnACLCheck, mochi.OnSessionEstablished, mochi.OnPublish:
		return true
	}
	return false
}

func (h *hook) OnConnectAuthenticate(_ *mochi.Client, packet packets.Packet) bool {
	return h.config.User == "" || string(packet.Connect.Username) == h.config.User && string(packet.Connect.Password) == h.config.Password
}

func (h *hook) OnACLCheck(*mochi.Client, string, bool) bool { return true }

func (h *hook) OnConnect(client *mochi.Client, _ packets.Packet) error {
	client.State.Inflight.ResetSendQuota(0)
	return nil
}

// OnSessionEstablished comes after mochi has set the quota of a session that was there already.
func (h *hook) OnSessionEstablished(client *mochi.Client, _ packets.Packet) {
	client.State.Inflight.ResetSendQuota(0)
}

// OnPublish gives each message a place in the order in which mochi sends again: it looks at the lower 16 bits of the second.
func (h *hook) OnPublish(_ *mochi.Client, packet packets.Packet) (packets.Packet, error) {
	packet.Created = packet.Created&^math.MaxUint16 | h.published.Add(1)&math.MaxUint16
	return packet, nil
}
