package mqtt

import (
	"bufio"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	wireBuffer   = 16 << 10
	writeTimeout = 10 * time.Second
)

// wire is the network connection under a paho client. It adds three things: buffers, since paho reads and writes a few bytes
// at a time; a stop in reading while the inbox is full, so that what is too much stays with the broker; and a limit for a
// write that does not come through.
//
// paho takes a connection's lock around each packet that it writes; the packet is sent when the lock is let go.
type wire struct {
	net.Conn
	inbox  *inbox
	gated  atomic.Bool // reading stops for a full inbox; from CONNACK on
	paused atomic.Bool // reading has stopped for a full inbox
	read   *bufio.Reader
	closed chan struct{} // nothing holds up reading any more
	once   sync.Once

	mu     sync.Mutex
	write  *bufio.Writer
	corked bool
	last   bool // the last packet was sent; what comes after it is dropped
}

func newWire(conn net.Conn, b *inbox) *wire {
	return &wire{Conn: conn, inbox: b, read: bufio.NewReaderSize(conn, wireBuffer), write: bufio.NewWriterSize(conn, wireBuffer), closed: make(chan struct{})}
}

func (w *wire) Read(p []byte) (int, error) {
	if w.inbox.full.Load() && w.gated.Load() {
		w.waitForRoom()
	}
	return w.read.Read(p)
}

func (w *wire) waitForRoom() {
	w.paused.Store(true)
	defer w.paused.Store(false)
	for room := w.inbox.free(); room != nil; room = w.inbox.free() {
		select {
		case <-room:
		case <-w.closed:
			return
		}
	}
}

func (w *wire) Lock() { w.mu.Lock() }

func (w *wire) Unlock() {
	if !w.corked {
		w.flush()
	}
	w.mu.Unlock()
}

// Write is called with the lock held.
func (w *wire) Write(p []byte) (int, error) {
	if w.last {
		return len(p), nil
	}
	if w.write.Available() < len(p) {
		_ = w.SetWriteDeadline(time.Now().Add(writeTimeout))
	}
	return w.write.Write(p)
}

// flush needs the lock. A connection on which a write fails is closed: its reader tells of the end.
func (w *wire) flush() {
	if w.write.Buffered() == 0 {
		return
	}
	_ = w.SetWriteDeadline(time.Now().Add(writeTimeout))
	if w.write.Flush() != nil {
		_ = w.Close()
	}
}

// cork holds packets back until uncork, to send many at once.
func (w *wire) cork() {
	w.mu.Lock()
	w.corked = true
	w.mu.Unlock()
}

func (w *wire) uncork() {
	w.mu.Lock()
	w.corked = false
	w.flush()
	w.mu.Unlock()
}

// sayLast sends a packet after which no other is sent, and lets what comes be read and forgotten.
func (w *wire) sayLast(packet io.WriterTo) {
	_, _ = packet.WriteTo(w)
	w.mu.Lock()
	w.last = true
	w.mu.Unlock()
	w.ungate()
}

// ungate lets reading go on for ever.
func (w *wire) ungate() { w.once.Do(func() { close(w.closed) }) }

func (w *wire) Close() error {
	w.ungate()
	return w.Conn.Close()
}
