package http

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/flechtwerk/flechtwerk/engine/decode"
	"github.com/flechtwerk/flechtwerk/engine/expr"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// Poller is a stream.Source that asks a web server. It is safe for concurrent use.
//
// One poll, from the committed state to the last commit:
//
//  1. The state is split into what is the user's and the bookmark (bookmark.go). Where a listing is under way, the poll goes
//     on with it: with the state and the time that it began with, so that its requests are the same.
//  2. The request is made of its templates, signed and sent. Waits that the server asks for are waited (sending.go).
//  3. The items of the answer are read one by one (reading.go) and become messages. Where there are more than one
//     transaction holds, the page is cut: what there is commits with the number of items, and the hash of them.
//  4. At the end of the answer the cursor is looked at, and where the next page is (paging.go). Both commit with the page.
//  5. Without a next page the listing has ended: its place is no part of the state any more.
//
// What holds throughout, whatever is killed whenever:
//
//  1. Everything that the next poll needs is in the state that commits with the messages. A poll keeps nothing in memory.
//  2. A page that is committed is not asked for again, as long as the request of the listing is the same. If it is not
//     (another URL, another config), the listing begins again from the state that it began with: rather twice than not.
//  3. A page that was cut is read again and its committed items are passed over, if they are still the same; if they are not,
//     the page is another one and is read from its start.
//  4. Within a listing, state in the request and in until is that from before the listing. Elsewhere it is what the page before
//     left.
//  5. A listing that has the newest first (until) moves its cursor only when it has ended: to what its first page said, and,
//     for members that look at page.last or page.count, what its last page said. Until then that waits in the bookmark. What
//     comes in at the top meanwhile pushes items down, onto pages that are yet to come: an item that was had already, of
//     this listing or the one before, is known by its hash (isKnown) and is passed over.
//  6. A member of the cursor that is nil stays what it was, and so does one that looks at page.first or page.last where there
//     are no items: no answer moves a cursor back by accident.
//  7. The version of an answer (ETag, Last-Modified) commits with the last of its messages, never before.
//  8. No secret is in a state, an error or an event: a URL that is kept has none (secrets.seal).
type Poller struct {
	config  PollerConfig
	secrets secrets
	vars    expr.Doc
	decoder *decode.Decoder
	mode    readMode
	// rest tells that something said of a whole page looks at body.
	rest bool
	// last tells that something said of a whole page looks at page.last or page.first.
	pageItems  bool
	cursorUses []uses // by the fields of the cursor

	mu     sync.Mutex
	spare  []stream.Relay // of polls that have ended well
	closed bool
}

// uses is what a member of a cursor looks at.
type uses struct{ items, last bool }

const (
	defaultRetryAfter  = 5 * time.Minute
	defaultRetryTimes  = 10
	defaultRetryMin    = time.Second
	defaultRetryMax    = time.Minute
	defaultPageRecords = 10_000
	defaultPageBytes   = 4 << 20
)

// NewPoller checks config and makes a Source of it. It connects to nothing. The Source is safe for concurrent use.
func NewPoller(config PollerConfig) (stream.Source, error) {
	p := &Poller{config: config}
	c := &p.config
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("http: %w", err)
	}
	if c.Tokens == nil {
		c.Tokens = NewTokens()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	set := func(value *int, byDefault int) {
		if *value == 0 {
			*value = byDefault
		}
	}
	set(&c.Batch.Records, defaultPageRecords)
	set(&c.Batch.Bytes, defaultPageBytes)
	set(&c.RetryAfter.Times, defaultRetryTimes)
	if c.RetryAfter.Most == 0 {
		c.RetryAfter.Most = defaultRetryAfter
	}
	if c.Retry != nil {
		retry := *c.Retry
		if retry.Min == 0 {
			retry.Min = defaultRetryMin
		}
		if retry.Max == 0 {
			retry.Max = max(defaultRetryMax, retry.Min)
		}
		c.Retry = &retry
	}
	for _, secret := range c.Secrets {
		p.secrets.add(secret)
	}
	var err error
	if p.vars, err = expr.NewDoc(c.Vars); err != nil {
		return nil, fmt.Errorf("http: vars: %w", err)
	}
	if err := p.plan(); err != nil {
		return nil, fmt.Errorf("http: %w", err)
	}
	return p, nil
}

// method is that of the request.
func (c *PollerConfig) method() string { return method(&Request{Method: c.Request.Method}) }

func (c *PollerConfig) check() error {
	switch {
	case c.Client == nil:
		return errors.New("there is no client")
	case c.Request.URL == nil:
		return errors.New("there is no url")
	case !isToken(c.method()):
		return errors.New("this method cannot be sent")
	case (c.Message == nil) == (c.NewRelay == nil):
		return errors.New("there is one of message and relay")
	case c.KeepBody && c.NewRelay == nil:
		return errors.New("only a relay looks at a whole body")
	case len(c.Outputs) == 0:
		return errors.New("there is no topic to write to")
	case c.Batch.Records < 0 || c.Batch.Bytes < 0:
		return errors.New("a limit of a batch is below 0")
	case c.RetryAfter.Most < 0 || c.RetryAfter.Times < 0:
		return errors.New("retry_after: a number is below 0")
	}
	bodies := 0
	for _, given := range []bool{c.Request.Body.JSON != nil, c.Request.Body.Form != nil, c.Request.Body.Text != nil} {
		if given {
			bodies++
		}
	}
	if bodies > 1 {
		return errors.New("a body is one of json, form and text")
	}
	for _, r := range c.Expect {
		if r.From < 100 || r.To > 599 || r.From > r.To {
			return fmt.Errorf("expect: there are no statuses %d to %d", r.From, r.To)
		}
	}
	if r := c.Retry; r != nil {
		switch {
		case r.Times <= 0:
			return errors.New("retry does not say how often")
		case r.Min < 0 || r.Max < 0 || r.Max != 0 && r.Max < r.Min:
			return errors.New("retry: the longest pause is shorter than the first")
		case !r.AnyMethod && !isIdempotent(c.method()):
			return fmt.Errorf("retry: a %s may do twice what it is to do once; say that it may be repeated, if it may", c.method())
		}
	}
	if err := c.Auth.check(); err != nil {
		return err
	}
	if c.Paginate != nil {
		if err := c.Paginate.check(c.method(), &c.Request.Body); err != nil {
			return err
		}
	}
	if c.Conditional == ConditionalOn && c.method() != http.MethodGet {
		return fmt.Errorf("a %s is not asked conditionally", c.method())
	}
	if err := c.checkTail(); err != nil {
		return err
	}
	if m := c.Message; m != nil {
		if name, ok := m.StaticTopic(); ok && !slices.ContainsFunc(c.Outputs, func(t *stream.Topic) bool { return t.Name == name }) {
			return fmt.Errorf("message.topic: %q is none of the stage's output_topics", name)
		}
		if len(c.Outputs) > 1 && !m.Sets(expr.PartTopic) {
			return errors.New("message says no topic, and there are several output_topics")
		}
	}
	return nil
}

// conditional tells whether requests say what is there already.
func (c *PollerConfig) conditional() bool {
	switch c.Conditional {
	case ConditionalOn:
		return true
	case ConditionalOff:
		return false
	default:
		return c.method() == http.MethodGet && (c.Paginate == nil || c.newestFirst())
	}
}

func (c *PollerConfig) newestFirst() bool { return c.Paginate != nil && c.Paginate.Until != nil }

// Close implements stream.Source.
func (p *Poller) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, relay := range p.spare {
		relay.Close()
	}
	p.spare, p.closed = nil, true
}

// takeRelay is a relay that no other poll uses.
func (p *Poller) takeRelay() (stream.Relay, error) {
	p.mu.Lock()
	if n := len(p.spare); n > 0 {
		defer p.mu.Unlock()
		relay := p.spare[n-1]
		p.spare = p.spare[:n-1]
		return relay, nil
	}
	p.mu.Unlock()
	return p.config.NewRelay()
}

// leaveRelay keeps the relay of a poll that has ended well for another one.
func (p *Poller) leaveRelay(relay stream.Relay, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil || p.closed {
		relay.Close()
		return
	}
	p.spare = append(p.spare, relay)
}

// walk is one poll under way. It belongs to one goroutine.
type walk struct {
	*Poller
	poll        *stream.Poll
	relay       stream.Relay // nil with a message
	secrets     *secrets
	credentials *credentials
	asking      *asking
	home        string // the host that the request's secrets are meant for
	shown       string // the URL of the request under way, masked
	env         expr.Env

	// What is committed, and what would be with the open page.
	committed []byte
	user      []byte // the user's part of the state; nil if there is none
	mark      bookmark
	list      listing // the one under way, which mark has only if it goes on
	base      []byte  // the user's state when the listing began
	baseDoc   expr.Doc

	page     stream.Page
	arena    stream.Arena
	bytes    int // of the page's messages
	arrivals []stream.Arrival
	waiting  int // bytes of the arrivals
	maker    maker

	resumed  bool            // nothing was read yet of what an earlier poll began
	seen     map[string]bool // places of pages in this poll
	lastPage string          // hash of the items of the page before
}

// Poll implements stream.Source.
func (p *Poller) Poll(ctx context.Context, poll *stream.Poll) (err error) {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	w := &walk{Poller: p, poll: poll, secrets: p.secrets.clone(), seen: map[string]bool{}, committed: poll.Cursor}
	if p.config.NewRelay != nil {
		if w.relay, err = p.takeRelay(); err != nil {
			return err
		}
		defer func() { p.leaveRelay(w.relay, err) }()
	}
	err = w.begin()
	if err == nil {
		err = w.run(ctx)
	}
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return w.explain(err)
}

// begin makes the request of what is committed.
func (w *walk) begin() error {
	config := w.poll.Config.Value
	if len(config) == 0 {
		config = []byte("{}")
	}
	var err error
	if w.env.Config, err = expr.NewDoc(config); err != nil {
		return newPollError(CodeState, "the config is not JSON", err)
	}
	w.env.Vars, w.env.ConfigKey, w.env.FoldHeaders = w.vars, w.poll.Config.Key, true
	w.maker.init(w)
	if w.user, w.mark, err = splitState(w.committed); err != nil {
		return err
	}
	w.resumed = w.mark.Listing != nil
	if w.resumed {
		w.list, w.base = *w.mark.Listing, w.user
		if from := w.list.From; from != nil {
			w.base = nilIfNull(from)
		}
		if err := w.fill(); err != nil {
			return err
		}
		if w.list.Request == w.asking.fingerprint(w.secrets) {
			return nil
		}
	}
	return w.anew()
}

// anew begins the listing again, from the state that it began with.
func (w *walk) anew() error {
	if w.resumed {
		w.user, w.mark.Version = w.base, nil
	}
	w.resumed = false
	w.base = w.user
	w.mark.Listing = nil
	w.list = listing{Now: w.config.Now().UnixMilli()}
	if err := w.fill(); err != nil {
		return err
	}
	w.list.Request = w.asking.fingerprint(w.secrets)
	return nil
}

// fill makes the request of the listing.
func (w *walk) fill() error {
	var err error
	if w.baseDoc, err = w.state(w.base); err != nil {
		return err
	}
	w.env.State, w.env.Now = w.baseDoc, w.list.Now
	if w.credentials, err = w.config.Auth.fill(&w.env, w.secrets.add); err != nil {
		return err
	}
	if w.asking, err = w.config.Request.fill(&w.env); err != nil {
		return err
	}
	w.shown = w.secrets.hide(MaskURL(w.asking.request.URL))
	whole, err := w.config.Client.complete(w.asking.request.URL, nil)
	if err != nil {
		return newPollError("http."+CodeRequest, w.shown+": "+err.Error(), nil)
	}
	w.home = hostName(whole)
	return nil
}

// state is a state of the user as expressions see it.
func (w *walk) state(user []byte) (expr.Doc, error) {
	if isEmptyState(user) {
		if user = w.config.Initial; user == nil {
			user = []byte("{}")
		}
	}
	doc, err := expr.NewDoc(user)
	if err != nil {
		return doc, newPollError(CodeState, "the state is not JSON", err)
	}
	return doc, nil
}

func nilIfNull(text []byte) []byte {
	if string(text) == "null" {
		return nil
	}
	return text
}

// run reads page after page.
func (w *walk) run(ctx context.Context) error {
	step := w.step
	if w.config.Tail != nil {
		step = w.tailStep
	}
	attempts := 0
	for {
		before := w.list.Items
		ended, err := step(ctx)
		switch {
		case err == nil && ended:
			return nil
		case err == nil:
			attempts, w.resumed = 0, false
			continue
		case ctx.Err() != nil:
			return err
		}
		if err := w.reload(); err != nil {
			return err
		}
		if errors.Is(err, errOtherBody) {
			w.list.Items, w.list.Hash = 0, ""
			continue
		}
		if w.resumed && w.list.Next != nil && isRefusal(err) {
			w.warn(WarnPositionRefused, w.shown, "the listing was interrupted, and the server does not go on with it; it begins again, so that some items come twice")
			if err := w.anew(); err != nil {
				return err
			}
			continue
		}
		if w.list.Items > before {
			attempts = 0
		}
		again, wait := w.retry(err, attempts)
		if !again {
			return err
		}
		attempts++
		if err := w.pause(ctx, wait, w.explain(err)); err != nil {
			return err
		}
	}
}

// errOtherBody says that the items which were committed of a body are not any more those that it has.
var errOtherBody = errors.New("the body is another one")

// isRefusal tells whether a server will never again answer a request for a page.
func isRefusal(err error) bool {
	var failed *PollError
	if !errors.As(err, &failed) || failed.code != CodeStatus {
		return false
	}
	switch failed.Status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusGone, http.StatusUnprocessableEntity:
		return true
	}
	return false
}

// reload drops what is not committed.
func (w *walk) reload() error {
	w.drop()
	var err error
	if w.user, w.mark, err = splitState(w.committed); err != nil {
		return err
	}
	if w.mark.Listing != nil {
		w.list = *w.mark.Listing
		return nil
	}
	w.list = listing{Request: w.list.Request, Now: w.list.Now}
	return nil
}

func (w *walk) drop() {
	clear(w.page.Messages)
	clear(w.arrivals)
	w.page.Messages, w.arrivals, w.page.Cursor, w.page.Moved = w.page.Messages[:0], w.arrivals[:0], nil, false
	w.arena.Reset()
	w.bytes, w.waiting = 0, 0
}

// step reads one answer. ended tells that the poll is over.
func (w *walk) step(ctx context.Context) (ended bool, err error) {
	request, err := w.at(w.list.Next)
	if err != nil {
		return false, err
	}
	first := w.list.Next == nil
	if v := w.mark.Version; v != nil && first && w.mark.Listing == nil && w.config.conditional() && v.Request == w.list.Request {
		request.Headers = slices.Clone(request.Headers)
		for _, condition := range []Pair{{"If-None-Match", v.ETag}, {"If-Modified-Since", v.Modified}} {
			if condition.Value != "" && !hasPair(request.Headers, condition.Name) {
				request.Headers = append(request.Headers, condition)
			}
		}
	}
	response, err := w.send(ctx, request)
	if err != nil {
		return false, err
	}
	defer response.Body.Close()
	if response.Status == http.StatusNotModified {
		return true, nil
	}
	answer, err := w.read(ctx, response)
	if err != nil {
		return false, err
	}
	if w.config.Paginate != nil && answer.total > 0 && answer.hash == w.lastPage {
		w.warn(WarnRepeatedPage, w.shown, "the page has the same items as the one before; does the server know the parameter? The listing ends")
		if err := w.reload(); err != nil {
			return false, err
		}
		return true, w.finish(ctx)
	}
	w.lastPage = answer.hash
	if err := w.moveCursor(); err != nil {
		return false, err
	}
	next, err := w.follow(response, answer)
	if err != nil {
		return false, err
	}
	if first && w.config.conditional() {
		w.mark.Version = versionOf(response, w.list.Request)
	}
	if next == nil {
		return true, w.finish(ctx)
	}
	w.list.Next, w.list.Pages = next, w.list.Pages+1
	w.list.Items, w.list.Hash = 0, ""
	return false, w.commit(ctx, true)
}

// versionOf is what an answer says of its version, or nil.
func versionOf(response *Response, request string) *version {
	v := &version{Request: request, ETag: response.Headers.Get("ETag"), Modified: response.Headers.Get("Last-Modified")}
	if v.ETag == "" && v.Modified == "" {
		return nil
	}
	return v
}

// follow is where the listing goes on, or nil where it has ended.
func (w *walk) follow(response *Response, answer *answered) (next []byte, err error) {
	p := w.config.Paginate
	if p == nil || answer.known || answer.total == 0 {
		return nil, nil
	}
	if p.StopWhen != nil {
		stop, err := p.StopWhen.Bool(&w.env)
		if err != nil || stop {
			return nil, err
		}
	}
	next, err = w.next(response, answer.total)
	if err != nil || next == nil {
		return nil, err
	}
	place := string(next)
	switch {
	case w.seen[place] || place == string(w.list.Next):
		w.warn(WarnRepeatedCursor, w.shown, "the page leads to one that was there already; the listing ends")
		return nil, nil
	case p.MaxPages > 0 && w.list.Pages+1 >= p.MaxPages:
		w.warn(WarnMaxPages, w.shown, fmt.Sprintf("the listing goes on after %d pages, which is its limit; it ends here", p.MaxPages))
		return nil, nil
	}
	if len(w.seen) < maxSeen {
		w.seen[place] = true
	}
	return next, nil
}

// maxSeen is how many places of pages a poll remembers.
const maxSeen = 100_000

// finish ends the listing.
func (w *walk) finish(ctx context.Context) error {
	if w.list.Then != nil {
		w.user = nilIfNull(w.list.Then)
	}
	if w.list.Pages == 0 && w.list.Items == 0 && len(w.page.Messages)+len(w.arrivals) > 0 {
		w.mark.Known = nil // what the last listing may have had of this one has been met
	}
	return w.commit(ctx, false)
}

// commit commits the open page, with the place where the listing goes on if it does.
func (w *walk) commit(ctx context.Context, goesOn bool) error {
	if err := w.flush(ctx); err != nil {
		return err
	}
	w.mark.Listing = nil
	if goesOn {
		w.list.From = nil
		if string(w.user) != string(w.base) {
			if w.list.From = w.base; w.base == nil {
				w.list.From = []byte("null")
			}
		}
		list := w.list
		w.mark.Listing = &list
	}
	state, err := joinState(w.user, &w.mark)
	if err != nil {
		return err
	}
	w.page.Cursor, w.page.Moved = nil, string(state) != string(w.committed)
	if w.page.Moved {
		w.page.Cursor = state
	}
	if len(w.page.Messages) == 0 && !w.page.Moved {
		return nil
	}
	if err := w.poll.Commit(ctx, &w.page); err != nil {
		return err
	}
	w.committed = state
	w.drop()
	return nil
}

// moveCursor looks at the cursor at the end of an answer.
func (w *walk) moveCursor() error {
	if len(w.config.Cursor) == 0 {
		return nil
	}
	var err error
	if w.env.State, err = w.state(w.user); err != nil {
		return err
	}
	old, begun := w.user, false
	if isEmptyState(old) {
		old = w.config.Initial
	}
	if w.config.newestFirst() && w.list.Then != nil {
		old, begun = nilIfNull(w.list.Then), true
	}
	next := []byte{'{'}
	for i := range w.config.Cursor {
		f, u := &w.config.Cursor[i], w.cursorUses[i]
		if u.items && w.env.Page.Count == 0 || begun && !u.last {
			if kept := memberOf(old, f.Name); kept != nil {
				next = appendMember(next, f.Name, kept)
				continue
			}
			if u.items && w.env.Page.Count == 0 {
				continue
			}
		}
		value, err := f.Value.AppendJSON(nil, &w.env)
		if err != nil {
			return err
		}
		if value = compact(value); string(value) == "null" {
			if value = memberOf(old, f.Name); value == nil {
				continue
			}
		}
		next = appendMember(next, f.Name, value)
	}
	next = append(next, '}')
	if err := checkUserState(next); err != nil {
		return err
	}
	if isEmptyState(w.user) && w.config.Initial != nil && string(next) == string(compact(w.config.Initial)) {
		next = w.user // it has not moved
	}
	if w.config.newestFirst() {
		if w.list.Then = next; next == nil {
			w.list.Then = []byte("null")
		}
		return nil
	}
	w.user = next
	return nil
}

// warn tells of what is no error.
func (w *walk) warn(code, shownURL, text string) {
	if w.config.Events.Warned != nil {
		w.config.Events.Warned(PollWarning{Config: w.poll.Config.Key, Code: code, URL: w.secrets.hide(shownURL), Text: text})
	}
}

// retry tells whether to ask again after a failure, and when.
func (w *walk) retry(err error, attempts int) (again bool, wait time.Duration) {
	r := w.config.Retry
	if r == nil || attempts >= r.Times {
		return false, 0
	}
	var (
		client *Error
		failed *PollError
	)
	switch {
	case errors.As(err, &client):
		switch client.Code {
		case CodeTimeout, CodeConnect, CodeDNS, CodeProtocol:
		case CodeBreakerOpen:
			wait = client.Wait
		default:
			return false, 0
		}
	case errors.As(err, &failed) && failed.code == CodeStatus:
		switch failed.Status {
		case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests, http.StatusInternalServerError,
			http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		default:
			return false, 0
		}
	default:
		return false, 0
	}
	pause := min(r.Min<<min(attempts, 20), r.Max)
	if pause <= 0 {
		pause = r.Max
	}
	return true, max(wait, pause/2+rand.N(pause/2+1)) //nolint:gosec // jitter is no secret
}

// pause waits before a request is sent again.
func (w *walk) pause(ctx context.Context, d time.Duration, why error) error {
	reason := why.Error()
	var failed *PollError
	if errors.As(why, &failed) {
		reason = strings.TrimPrefix(failed.code, "http.")
		if failed.Status != 0 {
			reason = fmt.Sprintf("status %d", failed.Status)
		}
	}
	if w.config.Events.Waiting != nil {
		w.config.Events.Waiting(PollWait{Config: w.poll.Config.Key, URL: w.shown, Why: reason, For: d})
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
