package replay

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"
)

// misbehave does what goes wrong before there is an answer. It answers false where there is to be one.
func (h *Handler) misbehave(w http.ResponseWriter, r *http.Request, rule *Rule) bool {
	switch rule.Fault {
	case Hang:
		<-r.Context().Done()
	case Close:
		hangUp(w, nil)
	case Garbage:
		hangUp(w, []byte("220 this is not the server you are looking for\r\n"))
	case Loop:
		w.Header().Set("Location", r.URL.RequestURI())
		w.WriteHeader(http.StatusFound)
	default:
		return false
	}
	return true
}

// hangUp takes the connection from the server, writes to it and closes it.
func hangUp(w http.ResponseWriter, last []byte) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // HTTP/2 lends no connections; this breaks off the stream
	}
	if tcp, ok := conn.(*net.TCPConn); ok && last == nil {
		_ = tcp.SetLinger(0)
	}
	_, _ = conn.Write(last)
	_ = conn.Close()
}

// outgoing is the way of an answer to the client, with what a rule does to it on that way.
func (h *Handler) outgoing(w http.ResponseWriter, r *http.Request, rule *Rule) http.ResponseWriter {
	switch rule.Fault {
	case Stall, Truncate, Short:
		return &broken{ResponseWriter: w, ctx: r.Context(), fault: rule.Fault}
	default: // misbehave has done the others
	}
	if rule.Drip != nil {
		return &dripping{ResponseWriter: w, ctx: r.Context(), drip: *rule.Drip}
	}
	return w
}

// dripping sends a body bit by bit.
type dripping struct {
	http.ResponseWriter
	ctx  context.Context // of the one request that this serves
	drip Drip
	more bool // than the first piece
}

func (d *dripping) Write(p []byte) (int, error) {
	flusher := http.NewResponseController(d.ResponseWriter)
	done := 0
	for done < len(p) {
		if d.more && !pause(d.ctx, time.Duration(d.drip.Every)) {
			return done, context.Cause(d.ctx)
		}
		d.more = true
		n, err := d.ResponseWriter.Write(p[done:min(len(p), done+d.drip.Bytes)])
		done += n
		if err != nil {
			return done, err
		}
		if err := flusher.Flush(); err != nil {
			return done, err
		}
	}
	return done, nil
}

// broken sends half of a body, or says that half is all. It needs to know how long the body is.
type broken struct {
	http.ResponseWriter
	ctx    context.Context // of the one request that this serves
	fault  Fault
	status int
	length int
	body   int // bytes written
	raw    net.Conn
}

func (b *broken) WriteHeader(status int) {
	b.status = status
	b.length, _ = strconv.Atoi(b.Header().Get("Content-Length"))
	if b.fault == Short {
		b.takeOver()
		return
	}
	b.ResponseWriter.WriteHeader(status)
}

// takeOver writes the header itself, since the server would not send a wrong length.
func (b *broken) takeOver() {
	conn, _, err := http.NewResponseController(b.ResponseWriter).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	b.raw = conn
	b.Header().Set("Content-Length", strconv.Itoa(b.length/2))
	b.Header().Set("Date", time.Now().UTC().Format(http.TimeFormat))
	var head bytes.Buffer
	fmt.Fprintf(&head, "HTTP/1.1 %d %s\r\n", b.status, http.StatusText(b.status))
	_ = b.Header().Write(&head)
	head.WriteString("\r\n")
	_, _ = conn.Write(head.Bytes())
}

func (b *broken) Write(p []byte) (int, error) {
	if b.status == 0 {
		b.WriteHeader(http.StatusOK)
	}
	if b.raw != nil {
		n, err := b.raw.Write(p)
		if b.body += n; b.body >= b.length || err != nil {
			_ = b.raw.Close()
		}
		return n, err
	}
	half := min(len(p), max(b.length/2-b.body, 0))
	n, err := b.ResponseWriter.Write(p[:half])
	b.body += n
	if err != nil || half == len(p) {
		return n, err
	}
	if err := http.NewResponseController(b.ResponseWriter).Flush(); err != nil {
		return n, err
	}
	if b.fault == Stall {
		<-b.ctx.Done()
	}
	panic(http.ErrAbortHandler)
}
