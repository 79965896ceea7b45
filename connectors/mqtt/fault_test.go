package mqtt_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"github.com/flechtwerk/flechtwerk/connectors/mqtt"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// script is a broker that does as the test says, in the fake time of a bubble. answer is asked for each packet that comes, on
// the connection of that number, and answers what is sent back.
type script struct {
	t      *testing.T
	answer func(conn int, p *packets.ControlPacket) []packets.Packet

	mu    sync.Mutex
	conns int
	got   []byte // types of packets
	pipes []net.Conn
}

func (s *script) dial(context.Context) (net.Conn, error) {
	client, broker := net.Pipe()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns++
	s.pipes = append(s.pipes, broker)
	go s.serve(s.conns, broker)
	return client, nil
}

// connections is how many there have been.
func (s *script) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns
}

func (s *script) serve(conn int, pipe net.Conn) {
	// Pipes have no buffers, and a broker reads on while it writes.
	out := make(chan packets.Packet, 1000)
	defer close(out)
	go func() {
		defer pipe.Close()
		for a := range out {
			if a == nil {
				return
			}
			if _, err := a.WriteTo(pipe); err != nil {
				return
			}
		}
	}()
	for {
		p, err := packets.ReadPacket(pipe)
		if err != nil {
			return
		}
		s.mu.Lock()
		s.got = append(s.got, p.Type)
		s.mu.Unlock()
		for _, a := range s.answer(conn, p) {
			out <- a
		}
		if p.Type == packets.DISCONNECT {
			return
		}
	}
}

func (s *script) count(kind byte) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, got := range s.got {
		if got == kind {
			n++
		}
	}
	return n
}

// usual is how a broker answers.
func usual(p *packets.ControlPacket) []packets.Packet {
	switch p.Type {
	case packets.CONNECT:
		return []packets.Packet{&packets.Connack{Properties: &packets.Properties{}}}
	case packets.SUBSCRIBE:
		return []packets.Packet{&packets.Suback{PacketID: p.PacketID(), Reasons: []byte{1}, Properties: &packets.Properties{}}}
	case packets.UNSUBSCRIBE:
		return []packets.Packet{&packets.Unsuback{PacketID: p.PacketID(), Reasons: []byte{0}, Properties: &packets.Properties{}}}
	case packets.PINGREQ:
		return []packets.Packet{&packets.Pingresp{}}
	}
	return nil
}

func publish(id uint16) *packets.Publish {
	return &packets.Publish{Topic: "x/1", PacketID: id, QoS: 1, Payload: []byte("1"), Properties: &packets.Properties{}}
}

// play is a session with a scripted broker.
type play struct {
	*script
	config       mqtt.Config
	disconnected []mqtt.DisconnectedInfo // of the keeper; read when all goroutines are blocked
	commits      int
	commit       func(ctx context.Context) error
	cancel       context.CancelFunc
	expire       context.CancelFunc
	ended        chan error
}

func newPlay(t *testing.T, answer func(conn int, p *packets.ControlPacket) []packets.Packet) *play {
	p := &play{script: &script{t: t, answer: answer}, ended: make(chan error, 1)}
	p.config = mqtt.Config{
		Broker: "mqtt://broker", ClientID: "bridge", Dial: p.dial,
		Filters: func(stream.Config) ([]string, error) { return []string{"x/#"}, nil },
		Message: func(_ stream.Config, a *stream.Arrival, _ *stream.Arena) (stream.Message, error) {
			return stream.Message{Topic: output, Value: a.Value}, nil
		},
	}
	p.config.Events.Disconnected = func(i mqtt.DisconnectedInfo) { p.disconnected = append(p.disconnected, i) }
	return p
}

func (p *play) start() *mqtt.Session {
	p.t.Helper()
	s, err := mqtt.New(p.config)
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	grace, expire := context.WithCancel(context.Background())
	p.cancel, p.expire = cancel, expire
	go func() {
		p.ended <- s.Run(ctx, &stream.Push{
			Configs: func() ([]stream.Config, <-chan struct{}) { return []stream.Config{{Key: "default"}}, nil },
			Lookup:  func() stream.Configs { return nil },
			Commit: func(ctx context.Context, _ *stream.Page) error {
				p.commits++
				if p.commit != nil {
					return p.commit(ctx)
				}
				return nil
			},
			Gather: 100 * time.Millisecond,
			Grace:  grace,
		})
	}()
	return s
}

// pass lets fake time pass, and what happens in it come to an end.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// stop ends the session and what is left of the broker.
func (p *play) stop() error {
	p.cancel()
	synctest.Wait()
	err := <-p.ended
	p.expire()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pipe := range p.pipes {
		pipe.Close()
	}
	return err
}

func (p *play) mustStop() {
	p.t.Helper()
	if err := p.stop(); err != nil {
		p.t.Error(err)
	}
}

// errors are the reasons of all ends of connections, in a line.
func (p *play) errors() string {
	var all []string
	for _, i := range p.disconnected {
		if i.Err != nil {
			all = append(all, i.Err.Error())
		}
	}
	return strings.Join(all, "; ")
}

func TestM6SilentBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlay(t, func(conn int, q *packets.ControlPacket) []packets.Packet {
			if conn == 1 && q.Type == packets.PINGREQ {
				return nil
			}
			return usual(q)
		})
		p.start()
		pass(59 * time.Second)
		if p.connections() != 1 || p.count(packets.PINGREQ) != 3 {
			t.Errorf("after 59 s: connection %d, %d pings", p.connections(), p.count(packets.PINGREQ))
		}
		pass(2 * time.Second)
		if p.connections() != 2 || !strings.Contains(p.errors(), "silent for 45s") {
			t.Errorf("after 61 s: connection %d: %s", p.connections(), p.errors())
		}
		pass(time.Hour)
		if p.connections() != 2 {
			t.Errorf("connection %d: %s", p.connections(), p.errors())
		}
		p.mustStop()
	})
}

func TestM6BrokerThatDoesNotAnswer(t *testing.T) {
	for name, kind := range map[string]byte{"connect": packets.CONNECT, "subscribe": packets.SUBSCRIBE} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlay(t, func(conn int, q *packets.ControlPacket) []packets.Packet {
					if conn == 1 && q.Type == kind {
						return nil
					}
					return usual(q)
				})
				s := p.start()
				pass(29 * time.Second)
				if p.connections() != 1 || s.Status().Subscribed {
					t.Errorf("after 29 s: connection %d: %s", p.connections(), p.errors())
				}
				pass(2 * time.Second)
				if p.connections() != 2 || !s.Status().Subscribed {
					t.Errorf("after 31 s: connection %d: %s", p.connections(), p.errors())
				}
				p.mustStop()
			})
		})
	}
}

func TestM6BackoffGrowsAndComesDownAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlay(t, func(conn int, q *packets.ControlPacket) []packets.Packet {
			if conn <= 12 {
				return []packets.Packet{nil}
			}
			return usual(q)
		})
		s := p.start()
		pass(10 * time.Minute)
		if p.connections() != 13 || len(p.disconnected) != 12 {
			t.Fatalf("connection %d, %d ends", p.connections(), len(p.disconnected))
		}
		for i, d := range p.disconnected {
			most := min(250*time.Millisecond<<i, 30*time.Second)
			if d.Retry < most/2 || d.Retry > most {
				t.Errorf("wait %d is %s, not between %s and %s", i, d.Retry, most/2, most)
			}
		}
		if status := s.Status(); !status.Connected || !status.Subscribed || status.Error != "" {
			t.Errorf("%+v", status)
		}
		p.pipes[12].Close()
		synctest.Wait()
		if d := p.disconnected[12]; d.Retry > 250*time.Millisecond {
			t.Errorf("after a connection of ten minutes the wait is %s", d.Retry)
		}
		if status := s.Status(); status.Connected || status.Subscribed || !strings.Contains(status.Error, "EOF") {
			t.Errorf("%+v", status)
		}
		p.mustStop()
	})
}

func TestM5SilenceMeansNothingWhileTheInboxIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlay(t, func(_ int, q *packets.ControlPacket) []packets.Packet {
			answer := usual(q)
			if q.Type == packets.SUBSCRIBE {
				for id := range uint16(4) {
					answer = append(answer, publish(id+1))
				}
			}
			return answer
		})
		away := make(chan struct{})
		p.commit = func(context.Context) error { <-away; return nil }
		p.config.InboxMessages, p.config.ReceiveMaximum = 4, 4
		s := p.start()
		pass(time.Hour)
		if p.connections() != 1 || s.Status().Held != 4 {
			t.Errorf("connection %d, %+v: %s", p.connections(), s.Status(), p.errors())
		}
		if n := p.count(packets.PINGREQ); n < 239 {
			t.Errorf("%d pings in an hour", n)
		}
		close(away)
		pass(time.Minute)
		if n := p.count(packets.PUBACK); n != 4 || p.connections() != 1 {
			t.Errorf("%d acknowledgements, connection %d: %s", n, p.connections(), p.errors())
		}
		p.mustStop()
	})
}

func TestRefusals(t *testing.T) {
	connack := func(code byte) func(*packets.ControlPacket) packets.Packet {
		return func(*packets.ControlPacket) packets.Packet {
			return &packets.Connack{ReasonCode: code, Properties: &packets.Properties{ReasonString: "says the broker"}}
		}
	}
	suback := func(code byte) func(*packets.ControlPacket) packets.Packet {
		return func(q *packets.ControlPacket) packets.Packet {
			return &packets.Suback{PacketID: q.PacketID(), Reasons: []byte{code}, Properties: &packets.Properties{}}
		}
	}
	for name, test := range map[string]struct {
		kind   byte
		answer func(*packets.ControlPacket) packets.Packet
		code   string // empty is tried again
		want   string
	}{
		"bad password":         {packets.CONNECT, connack(0x86), mqtt.CodeRefused, "bad user name or password (says the broker)"},
		"not authorized":       {packets.CONNECT, connack(0x87), mqtt.CodeRefused, "not authorized"},
		"version":              {packets.CONNECT, connack(0x84), mqtt.CodeRefused, "does not speak MQTT 5"},
		"client identifier":    {packets.CONNECT, connack(0x85), mqtt.CodeRefused, "client identifier"},
		"server busy":          {packets.CONNECT, connack(0x89), "", "busy"},
		"server unavailable":   {packets.CONNECT, connack(0x88), "", "refuses the connection"},
		"a filter":             {packets.SUBSCRIBE, suback(0x87), mqtt.CodeRefused, `"x/#", config "default": the broker refuses the subscription: not authorized`},
		"shared subscriptions": {packets.SUBSCRIBE, suback(0x9E), mqtt.CodeRefused, "shared: false"},
		"wildcards":            {packets.SUBSCRIBE, suback(0xA2), mqtt.CodeRefused, "wildcards"},
		"a filter's form":      {packets.SUBSCRIBE, suback(0x8F), mqtt.CodeRefused, "topic filter invalid"},
		"QoS 0":                {packets.SUBSCRIBE, suback(0), mqtt.CodeQoS, "grants QoS 0 where 1 is asked for"},
		"quota":                {packets.SUBSCRIBE, suback(0x97), "", "Quota exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlay(t, func(conn int, q *packets.ControlPacket) []packets.Packet {
					if conn == 1 && q.Type == test.kind {
						return []packets.Packet{test.answer(q)}
					}
					return usual(q)
				})
				s := p.start()
				pass(time.Minute)
				var coded *mqtt.Error
				err := p.stop()
				switch {
				case test.code == "":
					if err != nil || p.connections() != 2 || !strings.Contains(p.errors(), test.want) {
						t.Errorf("%v; connection %d: %s", err, p.connections(), p.errors())
					}
				case !errors.As(err, &coded) || coded.Code != test.code || !strings.Contains(err.Error(), test.want) || p.connections() != 1:
					t.Errorf("%v; connection %d", err, p.connections())
				}
				s.Close()
			})
		})
	}
}

func TestM6BrokerSaysGoodBye(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlay(t, func(conn int, q *packets.ControlPacket) []packets.Packet {
			if conn == 1 && q.Type == packets.PINGREQ {
				return []packets.Packet{&packets.Disconnect{ReasonCode: 0x8B, Properties: &packets.Properties{ReasonString: "upgrade"}}, nil}
			}
			return usual(q)
		})
		p.start()
		pass(time.Minute)
		if p.connections() != 2 || !strings.Contains(p.errors(), "shutting down") || !strings.Contains(p.errors(), "upgrade") {
			t.Errorf("connection %d: %s", p.connections(), p.errors())
		}
		p.mustStop()
	})
}

func TestM8EndsInTimeWhateverTheBrokerDoes(t *testing.T) {
	for name, answer := range map[string]func(conn int, q *packets.ControlPacket) []packets.Packet{
		"answers nothing at all": func(int, *packets.ControlPacket) []packets.Packet { return nil },
		"closes at once":         func(int, *packets.ControlPacket) []packets.Packet { return []packets.Packet{nil} },
		"does not answer the unsubscription": func(_ int, q *packets.ControlPacket) []packets.Packet {
			if q.Type == packets.UNSUBSCRIBE {
				return nil
			}
			return usual(q)
		},
	} {
		for stop, policy := range map[string]mqtt.Stop{"stay": mqtt.Stay, "leave": mqtt.Leave} {
			t.Run(name+", "+stop, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := newPlay(t, answer)
					p.config.OnStop = policy
					p.start()
					pass(time.Second)
					p.cancel()
					began := time.Now()
					time.AfterFunc(10*time.Second, p.expire)
					if err := <-p.ended; err != nil {
						t.Error(err)
					}
					if took := time.Since(began); took > 10*time.Second {
						t.Errorf("it took %s", took)
					}
					p.ended <- nil
					p.mustStop()
				})
			})
		}
	}
}
