package mqtttest

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"
)

// Patience is how long tests wait for what should happen.
const Patience = 20 * time.Second

// Packet is one packet that went over a tap.
type Packet struct {
	Conn   int  // number of the connection, from 1
	Client bool // sent by the client
	*packets.ControlPacket

	note string
}

func (p Packet) String() string {
	if p.note != "" {
		return p.note
	}
	arrow := "<-"
	if p.Client {
		arrow = "->"
	}
	text := fmt.Sprintf("%d %s %s", p.Conn, arrow, p.PacketType())
	switch c := p.Content.(type) {
	case *packets.Publish:
		return fmt.Sprintf("%s %s qos%d #%d dup=%v", text, c.Topic, c.QoS, c.PacketID, c.Duplicate)
	case *packets.Puback:
		return fmt.Sprintf("%s #%d", text, c.PacketID)
	}
	return text
}

// Tap stands between a client and a broker, and records each packet that it has passed on.
type Tap struct {
	Addr string

	t      testing.TB
	target string
	listen net.Listener
	ended  sync.WaitGroup

	mu      sync.Mutex
	packets []Packet
	grown   chan struct{} // closed and made anew with each packet and each connection
	conns   map[int]*tapped
	count   int
	refuse  bool
	// hold stops packets of the client that it answers true to, until the connection ends.
	hold func(Packet) bool
	held chan struct{} // gets a token when it has
}

type tapped struct{ client, broker net.Conn }

func (c *tapped) close() {
	c.client.Close()
	c.broker.Close()
}

// NewTap starts a tap in front of a broker. It ends with the test.
func NewTap(t testing.TB, broker string) *Tap {
	t.Helper()
	listen, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tap := &Tap{Addr: listen.Addr().String(), t: t, target: broker, listen: listen, grown: make(chan struct{}), held: make(chan struct{}, 100), conns: map[int]*tapped{}}
	tap.ended.Go(tap.accept)
	t.Cleanup(func() {
		listen.Close()
		tap.Cut()
		tap.ended.Wait()
	})
	return tap
}

func (p *Tap) accept() {
	for {
		client, err := p.listen.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		refuse := p.refuse
		p.mu.Unlock()
		if refuse {
			client.Close()
			continue
		}
		broker, err := net.Dial("tcp", p.target)
		if err != nil {
			client.Close()
			continue
		}
		c := &tapped{client, broker}
		p.mu.Lock()
		p.count++
		n := p.count
		p.conns[n] = c
		p.mu.Unlock()
		p.ended.Go(func() { p.pass(n, c, client, broker, true) })
		p.ended.Go(func() { p.pass(n, c, broker, client, false) })
	}
}

func (p *Tap) pass(n int, c *tapped, from io.Reader, to io.Writer, client bool) {
	defer c.close()
	for {
		packet, err := packets.ReadPacket(from)
		if err != nil {
			return
		}
		seen := Packet{Conn: n, Client: client, ControlPacket: packet}
		p.mu.Lock()
		hold := p.hold
		p.mu.Unlock()
		if hold != nil && hold(seen) {
			p.held <- struct{}{}
			_, _ = io.Copy(io.Discard, from)
			return
		}
		// Recorded before it is passed on, so that what it brings about is recorded after it.
		p.record(seen)
		if _, err := packet.WriteTo(to); err != nil {
			return
		}
	}
}

func (p *Tap) record(seen Packet) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.packets = append(p.packets, seen)
	close(p.grown)
	p.grown = make(chan struct{})
}

// Note puts a line among the packets, for who reads why a test has failed.
func (p *Tap) Note(text string) {
	p.record(Packet{note: text, ControlPacket: &packets.ControlPacket{}})
}

// Cut ends all connections at once, without a word.
func (p *Tap) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n, c := range p.conns {
		c.close()
		delete(p.conns, n)
	}
}

// Refuse lets nobody in, or in again.
func (p *Tap) Refuse(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = refuse
}

// Hold stops passing on a connection's packets from the first one that match answers true to.
func (p *Tap) Hold(match func(Packet) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hold = match
}

// Held waits until a packet was held.
func (p *Tap) Held(t testing.TB) {
	t.Helper()
	select {
	case <-p.held:
	case <-time.After(Patience):
		t.Fatalf("nothing was held\n%s", p)
	}
}

// Packets are all packets so far.
func (p *Tap) Packets() []Packet {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.packets[:len(p.packets):len(p.packets)]
}

// Wait waits until so many packets match, and answers those that do.
func (p *Tap) Wait(t testing.TB, n int, what string, match func(Packet) bool) []Packet {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	for {
		p.mu.Lock()
		grown := p.grown
		var found []Packet
		for _, seen := range p.packets {
			if match(seen) {
				found = append(found, seen)
			}
		}
		p.mu.Unlock()
		if len(found) >= n {
			return found
		}
		select {
		case <-grown:
		case <-ctx.Done():
			t.Fatalf("%d packets of %d: %s\n%s", len(found), n, what, p)
		}
	}
}

// String is what went over the tap, a packet a line.
func (p *Tap) String() string {
	var b strings.Builder
	for _, seen := range p.Packets() {
		fmt.Fprintln(&b, seen)
	}
	return b.String()
}

// Is tells packets of one type and direction.
func Is(kind byte, client bool) func(Packet) bool {
	return func(p Packet) bool { return p.Type == kind && p.Client == client }
}
