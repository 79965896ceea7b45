package http

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flechtwerk/flechtwerk/engine/wording"
)

// Response is an answer, whatever its status.
type Response struct {
	Status int
	// Headers have their names in canonical form (Content-Type). Where the body was decompressed, Content-Encoding and
	// Content-Length, which speak of the body as sent, are gone.
	Headers http.Header
	// URL is where the answer came from in the end, without user and password. Mask it before it is shown (MaskURL).
	URL string
	// Elapsed is from when the request went out until the header of the answer was there, without the waits for turns.
	Elapsed time.Duration
	// Body is never nil. Errors of Read are *Error or io.EOF. Close keeps the connection where little is left to be read.
	Body io.ReadCloser
}

// What Close reads of a body, at most, so that its connection can be used again.
const (
	drainBytes = 64 << 10
	drainTime  = 100 * time.Millisecond
)

var errClosed = errors.New("the body was closed")

// respond makes the response of an answer. The turn ends with its body.
func (x *exchange) respond(ctx context.Context, quit context.CancelFunc, wire *http.Request, answer *http.Response, t *turn) *Response {
	r := &Response{
		Status: answer.StatusCode, Headers: answer.Header, URL: wire.URL.String(), Elapsed: x.budget.used(),
	}
	config := &x.client.config
	b := &body{exchange: x, ctx: ctx, quit: quit, wire: wire, answer: answer, turn: t}
	t.bytes = b.sent.Load
	r.Body = b
	if answer.Body == http.NoBody || wire.Method == http.MethodHead {
		b.finish(nil)
		b.ended = io.EOF
		return r
	}
	maxBytes, maxDecompressed := config.MaxBytes, config.MaxDecompressed
	if x.request.MaxBytes > 0 {
		maxBytes = x.request.MaxBytes
	}
	if x.request.MaxDecompressed > 0 {
		maxDecompressed = x.request.MaxDecompressed
	}
	if answer.ContentLength > maxBytes {
		b.fail(&Error{Code: CodeTooLarge, Err: fmt.Errorf("the body is %d bytes long, more than %s, which is the limit %s", answer.ContentLength, wording.Size(maxBytes), optionMaxBytes)})
		return r
	}
	b.reader = &bounded{from: &counted{from: answer.Body, n: &b.sent}, left: maxBytes, max: maxBytes, option: optionMaxBytes, what: "the body"}
	if decoded := uncompress(b.reader, answer.Header); decoded != nil {
		b.reader = &bounded{from: decoded, left: maxDecompressed, max: maxDecompressed, option: optionMaxDecompressed, what: "the decompressed body"}
		answer.Header.Del("Content-Encoding")
		answer.Header.Del("Content-Length")
	}
	// A body that nobody reads or closes ends with the request's time.
	b.unwatch = context.AfterFunc(ctx, func() {
		b.end(x.fill(x.classify(ctx, context.Cause(ctx)), wire), func() { _ = answer.Body.Close() })
	})
	return r
}

// body is the body of an answer, and with it the request's turn and its time. Read is used by one goroutine at a time;
// Close may come from another one.
type body struct {
	exchange *exchange
	ctx      context.Context
	quit     context.CancelFunc
	wire     *http.Request
	answer   *http.Response
	turn     *turn
	unwatch  func() bool
	reader   io.Reader
	sent     atomic.Int64
	ended    error // what Read answers from now on; belongs to who reads
	once     sync.Once
}

func (b *body) Read(p []byte) (int, error) {
	if b.ended != nil {
		return 0, b.ended
	}
	n, err := b.reader.Read(p)
	switch {
	case err == nil:
	case err == io.EOF:
		b.ended = io.EOF
		b.finish(nil)
	default:
		b.fail(b.explain(err))
	}
	return n, b.ended
}

// explain makes an Error of what went wrong while the body was read.
func (b *body) explain(err error) *Error {
	var ours *Error
	if errors.As(err, &ours) {
		return ours
	}
	failed := b.exchange.classify(b.ctx, err)
	if failed.Code != CodeProtocol {
		return failed
	}
	if length := b.answer.ContentLength; errors.Is(err, io.ErrUnexpectedEOF) && length > b.sent.Load() {
		failed.Err = fmt.Errorf("the body broke off after %d of %d bytes", b.sent.Load(), length)
	} else if errors.Is(err, io.ErrUnexpectedEOF) {
		failed.Err = fmt.Errorf("the body broke off after %d bytes", b.sent.Load())
	}
	return failed
}

func (b *body) fail(e *Error) {
	b.ended = b.exchange.fill(e, b.wire)
	b.finish(e)
}

// finish ends the turn once the body can give no more.
func (b *body) finish(failed *Error) {
	b.release()
	b.end(failed, func() {
		if failed != nil {
			b.quit()
		}
		_ = b.answer.Body.Close()
	})
}

func (b *body) Close() error {
	b.release()
	b.end(nil, func() { discard(b.answer.Body, b.quit) })
	return nil
}

func (b *body) release() {
	if b.unwatch != nil {
		b.unwatch()
	}
}

// end lets go of the connection, then of the turn. Only the first call counts.
func (b *body) end(failed *Error, letGo func()) {
	b.once.Do(func() {
		letGo()
		b.exchange.budget.end()
		b.turn.leave(failed)
		b.exchange.cancel(errClosed)
	})
}

// discard closes a body, after what little may be left of it was read.
func discard(body io.ReadCloser, quit func()) {
	timer := time.AfterFunc(drainTime, quit)
	_, _ = io.CopyN(io.Discard, body, drainBytes)
	timer.Stop()
	_ = body.Close()
}

// counted counts what is read.
type counted struct {
	from io.Reader
	n    *atomic.Int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// bounded ends with an Error where there is more than max bytes.
type bounded struct {
	from         io.Reader
	left, max    int64 // left is -1 once there was more
	option, what string
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, b.tooLarge()
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.from.Read(p)
	if int64(n) <= b.left {
		b.left -= int64(n)
		return n, err
	}
	n, b.left = int(b.left), -1
	return n, b.tooLarge()
}

func (b *bounded) tooLarge() error {
	return &Error{Code: CodeTooLarge, Err: fmt.Errorf("%s is larger than %s, which is the limit %s", b.what, wording.Size(b.max), b.option)}
}

// uncompress undoes the content encodings of an answer, the last one first. It answers nil where there are none, or where one is
// unknown: then the body stays as it was sent and the header says how.
func uncompress(from io.Reader, header http.Header) io.Reader {
	var names []string
	for _, value := range header.Values("Content-Encoding") {
		for name := range strings.SplitSeq(value, ",") {
			switch name = strings.ToLower(strings.TrimSpace(name)); name {
			case "identity", "":
			case "gzip", "x-gzip", "deflate":
				names = append(names, name)
			default:
				return nil
			}
		}
	}
	if len(names) == 0 || len(names) > maxEncodings {
		return nil
	}
	for _, name := range slices.Backward(names) {
		open := openGzip
		if name == "deflate" {
			open = openDeflate
		}
		from = &decoded{from: bufio.NewReader(from), open: open}
	}
	return from
}

// maxEncodings is how many content encodings are undone: more than one is rare, more than a few a trick.
const maxEncodings = 3

// decoded opens its decompressor at the first Read, since that reads already. No bytes at all are an empty body, as some
// servers send it.
type decoded struct {
	from   *bufio.Reader
	open   func(*bufio.Reader) (io.Reader, error)
	reader io.Reader
}

func (d *decoded) Read(p []byte) (int, error) {
	if d.reader == nil {
		if _, err := d.from.Peek(1); err != nil {
			return 0, err
		}
		reader, err := d.open(d.from)
		if err != nil {
			if err == io.EOF { //nolint:errorlint // io.Reader's contract
				err = io.ErrUnexpectedEOF
			}
			return 0, err
		}
		d.reader = reader
	}
	return d.reader.Read(p)
}

func openGzip(from *bufio.Reader) (io.Reader, error) { return gzip.NewReader(from) }

// openDeflate takes what RFC 9110 calls deflate, which is zlib, and what some servers send under that name, which is not.
func openDeflate(from *bufio.Reader) (io.Reader, error) {
	head, err := from.Peek(2)
	if err == nil && head[0]&0x0f == 8 && (int(head[0])<<8|int(head[1]))%31 == 0 {
		return zlib.NewReader(from)
	}
	return flate.NewReader(from), nil
}
