package http

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/flechtwerk/flechtwerk/engine/decode"
	"github.com/flechtwerk/flechtwerk/engine/expr"
	"github.com/flechtwerk/flechtwerk/engine/rawjson"
	"github.com/flechtwerk/flechtwerk/engine/stream"
	"github.com/flechtwerk/flechtwerk/engine/wording"
)

// readMode is how the items of a body are found.
type readMode uint8

const (
	readItems  readMode = iota // the decoder gives them, one by one
	readEither                 // as the decoder gives them, for a document that is a list; else it is one itself
	readWhole                  // each document is held, and its items are looked for in it
)

// plan finds out how bodies are read: an item at a time if nothing that is said needs more.
func (p *Poller) plan() error {
	c := &p.config
	var whole [][]string // what is said of an answer as a whole looks at
	during := [][]string(nil)
	for _, f := range c.Cursor {
		whole = append(whole, f.Value.Reads()...)
		p.cursorUses = append(p.cursorUses, usesOf(f.Value.Reads()))
	}
	if c.Message != nil {
		during = append(during, c.Message.Reads()...)
	}
	if pages := c.Paginate; pages != nil {
		for _, e := range []*expr.Expr{pages.Next, pages.StopWhen} {
			if e != nil {
				whole = append(whole, e.Reads()...)
			}
		}
		if pages.Until != nil {
			during = append(during, pages.Until.Reads()...)
		}
	}
	path := []string(nil)
	if c.Records != nil {
		path = c.Records.Path()
	}
	p.pageItems = slices.ContainsFunc(whole, func(read []string) bool { return read[0] == "page" && (len(read) == 1 || read[1] != "count") })
	p.rest = slices.ContainsFunc(whole, readsBody)
	needs := slices.ContainsFunc(during, readsBody)
	d := c.Decode
	d.List, d.Path = false, nil
	if c.Tail != nil {
		d.Separator = ""
	}
	switch {
	case !d.Format.Lists():
		if c.Records != nil {
			return fmt.Errorf("records has no effect: the items of %s are its own", d.Format)
		}
		if p.rest || needs {
			return fmt.Errorf("body is nil where the answer is %s; page and item hold what it has", d.Format)
		}
		p.mode = readItems
	case needs || c.KeepBody && c.Records != nil && path == nil:
		p.mode = readWhole
	case path != nil && path[0] == "body" && !slices.ContainsFunc(whole, func(read []string) bool { return overlaps(read, path) }):
		p.mode, d.List, d.Path = readItems, true, path[1:]
	case c.Records == nil && d.Format == decode.JSON && d.Packing == decode.Plain && !p.rest:
		p.mode = readEither
	case c.Records == nil && d.Format == decode.Protobuf && d.Delimited:
		p.mode = readItems
	default:
		p.mode = readWhole
	}
	var err error
	p.decoder, err = decode.New(d)
	return err
}

func usesOf(reads [][]string) (u uses) {
	for _, read := range reads {
		if read[0] != "page" {
			continue
		}
		all := len(read) == 1
		u.items = u.items || all || read[1] != "count"
		u.last = u.last || all || read[1] != "first"
	}
	return u
}

func readsBody(read []string) bool { return read[0] == "body" }

// overlaps tells whether one of two paths leads into the other.
func overlaps(a, b []string) bool {
	n := min(len(a), len(b))
	return slices.Equal(a[:n], b[:n])
}

// answered is what was found in an answer.
type answered struct {
	total int64  // items
	known bool   // an item was known already, and the rest of them with it
	hash  string // of all items that were looked at
}

// read reads the items of an answer into the page.
func (w *walk) read(ctx context.Context, response *Response) (*answered, error) {
	reading := &reading{walk: w, ctx: ctx, hash: sha256.New(), answered: &answered{}}
	w.show(response)
	if w.relay != nil {
		reading.response = w.relayed(response)
	}
	var err error
	if reading.state, err = w.state(w.user); err != nil {
		return nil, err
	}
	if reading.skip, reading.want = w.list.Items, w.list.Hash; w.config.newestFirst() && reading.skip > 0 {
		reading.search, reading.skip = true, 0
	}
	if err := reading.body(response); err != nil {
		return nil, err
	}
	if reading.answered.total < reading.skip || reading.search {
		return nil, errOtherBody
	}
	if err := w.flushTo(ctx, reading.response); err != nil {
		return nil, err
	}
	reading.answered.hash = hex.EncodeToString(reading.hash.Sum(nil)[:12])
	return reading.answered, reading.finishItems()
}

// show lets expressions see an answer.
func (w *walk) show(response *Response) {
	w.env.Status, w.env.Body, w.env.Page = response.Status, expr.Doc{}, expr.Items{}
	w.env.Headers = func(yield func(string, []byte) bool) {
		for _, name := range sortedNames(response.Headers) {
			if !yield(strings.ToLower(name), []byte(strings.Join(response.Headers[name], ", "))) {
				return
			}
		}
	}
}

// finishItems lets expressions see the items that were read, together.
func (r *reading) finishItems() (err error) {
	page := &r.env.Page
	page.Count = r.answered.total
	if r.pageItems {
		if page.First, err = expr.NewDoc(nilIfEmpty(r.first)); err == nil {
			page.Last, err = expr.NewDoc(nilIfEmpty(r.latest))
		}
		if err != nil {
			return err
		}
	}
	r.env.Now = r.list.Now
	r.env.State, err = r.walk.state(r.user)
	return err
}

func nilIfEmpty(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}

func sortedNames(headers http.Header) []string {
	names := make([]string, 0, len(headers))
	for name := range headers {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// relayed is an answer as a relay has it.
func (w *walk) relayed(response *Response) *stream.Response {
	r := &stream.Response{Status: response.Status, URL: w.secrets.hide(MaskURL(response.URL)), Elapsed: response.Elapsed.Milliseconds()}
	for _, name := range sortedNames(response.Headers) {
		for _, value := range response.Headers[name] {
			r.Headers = append(r.Headers, stream.Header{Key: name, Value: []byte(value)})
		}
	}
	return r
}

// reading is one answer being read.
type reading struct {
	*walk
	ctx      context.Context
	response *stream.Response // for the relay
	answered *answered
	state    expr.Doc // what the page before left
	hash     hash.Hash

	// Items that are committed already: so many, with this hash; or, with the newest first, up to one that is known.
	skip   int64
	want   string
	search bool

	first, latest []byte // items, if anybody looks at them
}

// errEnough ends the reading of a body whose rest nobody needs.
var errEnough = errors.New("enough")

// body reads the documents of a body.
func (r *reading) body(response *Response) error {
	var body io.Reader = response.Body
	if response.Status == http.StatusNoContent || r.config.method() == http.MethodHead {
		return nil
	}
	if !isSuccess(response.Status) {
		return r.refusal(response)
	}
	if r.config.KeepBody {
		limit := r.config.Decode.Limits.Item
		if limit == 0 {
			limit = decode.DefaultLimits.Item
		}
		text, err := io.ReadAll(io.LimitReader(body, limit+1))
		if err != nil {
			return err
		}
		if int64(len(text)) > limit {
			return &PollError{URL: r.shown, code: decode.CodeTooLarge, text: fmt.Sprintf("the body is larger than %s, which is what an answer may be that a relay looks at as a whole", wording.Size(limit))}
		}
		r.response.Body, body = text, bytes.NewReader(text)
	}
	decoder := r.decoder
	if r.mode == readEither {
		begun := bufio.NewReaderSize(body, 4096)
		body = begun
		if beginsList(begun) {
			config := r.config.Decode
			config.List, config.Path = true, nil
			var err error
			if decoder, err = decode.New(config); err != nil {
				return err
			}
		}
	}
	items := decoder.Open(body)
	var err error
	for err == nil {
		var item decode.Item
		if item, err = items.Next(); err != nil {
			break
		}
		if r.mode == readWhole {
			err = r.document(bytes.Clone(item.JSON))
		} else {
			err = r.item(item.JSON)
		}
		if errors.Is(err, errEnough) && r.rest {
			err = nil // what is said of the page looks at what is still to come
		}
	}
	if err == io.EOF || errors.Is(err, errEnough) { //nolint:errorlint // the decoder's contract
		err = nil
	}
	if err == nil && r.mode == readItems && r.rest {
		r.env.Body, err = expr.NewDoc(bytes.Clone(items.Rest()))
	}
	return err
}

// beginsList tells whether a document is a list by its first character.
func beginsList(body *bufio.Reader) bool {
	for n := 1; n <= body.Size(); n++ {
		begun, err := body.Peek(n)
		if err != nil {
			return false
		}
		switch c := begun[n-1]; c {
		case ' ', '\t', '\n', '\r', 0xEF, 0xBB, 0xBF:
		default:
			return c == '['
		}
	}
	return false
}

// refusal reads an answer that is expected and still no success: it has items only where records finds some.
func (r *reading) refusal(response *Response) error {
	kind, _, err := mime.ParseMediaType(response.Headers.Get("Content-Type"))
	if err != nil || kind != "application/json" && !strings.HasSuffix(kind, "+json") {
		return nil
	}
	decoder, err := decode.New(decode.Config{Limits: r.config.Decode.Limits})
	if err != nil {
		return err
	}
	item, err := decoder.Open(response.Body).Next()
	if err == nil {
		if r.env.Body, err = expr.NewDoc(bytes.Clone(item.JSON)); err == nil && r.config.Records != nil {
			return r.records()
		}
	}
	var wrong *decode.Error
	if errors.As(err, &wrong) {
		return nil
	}
	return err
}

// document reads the items of a document that is held.
func (r *reading) document(text []byte) error {
	var err error
	if r.env.Body, err = expr.NewDoc(text); err != nil {
		return err
	}
	switch {
	case r.config.Records != nil:
		err = r.records()
	case text[0] == '[':
		err = r.elements(text)
	default:
		err = r.item(text)
	}
	if errors.Is(err, errEnough) {
		return errEnough
	}
	return err
}

// records reads the items that are looked for.
func (r *reading) records() error {
	r.env.State, r.env.Now = r.state, r.list.Now
	list, err := r.config.Records.AppendJSON(nil, &r.env)
	if err != nil {
		return err
	}
	list = bytes.TrimSpace(list)
	switch {
	case string(list) == "null":
		return nil
	case list[0] != '[' && r.config.Decode.Format == decode.XML:
		return r.item(list) // an element that comes once is no list in XML
	case list[0] != '[':
		return &PollError{URL: r.shown, code: CodeRecords, text: "records is no list in this answer"}
	}
	return r.elements(list)
}

func (r *reading) elements(list []byte) error {
	for _, span := range rawjson.Elements(list, nil) {
		if err := r.item(list[span.Start:span.End]); err != nil {
			return err
		}
	}
	return nil
}

// item takes the next item of the answer, which is a JSON text.
func (r *reading) item(text []byte) error {
	if r.answered.known {
		return nil
	}
	if r.answered.total%256 == 0 && r.ctx.Err() != nil {
		return context.Cause(r.ctx)
	}
	r.env.Value, r.env.ValueFormat, r.env.Index, r.env.Members = text, expr.JSON, r.answered.total, r.env.Members[:0]
	if text[0] == '{' {
		r.env.Members = rawjson.Members(text, r.env.Members)
	}
	if r.config.newestFirst() {
		r.env.State, r.env.Now = r.baseDoc, r.list.Now
		known, err := r.config.Paginate.Until.Bool(&r.env)
		if err != nil {
			return err
		}
		if known {
			r.answered.known, r.search = true, false
			return errEnough
		}
	}
	r.answered.total++
	r.hash.Write(text)
	r.hash.Write([]byte{'\n'})
	if r.pageItems {
		if r.first == nil {
			r.first = bytes.Clone(text)
		}
		r.latest = append(r.latest[:0], text...)
	}
	if r.answered.total <= r.skip {
		if r.answered.total == r.skip && hex.EncodeToString(r.hash.Sum(nil)[:12]) != r.want {
			return errOtherBody
		}
		return nil
	}
	if r.config.newestFirst() && r.isKnown(text) {
		r.search = false
		return nil
	}
	if r.search {
		return nil
	}
	if err := r.take(text); err != nil {
		return err
	}
	if r.config.Tail != nil || !r.full() {
		return nil
	}
	return r.cut()
}

// full tells that a transaction holds no more.
func (w *walk) full() bool {
	return len(w.page.Messages)+len(w.arrivals) >= w.config.Batch.Records || w.bytes+w.waiting >= w.config.Batch.Bytes
}

// take makes messages of an item.
func (r *reading) take(text []byte) error {
	if r.relay == nil {
		r.env.State = r.state
		return r.maker.make()
	}
	kept := r.arena.Copy(text)
	a := stream.Arrival{Timestamp: r.config.Now().UnixMilli(), Value: kept, Format: stream.JSON, Kind: rawjson.KindOf(kept[0])}
	if a.Kind == rawjson.Object {
		a.Members = rawjson.Members(kept, nil)
	}
	r.arrivals = append(r.arrivals, a)
	if r.waiting += len(kept); len(r.arrivals) < relayItems && r.waiting < relayBytes {
		return nil
	}
	return r.flushTo(r.ctx, r.response)
}

// How much a relay is given at once.
const (
	relayItems = 1000
	relayBytes = 256 << 10
)

// cut commits what there is of a page that is larger than a transaction.
func (r *reading) cut() error {
	if err := r.flushTo(r.ctx, r.response); err != nil {
		return err
	}
	r.list.Items, r.list.Hash = r.answered.total, hex.EncodeToString(r.hash.Sum(nil)[:12])
	if err := r.commit(r.ctx, true); err != nil {
		return err
	}
	var err error
	r.state, err = r.walk.state(r.user)
	return err
}

// flush gives to the relay what waits for it; all of it was, when a page ends.
func (w *walk) flush(ctx context.Context) error { return w.flushTo(ctx, nil) }

func (w *walk) flushTo(ctx context.Context, response *stream.Response) error {
	if len(w.arrivals) == 0 {
		return nil
	}
	before := len(w.page.Messages)
	cursor := w.user
	if isEmptyState(cursor) {
		cursor = nil
	}
	err := w.relay.Run(ctx, &stream.Relaying{
		Config: w.poll.Config, Configs: w.poll.Configs, Arrivals: w.arrivals, Response: response, Cursor: cursor,
		Fail: func(_ int, err error) error { return err }, Arena: &w.arena,
	}, &w.page)
	if err != nil {
		return err
	}
	clear(w.arrivals)
	w.arrivals, w.waiting = w.arrivals[:0], 0
	for _, m := range w.page.Messages[before:] {
		w.bytes += len(m.Key) + len(m.Value)
	}
	if !w.page.Moved {
		return nil
	}
	state := bytes.Clone(w.page.Cursor)
	w.page.Moved, w.page.Cursor = false, nil
	if w.config.newestFirst() {
		return newPollError(CodeState, "the relay yields State in a listing that has the newest first, where it would be lost or too early; say it with `cursor:`", nil)
	}
	if err := checkUserState(state); err != nil {
		return err
	}
	w.user = state
	return nil
}

// knownSize is how many bytes of an item's hash are kept, and maxKnown of how many items.
const (
	knownSize = 6
	maxKnown  = 512
)

// isKnown tells whether an item is one of those that were had last, and remembers it.
func (r *reading) isKnown(text []byte) bool {
	sum := sha256.Sum256(text)
	short := sum[:knownSize]
	known := r.mark.Known
	for i := 0; i < len(known); i += knownSize {
		if bytes.Equal(known[i:i+knownSize], short) {
			return true
		}
	}
	if r.search {
		return false
	}
	if drop := len(known) - (maxKnown-1)*knownSize; drop > 0 {
		known = known[drop:]
	}
	r.mark.Known = append(slices.Clip(slices.Clone(known)), short...)
	return false
}

// compact is JSON as a state has it.
func compact(text []byte) []byte { return rawjson.Compact(nil, text) }

// memberOf is a member of an object, or nil.
func memberOf(object []byte, name string) []byte {
	if isEmptyState(object) {
		return nil
	}
	return rawjson.Find(object, rawjson.Members(object, nil), name)
}
