package mqtt

import (
	"context"
	"io"
	"sync"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho/log"
	"github.com/eclipse/paho.golang/paho/session"
)

// ledger is the protocol state of one connection. It is a paho session.SessionManager for a client that subscribes and does
// not publish; paho's own acknowledges on whatever connection there is, with one packet a write.
//
//   - A message of QoS 1 or 2 goes into the inbox straight from the reader, so that the inbox is never exceeded by what waits
//     between two goroutines.
//   - Ack, which paho calls as soon as a callback has returned, does nothing: link.acknowledge does it, after the commit.
//   - Requests are numbered downwards from 65,535. Brokers number their messages upwards from 1, and mochi takes a request with
//     the number of a message under way as a mistake.
type ledger struct {
	link     *link
	receipts *receipts

	mu       sync.Mutex
	conn     io.Writer // nil without a connection
	requests map[uint16]chan<- packets.ControlPacket
	last     uint16
}

// receipts are the messages of QoS 2 that were acknowledged with PUBREC, until the broker releases them with PUBREL: they are
// not handed over again. They outlive a connection, not the process; after a restart such a message can come twice.
type receipts struct {
	mu  sync.Mutex
	ids map[uint16]bool
}

func (r *receipts) add(id uint16) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids[id] = true
}

func (r *receipts) has(id uint16) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ids[id]
}

func (r *receipts) remove(id uint16) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.ids, id)
}

func (r *receipts) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.ids)
}

func (l *ledger) ConAckReceived(conn io.Writer, _ *packets.Connect, answer *packets.Connack) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn = conn
	if !answer.SessionPresent {
		l.receipts.forget()
	}
	return nil
}

// ConnectionLost ends the requests that wait for an answer.
func (l *ledger) ConnectionLost(*packets.Disconnect) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn = nil
	for id, answer := range l.requests {
		answer <- packets.ControlPacket{}
		delete(l.requests, id)
	}
	return nil
}

// AddToSession numbers a SUBSCRIBE or UNSUBSCRIBE.
func (l *ledger) AddToSession(_ context.Context, packet session.Packet, answer chan<- packets.ControlPacket) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil {
		return session.ErrNoConnection
	}
	for {
		if l.last--; l.last != 0 && l.requests[l.last] == nil {
			break
		}
	}
	l.requests[l.last] = answer
	packet.SetIdentifier(l.last)
	return nil
}

// PacketReceived answers what the broker asks, and hands messages and answers on. An error of a write is one of the
// connection, whose end follows.
func (l *ledger) PacketReceived(packet *packets.ControlPacket, _ chan<- *packets.Publish) error {
	switch p := packet.Content.(type) {
	case *packets.Publish:
		if p.QoS == 2 && p.Duplicate && l.receipts.has(p.PacketID) {
			return send(l.link.wire, &packets.Pubrec{PacketID: p.PacketID, Properties: &packets.Properties{}})
		}
		l.link.received(p)
	case *packets.Pubrel:
		l.receipts.remove(p.PacketID)
		return send(l.link.wire, &packets.Pubcomp{PacketID: p.PacketID, Properties: &packets.Properties{}})
	case *packets.Suback, *packets.Unsuback:
		id := packet.PacketID()
		l.mu.Lock()
		defer l.mu.Unlock()
		if answer := l.requests[id]; answer != nil {
			delete(l.requests, id)
			answer <- *packet
		}
	}
	return nil
}

func send(conn io.Writer, packet io.WriterTo) error {
	_, err := packet.WriteTo(conn)
	return err
}

// acknowledge writes the acknowledgement of a message.
func (l *ledger) acknowledge(p *packets.Publish) error {
	if p.QoS == 1 {
		return send(l.link.wire, &packets.Puback{PacketID: p.PacketID, Properties: &packets.Properties{}})
	}
	l.receipts.add(p.PacketID)
	return send(l.link.wire, &packets.Pubrec{PacketID: p.PacketID, Properties: &packets.Properties{}})
}

func (l *ledger) Ack(*packets.Publish) error { return nil }

func (l *ledger) Close() error { return nil }

func (l *ledger) SetErrorLogger(log.Logger) {}

func (l *ledger) SetDebugLogger(log.Logger) {}
