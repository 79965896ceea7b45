package http

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Rate is how often a host may be asked: Requests per Per, evenly spread, except that Burst of them may come at once after a
// pause. The zero value is no limit.
type Rate struct {
	Requests int
	Per      time.Duration // 1 s if 0
	Burst    int           // 1 if 0
}

func (r Rate) check() error {
	if r.Requests < 0 || r.Per < 0 || r.Burst < 0 {
		return errors.New("a number is below 0")
	}
	if r.Requests == 0 && (r.Per != 0 || r.Burst != 0) {
		return errors.New("it does not say how many requests")
	}
	return nil
}

func (r Rate) limit() (rate.Limit, int) {
	per := r.Per
	if per == 0 {
		per = time.Second
	}
	return rate.Limit(float64(r.Requests) / per.Seconds()), max(r.Burst, 1)
}

func (r Rate) String() string {
	per := r.Per
	if per == 0 {
		per = time.Second
	}
	return fmt.Sprintf("%d per %s", r.Requests, per)
}

// Breaker leaves a host alone for Pause (30 s if 0) once Failures requests have failed one after another. Then one request
// is let through: if it succeeds, everything is as before, else the pause begins again. A request has failed if it came to
// no answer, to a broken one, or to a status from 500 on. The zero value is no breaker.
type Breaker struct {
	Failures int
	Pause    time.Duration
}

const defaultPause = 30 * time.Second

func (b Breaker) check() error {
	if b.Failures < 0 || b.Pause < 0 {
		return errors.New("a number is below 0")
	}
	if b.Failures == 0 && b.Pause != 0 {
		return errors.New("it does not say after how many failures")
	}
	return nil
}

func (b Breaker) pause() time.Duration {
	if b.Pause == 0 {
		return defaultPause
	}
	return b.Pause
}

// Hosts is what a process knows about the hosts that it talks to: how often they were asked, how many requests are under
// way, how many have failed. Clients that share a Hosts share all of it. It is safe for concurrent use.
//
// Where clients differ about a host, the lowest rate, the smallest burst and the fewest connections that any of them states
// hold for all of them. Failures are counted for all together; how many are too many, each says for itself.
type Hosts struct {
	mu      sync.Mutex
	hosts   map[string]*host
	sweepAt int // how many hosts there may be before those of which there is nothing to know are dropped
}

// sweepFrom is the number of hosts from which on idle ones are dropped.
const sweepFrom = 1024

// forget is how long failures are remembered of a host that nobody asks.
const forget = time.Hour

// NewHosts returns a Hosts that knows nothing yet.
func NewHosts() *Hosts { return &Hosts{hosts: map[string]*host{}, sweepAt: sweepFrom} }

// host is one of them. Hosts.mu guards its fields; the limiter guards itself.
type host struct {
	name     string
	users    int // those who wait and those who are under way
	underWay int
	most     int // 0 as long as nobody has said
	queue    []chan struct{}
	limiter  *rate.Limiter // nil as long as nobody has said

	failures int // one after another
	failedAt time.Time
	last     string
	probing  bool
}

// turn is one request's stay at a host.
type turn struct {
	hosts  *Hosts
	host   *host
	client *Client
	method string
	probe  bool // the breaker waits for this one
	judged bool // by its status
	waited time.Duration
	sentAt time.Time
	status int
	bytes  func() int64 // nil as long as there is no body
	once   sync.Once
}

// enter waits for a connection, then for a place under the rate limit, and asks the breaker before and after. In this
// order, since a place is for now: who took one and then waited for a connection would be late, and a crowd of the late
// would be faster than the limit. The turn that comes with an error is over already.
func (s *Hosts) enter(ctx context.Context, name string, client *Client) (*turn, *Error) {
	t := &turn{hosts: s, client: client}
	config := &client.config
	since := time.Now()
	s.mu.Lock()
	h := s.at(name)
	t.host = h
	h.users++
	h.apply(config)
	refused, _ := h.refuses(config.Breaker, since)
	var wait chan struct{}
	if refused == nil {
		if h.underWay < h.allowed() {
			h.underWay++
		} else {
			wait = make(chan struct{})
			h.queue = append(h.queue, wait)
		}
	} else {
		h.users--
	}
	limiter := h.limiter
	s.mu.Unlock()
	if refused != nil {
		return t, refused
	}
	if wait != nil {
		select {
		case <-wait:
		case <-ctx.Done():
			s.mu.Lock()
			defer s.mu.Unlock()
			if !h.unqueue(wait) {
				h.free()
			}
			h.users--
			t.waited = time.Since(since)
			return t, &Error{Code: CodeCancelled, Err: fmt.Errorf("gave up while %d other requests to %s were under way: %w", h.allowed(), name, context.Cause(ctx))}
		}
	}
	var failed *Error
	if limiter != nil {
		if err := limiter.Wait(ctx); err != nil {
			failed = rateError(ctx, name, config.Rate)
		}
	}
	t.waited = time.Since(since)
	s.mu.Lock()
	defer s.mu.Unlock()
	if failed == nil {
		failed, t.probe = h.refuses(config.Breaker, time.Now())
	}
	if failed != nil {
		h.free()
		h.users--
		return t, failed
	}
	h.probing = h.probing || t.probe
	return t, nil
}

func rateError(ctx context.Context, name string, r Rate) *Error {
	limit := "that another pipeline has set"
	if r.Requests > 0 {
		limit = "of " + r.String()
	}
	if ctx.Err() != nil {
		return &Error{Code: CodeCancelled, Err: fmt.Errorf("gave up while waiting for its turn at %s under the %s limit %s: %w", name, optionRate, limit, context.Cause(ctx))}
	}
	return &Error{Code: CodeTimeout, Err: fmt.Errorf("its turn at %s under the %s limit %s comes after its deadline: %w", name, optionRate, limit, context.DeadlineExceeded)}
}

// at finds a host or begins one.
func (s *Hosts) at(name string) *host {
	h := s.hosts[name]
	if h != nil {
		return h
	}
	if len(s.hosts) >= s.sweepAt {
		now := time.Now()
		for name, h := range s.hosts {
			if h.idle(now) {
				delete(s.hosts, name)
			}
		}
		s.sweepAt = max(sweepFrom, 2*len(s.hosts))
	}
	h = &host{name: name}
	s.hosts[name] = h
	return h
}

// idle tells that nothing is lost by dropping the host.
func (h *host) idle(now time.Time) bool {
	rested := h.limiter == nil || h.limiter.TokensAt(now) >= float64(h.limiter.Burst())
	return h.users == 0 && rested && (h.failures == 0 || now.Sub(h.failedAt) > forget)
}

// apply makes the limits those of the strictest client so far.
func (h *host) apply(config *Config) {
	if n := config.Connections; n > 0 && (h.most == 0 || n < h.most) {
		h.most = n
	}
	if config.Rate.Requests == 0 {
		return
	}
	limit, burst := config.Rate.limit()
	if h.limiter == nil {
		h.limiter = rate.NewLimiter(limit, burst)
		return
	}
	if limit < h.limiter.Limit() {
		h.limiter.SetLimit(limit)
	}
	if burst < h.limiter.Burst() {
		h.limiter.SetBurst(burst)
	}
}

func (h *host) allowed() int {
	if h.most == 0 {
		return defaultConnections
	}
	return h.most
}

// refuses asks the breaker. Where it lets the request through, probe tells that it watches this one.
func (h *host) refuses(b Breaker, now time.Time) (refused *Error, probe bool) {
	if b.Failures == 0 || h.failures < b.Failures {
		return nil, false
	}
	wait := h.failedAt.Add(b.pause()).Sub(now)
	if wait <= 0 && !h.probing {
		return nil, true
	}
	text := "until the request that tries it has an answer"
	if wait > 0 {
		text = "for another " + wait.Round(time.Millisecond).String()
	}
	return &Error{Code: CodeBreakerOpen, Wait: max(wait, 0), Err: fmt.Errorf(
		"%s failed %d times one after another, the last time by %s, and is left alone %s (%s: %d failures, pause %s)",
		h.name, h.failures, h.last, text, optionBreaker, b.Failures, b.pause())}, false
}

// free gives a connection back, to the first in the queue if there is one.
func (h *host) free() {
	h.underWay--
	for len(h.queue) > 0 && h.underWay < h.allowed() {
		h.underWay++
		close(h.queue[0])
		h.queue = h.queue[1:]
	}
}

// unqueue takes one who gave up out of the queue. It answers false if it was its turn already.
func (h *host) unqueue(wait chan struct{}) bool {
	for i, w := range h.queue {
		if w == wait {
			h.queue = append(h.queue[:i], h.queue[i+1:]...)
			return true
		}
	}
	return false
}

func (t *turn) sent() { t.sentAt = time.Now() }

// answered ends the wait of the breaker for this request. What is still to come of the body does not hold up others.
func (t *turn) answered(status int) {
	t.status = status
	if !t.probe {
		return
	}
	t.judged = true
	t.judge(t.statusFailure(), true)
}

func (t *turn) statusFailure() string {
	if t.status >= 500 {
		return fmt.Sprintf("status %d", t.status)
	}
	return ""
}

// refused tells of a turn that was over before the request went out.
func (t *turn) refused(failed *Error) {
	t.client.config.Events.done(RequestInfo{Method: t.method, Host: t.host.name, Code: failed.Code, Waited: t.waited})
}

// leave ends the turn, with what failed in it. Only the first call counts.
func (t *turn) leave(failed *Error) {
	t.once.Do(func() {
		info := RequestInfo{Method: t.method, Host: t.host.name, Status: t.status, Waited: t.waited, Took: time.Since(t.sentAt)}
		if t.bytes != nil {
			info.Bytes = t.bytes()
		}
		failure, known := t.statusFailure(), t.status != 0 && !t.judged
		if failed != nil {
			info.Code = failed.Code
			switch failed.Code {
			case CodeTooLarge, CodeRedirects: // the host has done its part
			case CodeCancelled:
				known = known && failure != ""
			default:
				known = failure == "" || !t.judged
				failure = failed.Code
			}
		}
		t.judge(failure, known)
		t.hosts.mu.Lock()
		t.host.free()
		t.host.users--
		t.hosts.mu.Unlock()
		t.client.config.Events.done(info)
	})
}

// judge counts a success or, where failure says what it was, a failure. Where the outcome is not known it only ends the
// breaker's wait.
func (t *turn) judge(failure string, known bool) {
	h, b, events := t.host, t.client.config.Breaker, &t.client.config.Events
	t.hosts.mu.Lock()
	before := h.failures
	probe := t.probe
	if probe {
		t.probe, h.probing = false, false
	}
	switch {
	case !known:
	case failure == "":
		h.failures = 0
	default:
		h.failures++
		h.failedAt, h.last = time.Now(), failure
	}
	info := BreakerInfo{Host: h.name, Failures: h.failures, Last: h.last}
	t.hosts.mu.Unlock()
	switch {
	case b.Failures == 0:
	case events.BreakerOpened != nil && info.Failures > before && (info.Failures == b.Failures || probe):
		events.BreakerOpened(info)
	case events.BreakerClosed != nil && before >= b.Failures && info.Failures == 0:
		info.Failures = before
		events.BreakerClosed(info)
	}
}

// hostName is what hosts are told apart by: the name, and the port where it is not the scheme's own.
func hostName(u *url.URL) string {
	name, port := strings.ToLower(u.Hostname()), u.Port()
	if strings.Contains(name, ":") {
		name = "[" + name + "]"
	}
	if port == "" || port == "443" && u.Scheme == "https" || port == "80" && u.Scheme == "http" {
		return name
	}
	return name + ":" + port
}
