// Package http asks web servers: it holds the client that everything in the process goes out through, the fetch of scripts
// and the requests of extractors alike.
//
// One request, from Client.Do to the end of its answer's body:
//
//  1. The URL is completed by the base URL, the query is appended, and what cannot be sent is refused.
//  2. The request takes its turn at the host (Hosts): a connection, a place under the rate limit, the breaker's consent.
//     It may wait here for as long as its context lets it; its own time has not begun.
//  3. It goes out. From here on its time runs (Config.Timeout), up to the last byte of the body.
//  4. A redirect begins at 2 again, at the host that it points to. Secrets stay with the host that they were meant for.
//  5. The answer is given to the caller, whatever its status. Its body is counted and decompressed while it is read.
//  6. The turn ends when the body has ended, was closed, failed, or ran out of time, whichever comes first.
//
// What holds throughout:
//
//  1. Nothing is asked twice. The one exception is the transport's own: a request without a body that goes over a kept
//     connection which the server had closed in the meantime is sent again on a new one.
//  2. Every status is an answer, not an error. What did not come to an answer is an *Error with a code.
//  3. No error holds a secret: no header's value, no user or password of a URL, no query value with a telling name.
//  4. Nothing is unbounded: time, redirects, the size of header and body as sent, the size of the body as decompressed.
//  5. A caller that forgets to close a body holds a connection no longer than the request's time.
package http

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"
)

// Config holds what a pipeline says in its fetch: block, and what the process adds. The zero value is ready to use.
type Config struct {
	// Hosts is what the whole process shares. A client without one has its own.
	Hosts *Hosts
	// UserAgent is sent where a request has none; "flechtwerk" if empty.
	UserAgent string
	// BaseURL stands before every URL of a request that has no scheme: https://api.example.com/v1 and /prices, or prices,
	// are https://api.example.com/v1/prices. Its query is sent with each of them.
	BaseURL string
	// Timeout is the time of a request from when it goes out to the last byte of its answer; 30 s if 0.
	Timeout time.Duration
	// Rate, Breaker and Connections are those of each host; see Hosts for clients that differ.
	Rate    Rate
	Breaker Breaker
	// Connections is how many requests may be under way at a host at once; 64 if 0.
	Connections int
	// MaxBytes is the largest body as sent, MaxDecompressed as decompressed; 128 MiB and 512 MiB if 0.
	MaxBytes, MaxDecompressed int64
	// MaxRedirects is how many redirects one request follows; 10 if 0.
	MaxRedirects int
	// TLS are the settings of encrypted connections; nil means those of the system.
	TLS *tls.Config
	// Proxy is the URL of a proxy (http, https or socks5), or "direct" for none. If empty, the environment decides, as
	// HTTP_PROXY, HTTPS_PROXY and NO_PROXY have it.
	Proxy string
	// Events is told what happens.
	Events Events
	// Dial connects to an address; nil is the network.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

const (
	defaultUserAgent       = "flechtwerk"
	defaultTimeout         = 30 * time.Second
	defaultConnections     = 64
	defaultMaxBytes        = 128 << 20
	defaultMaxDecompressed = 512 << 20
	defaultMaxRedirects    = 10

	maxHeaderBytes = 256 << 10
	dialTimeout    = 30 * time.Second
	idleTimeout    = 90 * time.Second
	idlePerProcess = 256
)

// The names of the limits, as the messages of errors have them.
const (
	optionTimeout         = "timeout"
	optionRate            = "rate"
	optionBreaker         = "breaker"
	optionMaxBytes        = "max_bytes"
	optionMaxDecompressed = "max_decompressed"
	optionMaxRedirects    = "max_redirects"
)

// Events is how a client tells what happens; log and metrics listen. A nil function is not called. The functions run on the
// goroutines of requests, several at once, and must be quick.
type Events struct {
	// RequestDone is called once for each request, and for each redirect that it followed, when the turn at the host ends.
	RequestDone func(RequestInfo)
	// BreakerOpened and BreakerClosed tell that a host is left alone, and that it is not any more.
	BreakerOpened func(BreakerInfo)
	BreakerClosed func(BreakerInfo)
}

// RequestInfo tells of one request that is over.
type RequestInfo struct {
	Method, Host string
	Status       int           // 0 where no answer came
	Code         string        // of the Error, if it failed, while the body was read too
	Waited       time.Duration // for its turn
	Took         time.Duration // from when it went out to the end of the body
	Bytes        int64         // of the body, as sent
}

func (i RequestInfo) String() string {
	if i.Code != "" {
		return fmt.Sprintf("%s %s: %s after %s", i.Method, i.Host, i.Code, i.Took)
	}
	return fmt.Sprintf("%s %s: %d, %d bytes in %s", i.Method, i.Host, i.Status, i.Bytes, i.Took)
}

// BreakerInfo tells of the breaker of a host.
type BreakerInfo struct {
	Host     string
	Failures int    // one after another
	Last     string // what the last failure was
}

func (i BreakerInfo) String() string {
	return fmt.Sprintf("%s: %d failures one after another, the last one: %s", i.Host, i.Failures, i.Last)
}

// Client sends requests. It is safe for concurrent use.
type Client struct {
	config    Config
	base      *url.URL // nil without a base URL
	transport *http.Transport
}

// New checks config and makes a client of it. It connects to nothing yet.
func New(config Config) (*Client, error) {
	c := &Client{config: config}
	d := &c.config
	if d.Hosts == nil {
		d.Hosts = NewHosts()
	}
	if d.UserAgent == "" {
		d.UserAgent = defaultUserAgent
	}
	for _, limit := range []struct {
		name       string
		value      *int64
		ifNotGiven int64
	}{
		{optionTimeout, (*int64)(&d.Timeout), int64(defaultTimeout)},
		{optionMaxBytes, &d.MaxBytes, defaultMaxBytes},
		{optionMaxDecompressed, &d.MaxDecompressed, defaultMaxDecompressed},
	} {
		if *limit.value < 0 {
			return nil, fmt.Errorf("http client: %s is below 0", limit.name)
		}
		if *limit.value == 0 {
			*limit.value = limit.ifNotGiven
		}
	}
	if d.MaxRedirects < 0 {
		return nil, fmt.Errorf("http client: %s is below 0", optionMaxRedirects)
	}
	if d.MaxRedirects == 0 {
		d.MaxRedirects = defaultMaxRedirects
	}
	if d.Connections < 0 {
		return nil, errors.New("http client: connections is below 0")
	}
	if err := d.Rate.check(); err != nil {
		return nil, fmt.Errorf("http client: %s: %w", optionRate, err)
	}
	if err := d.Breaker.check(); err != nil {
		return nil, fmt.Errorf("http client: %s: %w", optionBreaker, err)
	}
	if d.BaseURL != "" {
		base, err := parseURL(d.BaseURL)
		if err == nil && !base.IsAbs() {
			err = errNoScheme
		}
		if err != nil {
			return nil, fmt.Errorf("http client: base_url %s: %w", MaskURL(d.BaseURL), err)
		}
		c.base = base
	}
	proxy, err := chooseProxy(d.Proxy)
	if err != nil {
		return nil, fmt.Errorf("http client: %w", err)
	}
	dial := d.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	idle := d.Connections
	if idle == 0 {
		idle = defaultConnections
	}
	c.transport = &http.Transport{
		Proxy:                  proxy,
		DialContext:            dial,
		TLSClientConfig:        d.TLS.Clone(),
		ForceAttemptHTTP2:      true,
		DisableCompression:     true, // done here, where it is bounded
		MaxIdleConns:           max(idle, idlePerProcess),
		MaxIdleConnsPerHost:    idle,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
	}
	return c, nil
}

func chooseProxy(text string) (func(*http.Request) (*url.URL, error), error) {
	switch text {
	case "":
		return http.ProxyFromEnvironment, nil
	case "direct":
		return nil, nil
	}
	proxy, err := url.Parse(text)
	if err != nil || proxy.Host == "" {
		return nil, errors.New(`proxy is neither a URL (http://proxy.example.com:3128) nor "direct"`)
	}
	switch proxy.Scheme {
	case "http", "https", "socks5", "socks5h":
		return http.ProxyURL(proxy), nil
	}
	return nil, fmt.Errorf("proxy %s: the scheme is none of http, https, socks5, socks5h", MaskURL(text))
}

// Close lets go of the connections that are not in use. It may be called more than once.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Do sends a request and returns when the header of the answer is there. Every error is an *Error. The body of an answer
// must be read to its end or closed; it ends with an *Error when ctx does. The request belongs to the client until then.
func (c *Client) Do(ctx context.Context, request *Request) (*Response, error) {
	wire, err := c.prepare(request)
	if err != nil {
		return nil, &Error{Code: CodeRequest, Method: method(request), URL: MaskURL(request.URL), Err: err}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	x := &exchange{client: c, request: request, cancel: cancel, budget: newBudget(c.timeout(request), cancel)}
	ctx = httptrace.WithClientTrace(ctx, x.trace())
	response, err := x.run(ctx, wire)
	if err != nil {
		x.budget.stop()
		cancel(err)
		return nil, err
	}
	return response, nil
}

func (c *Client) timeout(r *Request) time.Duration {
	if r.Timeout > 0 {
		return r.Timeout
	}
	return c.config.Timeout
}

// exchange is one call of Do, with all its redirects.
type exchange struct {
	client  *Client
	request *Request
	cancel  context.CancelCauseFunc
	budget  *budget
	phase   atomic.Int32 // of the hop under way; the transport's goroutines write it
}

func (x *exchange) run(ctx context.Context, wire *http.Request) (*Response, error) {
	config := &x.client.config
	for hops := 0; ; hops++ {
		t, failed := config.Hosts.enter(ctx, hostName(wire.URL), x.client)
		t.method = wire.Method
		if failed != nil {
			if errors.Is(context.Cause(ctx), errTimeout) {
				failed = x.classify(ctx, errTimeout)
			}
			t.refused(failed)
			return nil, x.fill(failed, wire)
		}
		hop, quit := context.WithCancel(ctx)
		x.phase.Store(phaseConnect)
		x.budget.start()
		t.sent()
		answer, err := x.client.transport.RoundTrip(wire.WithContext(hop)) //nolint:bodyclose // the Response's Body closes it, or discard
		if err != nil {
			quit()
			failed := x.fill(x.classify(ctx, err), wire)
			t.leave(failed)
			return nil, failed
		}
		t.answered(answer.StatusCode)
		next, failed := x.redirect(wire, answer, hops)
		if failed == nil && next == nil {
			return x.respond(ctx, quit, wire, answer, t), nil
		}
		discard(answer.Body, quit)
		quit()
		x.budget.stop()
		t.leave(failed)
		if failed != nil {
			return nil, x.fill(failed, wire)
		}
		wire = next
	}
}

// fill names the request in an error.
func (x *exchange) fill(e *Error, wire *http.Request) *Error {
	e.Method, e.URL, e.Host = wire.Method, MaskURL(wire.URL.String()), hostName(wire.URL)
	return e
}

// The phases of a hop, in their order.
const (
	phaseConnect = iota
	phaseLookUp
	phaseHandshake
	phaseSend
	phaseWait
	phaseRead
)

var phases = [...]string{
	"connecting", "looking up the name of the host", "agreeing on encryption", "sending the request",
	"waiting for the answer", "reading the answer",
}

// trace notes how far a hop has come. A dial that was begun for this request may go on after another connection became
// free, so a phase is never taken back.
func (x *exchange) trace() *httptrace.ClientTrace {
	at := func(phase int32) {
		for now := x.phase.Load(); now < phase; now = x.phase.Load() {
			if x.phase.CompareAndSwap(now, phase) {
				return
			}
		}
	}
	return &httptrace.ClientTrace{
		DNSStart:             func(httptrace.DNSStartInfo) { at(phaseLookUp) },
		TLSHandshakeStart:    func() { at(phaseHandshake) },
		GotConn:              func(httptrace.GotConnInfo) { at(phaseSend) },
		WroteRequest:         func(httptrace.WroteRequestInfo) { at(phaseWait) },
		GotFirstResponseByte: func() { at(phaseRead) },
	}
}

// budget is the time that an exchange has. It stands still while the exchange waits for its turn at a host. Only the
// goroutine of Do starts and stops it; end may come from anywhere.
type budget struct {
	whole, left time.Duration
	since       time.Time
	timer       *time.Timer
	cancel      context.CancelCauseFunc
}

func newBudget(d time.Duration, cancel context.CancelCauseFunc) *budget {
	return &budget{whole: d, left: d, cancel: cancel}
}

func (b *budget) start() {
	b.since = time.Now()
	if b.timer == nil {
		b.timer = time.AfterFunc(b.left, func() { b.cancel(errTimeout) })
		return
	}
	b.timer.Reset(b.left)
}

func (b *budget) stop() {
	if b.timer != nil && b.timer.Stop() {
		b.left = max(0, b.left-time.Since(b.since))
	}
}

// used is the time that ran, while it runs.
func (b *budget) used() time.Duration { return b.whole - b.left + time.Since(b.since) }

func (b *budget) end() { b.timer.Stop() }

func (e *Events) done(i RequestInfo) {
	if e.RequestDone != nil {
		e.RequestDone(i)
	}
}
