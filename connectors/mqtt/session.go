// Package mqtt is an extractor's session with an MQTT 5 broker. A message is acknowledged when the Kafka transaction that
// holds what became of it has been committed, and not before.
//
// Two goroutines share the work, beside those of paho:
//
//	keeper   connects, subscribes, follows the configs, connects again
//	pump     takes what is in the inbox, makes a page of it, commits it, acknowledges it
//
// One message's way: paho's reader → inbox.put → pump: a page of what has arrived, bounded → decode, require, filter → relay
// → Push.Commit → acknowledge.
//
// What holds throughout:
//
//  1. A message of QoS 1 or 2 is acknowledged only after the Commit of the page that it is in has returned without an
//     error. A message that is filtered out, dropped or passed over is part of the page too, and waits for it.
//  2. Acknowledgements go out in the order of arrival, and only on the connection that the message came on. Those of a
//     connection that is gone are dropped: the broker sends the messages again, and a packet identifier may mean another
//     one by then.
//  3. The network callback never waits. When the inbox is full, nothing more is read from the network, and the broker keeps
//     what it has. Pings go on all the while.
//  4. Nothing is unsubscribed at the end, and the broker keeps the session for a day, so what arrives meanwhile waits for this
//     client identifier to return; except for who leaves for good.
//  5. The routes (which filter is whose) change before subscriptions do: a message is judged by the configs as they are when
//     its page is made.
package mqtt

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// Config says what a session subscribes to and what becomes of the messages.
type Config struct {
	// Broker is mqtt://host:1883 or mqtts://host:8883; the port may be left out. A user and a password in it count where
	// User and Password are empty.
	Broker         string
	User, Password string
	TLS            *tls.Config // nil means the system's settings; only for mqtts
	// ClientID is the name of the session at the broker. No two processes may have the same at the same time, and a process
	// that is to find what waited for it must have the one that it had before.
	ClientID string
	// KeepAlive is the longest silence that the broker should accept, in whole seconds; 30 s if 0.
	KeepAlive time.Duration
	// SessionExpiry is how long the broker keeps the session of an instance that is away, in whole seconds; 24 h if 0.
	SessionExpiry time.Duration

	// Filters are the topic filters of a config. Filters of all configs together must not overlap.
	Filters func(stream.Config) ([]string, error)
	// Group is the name of a shared subscription: of all instances with the same group, one gets each message. Empty is none.
	Group string
	QoS   QoS

	// Format is what payloads are. An empty payload is {} in JSON.
	Format stream.Format
	// Require are members that a JSON payload must have; without any, it need not be an object.
	Require []Member
	// Filter tells whether a message is wanted; nil wants all. A message that is not is acknowledged like the others.
	Filter func(stream.Config, *stream.Arrival) (bool, error)
	// One of Relay and Message says what a message becomes. The session closes Relay. A Message's bytes are on arena.
	Relay   stream.Relay
	Message func(config stream.Config, a *stream.Arrival, arena *stream.Arena) (stream.Message, error)

	// OnInvalid is for payloads that are not what Format and Require say, OnError for what Filter, Relay and Message fail
	// on, and for configs without filters, with filters that overlap, or that the broker refuses.
	OnInvalid, OnError Policy
	// Stage is the name of the stage, for dead letters.
	Stage string

	// InboxMessages and InboxBytes bound what has arrived and is not acknowledged; 10,000 and 64 MiB if 0. A broker does not
	// send what is larger than InboxBytes.
	InboxMessages int
	InboxBytes    int64
	// ReceiveMaximum is how many messages the broker may have sent without an acknowledgement, at most 65,535; 1,000 if 0.
	ReceiveMaximum int
	// PageMessages and PageBytes bound one page's arrivals; 10,000 and 4 MiB if 0.
	PageMessages int
	PageBytes    int64

	OnStop Stop
	Events Events
	// Now is the clock of arrivals; nil is time.Now.
	Now func() time.Time
	// Dial connects to the broker, encryption included; nil is the network.
	Dial func(ctx context.Context) (net.Conn, error)
	// Backoff are the shortest and the longest wait between attempts to connect; 250 ms and 30 s if 0.
	Backoff struct{ Min, Max time.Duration }
	// Quiet is how long an instance that leaves for good hears nothing before it takes the broker's queue as empty; 1 s if 0.
	Quiet time.Duration
}

// QoS is the quality of service that is asked for.
type QoS uint8

// The qualities of service. The zero value is MQTT's 1.
const (
	AtLeastOnce QoS = iota
	AtMostOnce
	ExactlyOnce
)

// QoSOf is the QoS of MQTT's number 0, 1 or 2.
func QoSOf(level int) QoS { return [...]QoS{AtMostOnce, AtLeastOnce, ExactlyOnce}[level] }

func (q QoS) level() byte { return [...]byte{1, 0, 2}[q] }

// Stop is what the end of a session means to the broker.
type Stop uint8

const (
	// Stay keeps the session at the broker, which queues for the return of this client identifier.
	Stay Stop = iota
	// Leave unsubscribes, handles what the broker still sends, and ends the session at the broker.
	Leave
)

// Policy is what becomes of a message that is invalid, or that fails.
type Policy struct {
	Kind  PolicyKind
	Topic *stream.Topic // of DeadLetter
}

// PolicyKind is the kind of a Policy.
type PolicyKind uint8

// The kinds of policies.
const (
	Fail       PolicyKind = iota // the session ends, and nothing of the page is committed or acknowledged
	Skip                         // the message is passed over
	DeadLetter                   // the message goes to the Topic of the policy, in the same transaction as the page
)

// Session is one session. It is a stream.Session.
type Session struct {
	config    Config
	broker    string // for people
	address   string
	encrypted bool
	inbox     *inbox
	receipts  *receipts
	closing   sync.Once

	routes  atomic.Pointer[routes] // written by the keeper
	current atomic.Pointer[link]   // written by the keeper
	// subscribed is that current has all subscriptions of the configs that it began with; written by the keeper.
	subscribed atomic.Bool
	trouble    atomic.Pointer[string] // why there is no connection; written by the keeper
	// known are the filters that the broker's session has, as far as this process knows. Of the keeper.
	known map[string]bool
	// settled gets a token when an instance that leaves has unsubscribed.
	settled chan struct{}

	// Of the pump.
	page     stream.Page
	arena    stream.Arena
	arrivals []stream.Arrival
	members  []rawjson.Member
}

// New checks the config. It connects to nothing.
func New(config Config) (*Session, error) {
	s := &Session{settled: make(chan struct{}, 1), known: map[string]bool{}, receipts: &receipts{ids: map[uint16]bool{}}}
	u, err := url.Parse(config.Broker)
	if err != nil {
		// The error of url.Parse holds the text, and with it a password.
		return nil, errors.New("mqtt broker: not a URL; it is mqtt://host:1883 or mqtts://host:8883")
	}
	port := "1883"
	switch u.Scheme {
	case "mqtt":
		if config.TLS != nil {
			return nil, errors.New("mqtt broker: TLS settings have no effect on mqtt://; use mqtts://")
		}
	case "mqtts":
		port, s.encrypted = "8883", true
	case "ws", "wss":
		return nil, fmt.Errorf("mqtt broker: %s:// is not supported yet; use mqtt:// or mqtts://", u.Scheme)
	default:
		return nil, fmt.Errorf("mqtt broker: the scheme is mqtt or mqtts, not %q", u.Scheme)
	}
	if u.Hostname() == "" || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("mqtt broker: it is mqtt://host:1883 or mqtts://host:8883, without a path or a query")
	}
	if u.Port() != "" {
		port = u.Port()
	}
	s.address = net.JoinHostPort(u.Hostname(), port)
	s.broker = u.Scheme + "://" + s.address
	if u.User != nil && config.User == "" && config.Password == "" {
		config.User = u.User.Username()
		config.Password, _ = u.User.Password()
	}
	orDefault(&config.KeepAlive, 30*time.Second)
	orDefault(&config.SessionExpiry, 24*time.Hour)
	orDefault(&config.InboxMessages, 10_000)
	orDefault(&config.InboxBytes, 64<<20)
	orDefault(&config.ReceiveMaximum, min(1000, config.InboxMessages))
	orDefault(&config.PageMessages, 10_000)
	orDefault(&config.PageBytes, 4<<20)
	orDefault(&config.Backoff.Min, 250*time.Millisecond)
	orDefault(&config.Backoff.Max, 30*time.Second)
	orDefault(&config.Quiet, time.Second)
	if config.Now == nil {
		config.Now = time.Now
	}
	switch {
	case config.ClientID == "" || len(config.ClientID) > maxTopic:
		return nil, fmt.Errorf("mqtt client id: it has 1 to %d bytes", maxTopic)
	case strings.ContainsAny(config.Group, "/+#"):
		return nil, fmt.Errorf("mqtt shared group %q: a group's name has no /, + or #", config.Group)
	case config.KeepAlive%time.Second != 0 || config.KeepAlive < time.Second || config.KeepAlive > 65535*time.Second:
		return nil, errors.New("mqtt keep alive: whole seconds, 1s to 65535s")
	case config.SessionExpiry%time.Second != 0 || config.SessionExpiry < time.Second || config.SessionExpiry/time.Second > math.MaxUint32-1:
		return nil, errors.New("mqtt session expiry: whole seconds, 1s to 136 years")
	case config.ReceiveMaximum < 1 || config.ReceiveMaximum > 65535:
		return nil, errors.New("mqtt receive maximum: 1 to 65535")
	case config.InboxMessages < config.ReceiveMaximum:
		return nil, fmt.Errorf("mqtt inbox: %d messages is less than the receive maximum of %d", config.InboxMessages, config.ReceiveMaximum)
	case config.InboxBytes < 1 || config.PageMessages < 1 || config.PageBytes < 1:
		return nil, errors.New("mqtt bounds: positive numbers")
	case config.Backoff.Min < 0 || config.Backoff.Max < config.Backoff.Min:
		return nil, errors.New("mqtt backoff: the longest wait is shorter than the shortest")
	case config.Filters == nil:
		return nil, errors.New("mqtt: no topic filters")
	case (config.Relay == nil) == (config.Message == nil):
		return nil, errors.New("mqtt: one of relay and message says what a message becomes")
	case len(config.Require) > 0 && config.Format != stream.JSON:
		return nil, errors.New("mqtt require: only JSON has members")
	case (config.OnInvalid.Kind == DeadLetter) != (config.OnInvalid.Topic != nil) || (config.OnError.Kind == DeadLetter) != (config.OnError.Topic != nil):
		return nil, errors.New("mqtt policies: a dead letter has a topic, and nothing else has")
	}
	s.config = config
	// At half of what the broker may have sent, so that it sends on while the page is committed.
	s.inbox = newInbox(config.InboxMessages, config.InboxBytes, min(config.PageMessages, max(config.ReceiveMaximum/2, 1)), config.PageBytes)
	return s, nil
}

func orDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// Run holds the session until ctx is done; see stream.Session. It may be called once.
func (s *Session) Run(ctx context.Context, push *stream.Push) error {
	// What is under way when ctx ends has time until Grace.
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	defer context.AfterFunc(push.Grace, func() { cancel(context.Cause(push.Grace)) })()

	k := &keeper{Session: s, push: push, leave: make(chan struct{}), end: make(chan parting, 1), ended: make(chan struct{}), said: map[string]string{}}
	go func() {
		defer close(k.ended)
		if k.err = k.run(work); k.err != nil {
			cancel(k.err)
		}
	}()
	err := s.pump(ctx, work, push)
	bye := stay
	if err == nil && s.config.OnStop == Leave {
		bye = s.drain(work, push, k)
	}
	k.end <- bye
	<-k.ended
	switch {
	case k.err != nil:
		return k.err
	case ctx.Err() != nil && errors.Is(err, context.Cause(work)):
		return nil // told to end, and the page under way was not done in time
	default:
		return err
	}
}

// pump hands over page after page until ctx is done.
func (s *Session) pump(ctx, work context.Context, push *stream.Push) error {
	var batch []delivery
	var began time.Time // the last page
	for {
		select {
		case <-ctx.Done():
		case <-work.Done():
		case <-s.inbox.arrived:
			s.gather(ctx, work, push.Gather-time.Since(began), push.Gather/10)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case work.Err() != nil:
			return context.Cause(work)
		}
		began = time.Now()
		batch = s.inbox.take(batch[:0], s.config.PageMessages, s.config.PageBytes)
		if err := s.handle(work, push, batch); err != nil {
			return err
		}
		clear(batch)
	}
}

// gather waits until a page is worth its transaction: it is large enough, or the time is over, or nothing has come for a
// while. Without the last, a broker that sends 20 messages before it waits for their acknowledgements would send 20 a page.
func (s *Session) gather(ctx, work context.Context, longest, quiet time.Duration) {
	waiting, enough := s.inbox.stands()
	if enough || longest <= 0 || quiet <= 0 {
		return
	}
	over := time.NewTimer(longest)
	defer over.Stop()
	ticks := time.NewTicker(quiet)
	defer ticks.Stop()
	for !enough {
		select {
		case <-ctx.Done():
			return
		case <-work.Done():
			return
		case <-over.C:
			return
		case <-s.inbox.arrived:
			_, enough = s.inbox.stands()
		case <-ticks.C:
			before := waiting
			if waiting, enough = s.inbox.stands(); waiting == before {
				return
			}
		}
	}
}

// handle makes a page of what has arrived, commits it, and acknowledges it.
func (s *Session) handle(ctx context.Context, push *stream.Push, batch []delivery) error {
	if len(batch) == 0 {
		return nil
	}
	defer s.inbox.done(batch)
	f := &filling{Session: s, routes: s.routes.Load(), batch: batch, tell: true, newest: -1}
	for {
		if err := f.fill(ctx, push); err != nil {
			return err
		}
		if len(s.page.Messages) == 0 {
			break
		}
		err := push.Commit(ctx, &s.page)
		if err == nil {
			break
		}
		var refused *stream.RefusedError
		if !errors.As(err, &refused) {
			return err
		}
		if err := f.without(refused); err != nil {
			return err
		}
	}
	s.acknowledge(batch)
	return nil
}

// acknowledge tells the broker of a page's messages, in the order in which they came.
func (s *Session) acknowledge(batch []delivery) {
	told, again := 0, 0
	for i := 0; i < len(batch); {
		l, run := batch[i].link, batch[i:i]
		for ; i < len(batch) && batch[i].link == l; i++ {
			if batch[i].packet.QoS > 0 {
				run = append(run, batch[i])
			}
		}
		n := l.acknowledge(run)
		told += n
		again += len(run) - n
	}
	if told > 0 {
		call(s.config.Events.Acknowledged, told)
	}
	if again > 0 {
		call(s.config.Events.Redelivery, again)
	}
}

// drain handles what the broker still sends to an instance that leaves for good, after it has unsubscribed.
func (s *Session) drain(work context.Context, push *stream.Push, k *keeper) parting {
	close(k.leave)
	s.inbox.remind() // pump may have taken the word of what waits with it
	var quiet <-chan time.Time
	var batch []delivery
	for {
		select {
		case <-work.Done():
			return stay
		case <-s.settled:
			quiet = time.After(s.config.Quiet)
		case <-s.inbox.arrived:
			batch = s.inbox.take(batch[:0], s.config.PageMessages, s.config.PageBytes)
			if err := s.handle(work, push, batch); err != nil {
				return stay
			}
			if quiet != nil {
				quiet = time.After(s.config.Quiet)
			}
		case <-quiet:
			if held, _ := s.inbox.held(); held == 0 && s.current.Load() != nil {
				return forGood
			}
			quiet = nil // the connection is gone; the keeper tells when it has unsubscribed on another
		}
	}
}

func (s *Session) shared(filter string) string {
	if s.config.Group == "" {
		return filter
	}
	return "$share/" + s.config.Group + "/" + filter
}

// Status implements stream.Session.
func (s *Session) Status() stream.SessionStatus {
	status := stream.SessionStatus{Connected: s.current.Load() != nil, Subscribed: s.subscribed.Load()}
	status.Held, status.HeldBytes = s.inbox.held()
	if why := s.trouble.Load(); why != nil && !status.Connected {
		status.Error = *why
	}
	return status
}

// Close lets go of the relay. It may be called more than once.
func (s *Session) Close() {
	s.closing.Do(func() {
		if s.config.Relay != nil {
			s.config.Relay.Close()
		}
	})
}
