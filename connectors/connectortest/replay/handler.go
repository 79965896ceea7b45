// Package replay is a web server that answers from a folder and by rules: what a recorded or invented API does, and what goes
// wrong with it. It is there for tests and demonstrations.
//
// A request takes its answer from the first rule that matches it and is not used up, else from the file that its path names,
// else it is 404. Files are served with Content-Type, ETag, Last-Modified and Date; conditional requests and ranges are
// answered as they should be (304, 206, 416). A rule changes some of that or all of it:
//
//	{Path: "/feed.json", Status: 503, Times: 3}                            three times 503, then the file
//	{Path: "/feed.json", Status: 429, RetryAfter: replay.Seconds(2), Times: 1}
//	{Path: "/items", Query: map[string]string{"page": "2"}, File: "items-2.json"}
//	{Path: "/log.txt", Grow: &replay.Grow{From: 100, By: 50}}              the file, 50 bytes longer each time
//	{Path: "/big.csv", Fault: replay.Truncate, Times: 1}                   half of the file, then the connection breaks
//
// A folder may say the same in a file of its own, replay.json (see RulesFile).
package replay

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// RulesFile is the file of a folder that holds its rules, as {"rules": [{"path": "/feed.json", "status": 503, "times": 3}]}.
// Its members are those of Rule in lower case with underscores; durations are texts as in Go ("2s"). It is not served.
const RulesFile = "replay.json"

// Config says what a handler serves.
type Config struct {
	Files fs.FS  // may be nil
	Rules []Rule // stand before those of the folder's RulesFile
}

// Handler is the server. It is safe for concurrent use.
type Handler struct {
	files fs.FS

	mu       sync.Mutex
	rules    []Rule
	used     []int // how often, for each rule
	own      map[string]*ownFile
	tags     map[tagKey]string
	versions int // of own files, counted up
	requests []Request
	arrived  chan struct{} // closed at the next request
}

// ownFile is a file that was put into the handler. Its content is only ever appended to or replaced.
type ownFile struct {
	content  []byte
	modified time.Time
	version  int
}

// Request is a request that arrived, in the order of arrival.
type Request struct {
	Method string
	URL    string // path and query
	Header http.Header
	Body   []byte // its first MiB
	Rule   int    // the rule that answered, from 0; -1 for none
}

func (r Request) String() string { return r.Method + " " + r.URL }

const maxBody = 1 << 20

// New makes a handler. It fails where a rule makes no sense.
func New(config Config) (*Handler, error) {
	h := &Handler{
		files: config.Files, own: map[string]*ownFile{}, tags: map[tagKey]string{},
		arrived: make(chan struct{}),
	}
	rules := slices.Clone(config.Rules)
	if config.Files != nil {
		more, err := readRules(config.Files)
		if err != nil {
			return nil, err
		}
		rules = append(rules, more...)
	}
	if err := h.Add(rules...); err != nil {
		return nil, err
	}
	return h, nil
}

// Add puts rules after those that are there.
func (h *Handler) Add(rules ...Rule) error {
	for i, r := range rules {
		if err := r.check(); err != nil {
			return fmt.Errorf("replay: rule %d: %w", i+1, err)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rules = append(h.rules, rules...)
	h.used = append(h.used, make([]int, len(rules))...)
	return nil
}

// Put makes or replaces a file, which hides one of the folder. The name is a path as in a URL, without the leading slash.
func (h *Handler) Put(name string, content []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.put(name, slices.Clone(content))
}

// Append makes a file that Put has made longer, or makes it.
func (h *Handler) Append(name string, more []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var old []byte
	if own := h.own[name]; own != nil {
		old = own.content
	}
	h.put(name, slices.Concat(old, more))
}

func (h *Handler) put(name string, content []byte) {
	h.versions++
	h.own[name] = &ownFile{content: content, modified: time.Now(), version: h.versions}
}

// Requests are those that have arrived so far.
func (h *Handler) Requests() []Request {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.requests)
}

// Await waits until n requests have arrived.
func (h *Handler) Await(ctx context.Context, n int) error {
	for {
		h.mu.Lock()
		have, arrived := len(h.requests), h.arrived
		h.mu.Unlock()
		if have >= n {
			return nil
		}
		select {
		case <-arrived:
		case <-ctx.Done():
			return fmt.Errorf("replay: %d requests have arrived while waiting for %d: %w", have, n, context.Cause(ctx))
		}
	}
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		return // the client is gone
	}
	rule, use := h.arrive(r, body)
	if rule == nil {
		rule = &Rule{}
	}
	if !pause(r.Context(), time.Duration(rule.Delay)) {
		return
	}
	if h.misbehave(w, r, rule) {
		return
	}
	found, err := h.find(r, rule, use)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	out := h.outgoing(w, r, rule)
	rule.writeHeaders(out.Header())
	switch {
	case found == nil:
		status := rule.Status
		if status == 0 {
			status = http.StatusNotFound
		}
		out.WriteHeader(status)
	case rule.Status != 0 && rule.Status != http.StatusOK || rule.Encoding != "":
		h.serveWhole(out, r, rule, found)
	default:
		h.serveFile(out, r, rule, found)
	}
}

// arrive logs a request and finds its rule. use is how often the rule was used before.
func (h *Handler) arrive(r *http.Request, body []byte) (rule *Rule, use int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	entry := Request{Method: r.Method, URL: r.URL.RequestURI(), Header: r.Header.Clone(), Body: body, Rule: -1}
	for i := range h.rules {
		if c := &h.rules[i]; (c.Times == 0 || h.used[i] < c.Times) && c.matches(r) {
			rule, use, entry.Rule = c, h.used[i], i
			h.used[i]++
			break
		}
	}
	h.requests = append(h.requests, entry)
	close(h.arrived)
	h.arrived = make(chan struct{})
	return rule, use
}

// found is what a request is answered with.
type found struct {
	name     string
	content  io.ReadSeeker
	size     int64
	modified time.Time
	version  int // of an own file
	io.Closer
}

// find is the body of the answer: the rule's, else the file's; nil for none.
func (h *Handler) find(r *http.Request, rule *Rule, use int) (*found, error) {
	name := rule.File
	switch {
	case rule.JSON != nil:
		return text("answer.json", rule.JSON), nil
	case rule.Text != "":
		return text("answer.txt", []byte(rule.Text)), nil
	case name == "" && rule.Status != 0 && rule.Status != http.StatusOK:
		return nil, nil
	case name == "":
		name = strings.TrimPrefix(path.Clean("/"+r.URL.Path), "/")
	}
	f, err := h.open(name)
	if err != nil || f == nil {
		return f, err
	}
	if rule.Grow != nil {
		at, ok := f.content.(io.ReaderAt)
		if !ok {
			return nil, fmt.Errorf("replay: %s cannot be read in part", name)
		}
		f.size = min(f.size, rule.Grow.From+rule.Grow.By*int64(use))
		f.content = io.NewSectionReader(at, 0, f.size)
	}
	return f, nil
}

func text(name string, content []byte) *found {
	return &found{name: name, content: bytes.NewReader(content), size: int64(len(content)), Closer: io.NopCloser(nil)}
}

// open finds a file; nil without an error where a folder has none of this name.
func (h *Handler) open(name string) (*found, error) {
	h.mu.Lock()
	own := h.own[name]
	h.mu.Unlock()
	if own != nil {
		f := text(name, own.content)
		f.modified, f.version = own.modified, own.version
		return f, nil
	}
	if h.files == nil || name == RulesFile || !fs.ValidPath(name) {
		return nil, nil
	}
	file, err := h.files.Open(name)
	if err != nil {
		return nil, nil //nolint:nilerr // it is a 404
	}
	info, err := file.Stat()
	if err != nil || info.IsDir() {
		return nil, file.Close()
	}
	f := &found{name: name, size: info.Size(), modified: info.ModTime(), Closer: file}
	if seeker, ok := file.(io.ReadSeeker); ok {
		f.content = seeker
		return f, nil
	}
	content, err := io.ReadAll(file)
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	f.content, f.size = bytes.NewReader(content), int64(len(content))
	return f, nil
}

// pause waits, and answers false if the client is gone before.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
