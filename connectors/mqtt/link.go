package mqtt

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"
)

const (
	dialTimeout    = 30 * time.Second
	connectTimeout = 30 * time.Second
	requestTimeout = 30 * time.Second
	closeTimeout   = time.Second
	// filtersPerPacket keeps SUBSCRIBE packets at a size that any broker takes.
	filtersPerPacket = 100
)

// link is one connection to the broker, from CONNACK to its end.
type link struct {
	session *Session
	wire    *wire
	ledger  *ledger
	client  *paho.Client
	pings   *pinger
	resumed bool
	gone    chan struct{} // closed when the connection is gone and paho has let go of it
	once    sync.Once
	reason  error // why; valid once gone is closed

	mu   sync.Mutex
	lost bool // nothing may be acknowledged on it any more
}

// open makes one attempt.
func (s *Session) open(ctx context.Context) (*link, error) {
	dialing, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := s.dial(dialing)
	if err != nil {
		return nil, err
	}
	l := &link{session: s, wire: newWire(conn, s.inbox), gone: make(chan struct{})}
	l.ledger = &ledger{link: l, receipts: s.receipts, requests: map[uint16]chan<- packets.ControlPacket{}}
	l.pings = &pinger{wire: l.wire}
	l.client = paho.NewClient(paho.ClientConfig{
		ClientID:           s.config.ClientID,
		Conn:               l.wire,
		Session:            l.ledger,
		PingHandler:        l.pings,
		PacketTimeout:      connectTimeout,
		OnPublishReceived:  []func(paho.PublishReceived) (bool, error){l.receivedOnce},
		OnServerDisconnect: func(d *paho.Disconnect) { l.end(endedConnection(d, s.config.ClientID)) },
		OnClientError:      l.end,
	})
	expiry, maximum, packet := uint32(s.config.SessionExpiry/time.Second), uint16(s.config.ReceiveMaximum), uint32(min(s.config.InboxBytes, 256<<20))
	connect := &paho.Connect{
		ClientID:   s.config.ClientID,
		KeepAlive:  uint16(s.config.KeepAlive / time.Second),
		CleanStart: false,
		Properties: &paho.ConnectProperties{SessionExpiryInterval: &expiry, ReceiveMaximum: &maximum, MaximumPacketSize: &packet, RequestProblemInfo: true},
	}
	if s.config.User != "" {
		connect.UsernameFlag, connect.Username = true, s.config.User
	}
	if s.config.Password != "" {
		connect.PasswordFlag, connect.Password = true, []byte(s.config.Password)
	}
	answer, err := l.client.Connect(ctx, connect)
	if err != nil {
		if answer != nil && answer.ReasonCode >= 0x80 {
			return nil, refusedConnection(answer)
		}
		return nil, fmt.Errorf("connect: %w", err)
	}
	l.resumed = answer.SessionPresent
	l.wire.gated.Store(true)
	return l, nil
}

func (s *Session) dial(ctx context.Context) (net.Conn, error) {
	if s.config.Dial != nil {
		return s.config.Dial(ctx)
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", s.address)
	if err != nil || !s.encrypted {
		return conn, err
	}
	config := s.config.TLS.Clone()
	if config == nil {
		config = &tls.Config{}
	}
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(s.address)
	}
	encrypted := tls.Client(conn, config)
	if err := encrypted.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("agree on encryption: %w", err)
	}
	return encrypted, nil
}

// received puts a message into the inbox. It never waits.
func (l *link) received(p *packets.Publish) {
	l.mu.Lock()
	lost := l.lost
	l.mu.Unlock()
	if lost && p.QoS > 0 {
		return // it comes again
	}
	call(l.session.config.Events.Received, 1)
	l.session.inbox.put(delivery{packet: p, link: l, at: l.session.config.Now().UnixMilli()})
}

// receivedOnce is paho's callback, for messages of QoS 0 only: the others do not pass through paho's queue.
func (l *link) receivedOnce(r paho.PublishReceived) (bool, error) {
	l.received(r.Packet.Packet())
	return true, nil
}

// end notes why the connection is gone: silence, where that was it, else the first reason.
func (l *link) end(reason error) {
	l.once.Do(func() {
		if silence := l.pings.why.Load(); silence != nil {
			reason = *silence
		}
		l.reason = reason
		close(l.gone)
	})
}

// lose makes sure that nothing is acknowledged from now on.
func (l *link) lose() {
	l.mu.Lock()
	l.lost = true
	l.mu.Unlock()
}

// acknowledge tells the broker that messages of this connection are safe, in order, and how many it told of: none of those
// that came on a connection that is gone.
func (l *link) acknowledge(messages []delivery) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost {
		return 0
	}
	l.wire.cork()
	defer l.wire.uncork()
	for i := range messages {
		// An error is one of the connection, whose end follows; then the broker sends again what it was not told of.
		if l.ledger.acknowledge(messages[i].packet) != nil {
			return i
		}
	}
	return len(messages)
}

// request runs one exchange of packets. Its time does not run while nothing is read because the inbox is full.
func (l *link) request(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		timer := time.NewTimer(requestTimeout)
		defer timer.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
			if !l.wire.paused.Load() {
				cancel(fmt.Errorf("no answer within %s", requestTimeout))
				return
			}
			timer.Reset(requestTimeout)
		}
	}()
	err := do(ctx)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

// subscribe subscribes to filters; the reasons of those that the broker refuses are answered by filter.
func (l *link) subscribe(ctx context.Context, filters []string) (refused map[string]error, err error) {
	s := l.session
	for chunk := range slices.Chunk(filters, filtersPerPacket) {
		packet := &paho.Subscribe{}
		for _, f := range chunk {
			// A subscription that the session has already sends its retained messages no second time.
			packet.Subscriptions = append(packet.Subscriptions, paho.SubscribeOptions{Topic: s.shared(f), QoS: s.config.QoS.level(), RetainHandling: 1, RetainAsPublished: false})
		}
		var answer *paho.Suback
		err := l.request(ctx, func(ctx context.Context) (err error) {
			answer, err = l.client.Subscribe(ctx, packet)
			return err
		})
		if answer == nil {
			if errors.Is(err, paho.ErrInvalidArguments) {
				return nil, &Error{Code: CodeRefused, Topic: chunk[0], Err: err}
			}
			return nil, fmt.Errorf("subscribe: %w", err)
		}
		for i, reason := range answer.Reasons {
			if i >= len(chunk) {
				break
			}
			if err := granted(reason, s.config.QoS); err != nil {
				if refused == nil {
					refused = map[string]error{}
				}
				refused[chunk[i]] = err
			}
		}
	}
	return refused, nil
}

func (l *link) unsubscribe(ctx context.Context, filters []string) error {
	for chunk := range slices.Chunk(filters, filtersPerPacket) {
		packet := &paho.Unsubscribe{}
		for _, f := range chunk {
			packet.Topics = append(packet.Topics, l.session.shared(f))
		}
		var answer *paho.Unsuback
		err := l.request(ctx, func(ctx context.Context) (err error) {
			answer, err = l.client.Unsubscribe(ctx, packet)
			return err
		})
		if answer == nil {
			return fmt.Errorf("unsubscribe: %w", err)
		}
	}
	return nil
}

// close says good-bye and waits until the connection is gone. The broker keeps the session, unless the good-bye is for good.
//
// The broker is the one that closes: were it done here, with messages of the broker not yet read, the kernel would reset the
// connection, and the broker could lose the good-bye and the acknowledgements before it.
func (l *link) close(grace context.Context, forGood bool) {
	l.lose()
	packet := &paho.Disconnect{}
	if forGood {
		var none uint32
		packet.Properties = &paho.DisconnectProperties{SessionExpiryInterval: &none}
	}
	l.wire.sayLast(packet.Packet())
	patience := time.NewTimer(closeTimeout)
	defer patience.Stop()
	select {
	case <-l.gone:
	case <-patience.C:
	case <-grace.Done():
	}
	_ = l.client.Disconnect(packet)
	l.end(nil)
}
