package mqtt

import (
	"sync"
	"sync/atomic"

	"github.com/eclipse/paho.golang/packets"
)

// delivery is one message as the broker delivered it.
type delivery struct {
	packet *packets.Publish
	link   *link // the connection that it came on, and on which alone it can be acknowledged
	at     int64 // milliseconds since 1970
}

// deliveryOverhead is what a message takes in memory beside its topic and payload, roughly.
const deliveryOverhead = 512

func (d *delivery) size() int64 {
	n := int64(len(d.packet.Topic) + len(d.packet.Payload) + deliveryOverhead)
	for _, u := range d.packet.Properties.User {
		n += int64(len(u.Key) + len(u.Value))
	}
	return n
}

// inbox is what has arrived and is not yet acknowledged, in the order of arrival. put never waits; who reads from the network
// asks free before it reads on, so the inbox exceeds its bounds by no more than what was read already.
type inbox struct {
	maxMessages int
	maxBytes    int64
	// enough is how many messages or bytes that wait make a page that is not to wait for more.
	enoughMessages int
	enoughBytes    int64
	full           atomic.Bool // what free would say, for who asks before every read

	mu      sync.Mutex
	waiting []delivery // since the last take
	// messages and bytes count what is waiting and what was taken and is not done.
	messages     int
	bytes        int64
	waitingBytes int64
	// arrived gets a token when something waits where nothing did, and when it is enough.
	arrived chan struct{}
	changed chan struct{} // closed and made anew whenever room is made
}

func newInbox(maxMessages int, maxBytes int64, enoughMessages int, enoughBytes int64) *inbox {
	return &inbox{maxMessages: maxMessages, maxBytes: maxBytes, enoughMessages: enoughMessages, enoughBytes: enoughBytes, arrived: make(chan struct{}, 1), changed: make(chan struct{})}
}

func (b *inbox) put(d delivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	size := d.size()
	had := b.enoughWaits()
	b.waiting = append(b.waiting, d)
	b.waitingBytes += size
	b.messages++
	b.bytes += size
	b.full.Store(!b.hasRoom())
	if len(b.waiting) == 1 || !had && b.enoughWaits() {
		b.signal()
	}
}

// enoughWaits needs the lock. What the full inbox holds is enough, too: nothing more comes before some of it is done.
func (b *inbox) enoughWaits() bool {
	return len(b.waiting) >= b.enoughMessages || b.waitingBytes >= b.enoughBytes || !b.hasRoom()
}

// stands tells how many messages wait, and whether that is enough.
func (b *inbox) stands() (waiting int, enough bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting), b.enoughWaits()
}

// held is how much is not acknowledged yet.
func (b *inbox) held() (messages int, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.messages, b.bytes
}

// remind tells again that something waits, if something does.
func (b *inbox) remind() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) > 0 {
		b.signal()
	}
}

func (b *inbox) signal() {
	select {
	case b.arrived <- struct{}{}:
	default:
	}
}

// take moves what waits to the end of into, up to so many messages and bytes, but one message at least if there is one.
func (b *inbox) take(into []delivery, messages int, bytes int64) []delivery {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for n < len(b.waiting) && n < messages {
		size := b.waiting[n].size()
		if n > 0 && size > bytes {
			break
		}
		bytes -= size
		b.waitingBytes -= size
		n++
	}
	into = append(into, b.waiting[:n]...)
	rest := copy(b.waiting, b.waiting[n:])
	clear(b.waiting[rest:])
	b.waiting = b.waiting[:rest]
	if rest > 0 {
		b.signal()
	}
	return into
}

// done says that what was taken is not held any more.
func (b *inbox) done(taken []delivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range taken {
		b.messages--
		b.bytes -= taken[i].size()
	}
	b.roomMade()
}

// forget drops what waits of a connection that is gone, where the broker is known to send it again, and tells how much that
// was. What cannot come again (QoS 0) stays.
func (b *inbox) forget(current *link) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	kept := b.waiting[:0]
	for _, d := range b.waiting {
		if d.link != current && d.packet.QoS > 0 {
			size := d.size()
			b.messages--
			b.bytes -= size
			b.waitingBytes -= size
			continue
		}
		kept = append(kept, d)
	}
	n := len(b.waiting) - len(kept)
	clear(b.waiting[len(kept):])
	b.waiting = kept
	if n > 0 {
		b.roomMade()
	}
	return n
}

func (b *inbox) hasRoom() bool { return b.messages < b.maxMessages && b.bytes < b.maxBytes }

func (b *inbox) roomMade() {
	b.full.Store(!b.hasRoom())
	close(b.changed)
	b.changed = make(chan struct{})
}

// free is nil when there is room, and otherwise closed when to ask again.
func (b *inbox) free() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.hasRoom() {
		return nil
	}
	return b.changed
}
