package http

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/flechtwerk/flechtwerk/engine/decode"
	"github.com/flechtwerk/flechtwerk/engine/expr"
	"github.com/flechtwerk/flechtwerk/engine/rawjson"
	"github.com/flechtwerk/flechtwerk/engine/wording"
)

// A file that grows is read from the byte behind the last complete record.
//
//  1. Each request asks for a few bytes more than are new: those before the place where it goes on. They must be the ones that
//     were there (by their hash, which commits with the offset); else the file is another one. So a file that was replaced by
//     a longer one is found out too, and a request for what is not there yet is answered 206 rather than 416.
//  2. A record counts when its separator is there. What is behind the last separator is read again by the next poll.
//  3. Offset, hash and messages commit together, wherever a page is cut: a poll goes on at the very next record.
//  4. A server that knows no ranges sends the whole (200); what was read is passed over, and checked all the same.
//  5. The version (ETag) is asked for only after the end was reached: 304 is then "nothing new".

const (
	defaultTailBytes = 16 << 20
	// checkedBytes is how many bytes before the offset are compared.
	checkedBytes = 64
	// lookBack is how much of a file's end is looked at for where its last record begins.
	lookBack = 64 << 10
)

func (c *PollerConfig) checkTail() error {
	t := c.Tail
	if t == nil {
		return nil
	}
	d := &c.Decode
	switch {
	case c.method() != http.MethodGet:
		return fmt.Errorf("tail: a %s does not read a file", c.method())
	case c.Paginate != nil:
		return errors.New("tail: a file has no pages")
	case c.Records != nil:
		return errors.New("tail: records has no effect; the items are the records of the file")
	case c.KeepBody:
		return errors.New("tail: there is no whole body to be looked at")
	case c.Conditional == ConditionalOn:
		return errors.New("tail: it is conditional by itself")
	case t.MaxBytes < 0:
		return errors.New("tail: max_bytes is below 0")
	case d.Packing != decode.Plain:
		return errors.New("tail: a packed file cannot be read from its middle")
	case d.Format != decode.Lines && d.Format != decode.NDJSON && d.Format != decode.CSV && d.Format != decode.TSV:
		return fmt.Errorf("tail reads lines, ndjson, csv and tsv, and %s has no records that stand for themselves", d.Format)
	case (d.Format == decode.CSV || d.Format == decode.TSV) && d.Table.Columns == nil:
		return errors.New("tail: the columns have no names in the middle of a file; say them with `columns`")
	case len(t.Separator) > 0 && d.Separator != "":
		return errors.New("tail: the separator is said twice")
	}
	return nil
}

func (w *walk) separator() []byte {
	if s := w.config.Tail.Separator; len(s) > 0 {
		return s
	}
	if s := w.config.Decode.Separator; s != "" {
		return []byte(s)
	}
	return []byte("\n")
}

// tailStep reads one chunk of the file.
func (w *walk) tailStep(ctx context.Context) (ended bool, err error) {
	f := file{URL: w.list.Request}
	begun := w.mark.File != nil && w.mark.File.URL == f.URL
	if begun {
		f = *w.mark.File
	} else if w.config.Tail.From == FromEnd {
		return true, w.tailEnd(ctx)
	}
	most := w.config.Tail.MaxBytes
	if most == 0 {
		most = defaultTailBytes
	}
	from := f.Offset - f.Before
	request := w.asking.request
	request.Headers = append(append([]Pair{}, request.Headers...), Pair{"Range", fmt.Sprintf("bytes=%d-%d", from, f.Offset+most-1)})
	if f.ETag != "" && w.config.Conditional != ConditionalOff {
		request.Headers = append(request.Headers, Pair{"If-None-Match", f.ETag})
	}
	response, err := w.send(ctx, request)
	if err != nil {
		return false, err
	}
	defer response.Body.Close()
	body := io.Reader(response.Body)
	more := false // behind the range
	switch response.Status {
	case http.StatusNotModified:
		return true, nil
	case http.StatusPartialContent:
		first, last, size, err := contentRange(response.Headers)
		if err != nil || first != from {
			return false, &PollError{URL: w.shown, code: CodeRange, text: fmt.Sprintf("status 206 is not the range that was asked for, which begins at byte %d", from)}
		}
		more = size < 0 || last+1 < size
		if size >= 0 && size < f.Offset {
			return w.truncated(fmt.Sprintf("the file has %d bytes, and %d were read of it", size, f.Offset))
		}
	case http.StatusRequestedRangeNotSatisfiable:
		if f.Offset == 0 {
			return true, nil // there is nothing in the file yet
		}
		return w.truncated(fmt.Sprintf("the file has no more bytes from %d on, and %d were read of it", from, f.Offset))
	default:
		if skipped, err := io.CopyN(io.Discard, body, from); errors.Is(err, io.EOF) {
			return w.truncated(fmt.Sprintf("the file has %d bytes, and %d were read of it", skipped, f.Offset))
		} else if err != nil {
			return false, err
		}
	}
	if f.Before > 0 {
		before := make([]byte, f.Before)
		if n, err := io.ReadFull(body, before); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return w.truncated(fmt.Sprintf("the file has %d bytes, and %d were read of it", from+int64(n), f.Offset))
		} else if err != nil {
			return false, err
		}
		if hashOf(before) != f.Hash {
			return w.truncated(fmt.Sprintf("what stands before byte %d is not what was read there", f.Offset))
		}
	}
	t, err := w.newTailing(ctx, response, f, most)
	if err != nil {
		return false, err
	}
	if err := t.read(body); err != nil {
		return false, err
	}
	if response.Status != http.StatusPartialContent {
		more = false
	}
	if more && t.file.Offset == f.Offset {
		return false, t.tooLong()
	}
	if !more {
		t.file.ETag = response.Headers.Get("ETag")
	}
	return !more, t.commit()
}

// truncated is what happens with a file that is not any more what it was.
func (w *walk) truncated(how string) (ended bool, err error) {
	text := "the file was truncated or replaced: " + how
	if w.config.Tail.Truncated == TruncatedFails {
		return false, &PollError{URL: w.shown, code: CodeTruncated, text: text + "; `truncated: restart` reads it from its start"}
	}
	w.warn(WarnTruncated, w.shown, text+"; it is read from its start")
	w.mark.File = &file{URL: w.list.Request}
	return false, nil
}

// tailEnd begins behind the last record that is there.
func (w *walk) tailEnd(ctx context.Context) error {
	request := w.asking.request
	request.Headers = append(append([]Pair{}, request.Headers...), Pair{"Range", fmt.Sprintf("bytes=-%d", lookBack)})
	response, err := w.send(ctx, request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	at := int64(0) // of what was read
	switch response.Status {
	case http.StatusNotModified:
		return nil
	case http.StatusRequestedRangeNotSatisfiable:
		w.mark.File = &file{URL: w.list.Request}
		return w.commit(ctx, false)
	case http.StatusPartialContent:
		if at, _, _, err = contentRange(response.Headers); err != nil {
			return &PollError{URL: w.shown, code: CodeRange, text: "status 206 has no Content-Range that can be read"}
		}
	}
	end := &lastBytes{max: lookBack}
	n, err := io.Copy(end, response.Body)
	if err != nil {
		return err
	}
	held, separator := end.held, w.separator()
	if i := bytes.LastIndex(held, separator); i >= 0 {
		held = held[:i+len(separator)]
	} else if at+n == int64(len(held)) {
		held = nil // the file is one record that is not complete
	}
	offset := at + n - int64(len(end.held)-len(held))
	before := held[max(0, len(held)-checkedBytes):]
	w.mark.File = &file{URL: w.list.Request, Offset: offset, Before: int64(len(before)), Hash: hashOf(before)}
	return w.commit(ctx, false)
}

// lastBytes keeps the last bytes of what is written.
type lastBytes struct {
	held []byte
	max  int
}

func (l *lastBytes) Write(p []byte) (int, error) {
	l.held = append(l.held, p...)
	if drop := len(l.held) - l.max; drop > 0 {
		l.held = append(l.held[:0], l.held[drop:]...)
	}
	return len(p), nil
}

func hashOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// contentRange reads a header like bytes 0-99/1234; size is -1 where nobody knows it (RFC 9110, section 14.4).
func contentRange(headers http.Header) (first, last, size int64, err error) {
	text, found := strings.CutPrefix(headers.Get("Content-Range"), "bytes ")
	span, whole, cut := strings.Cut(text, "/")
	from, to, dash := strings.Cut(span, "-")
	if !found || !cut || !dash {
		return 0, 0, 0, errors.New("no Content-Range")
	}
	size = -1
	for _, part := range []struct {
		text string
		to   *int64
	}{{from, &first}, {to, &last}, {whole, &size}} {
		if part.text = strings.TrimSpace(part.text); part.text == "*" && part.to == &size {
			continue
		}
		if *part.to, err = strconv.ParseInt(part.text, 10, 64); err != nil {
			return 0, 0, 0, err
		}
	}
	return first, last, size, nil
}

// tailing is a chunk being read.
type tailing struct {
	reading
	file   file  // as it is with the open page
	most   int64 // bytes of a record
	before []byte
}

func (w *walk) newTailing(ctx context.Context, response *Response, f file, most int64) (*tailing, error) {
	t := &tailing{file: f, most: most, reading: reading{walk: w, ctx: ctx, answered: &answered{}, hash: sha256.New()}}
	w.show(response)
	if w.relay != nil {
		t.response = w.relayed(response)
	}
	var err error
	t.state, err = w.state(w.user)
	return t, err
}

// read takes the complete records of a body.
func (t *tailing) read(body io.Reader) error {
	separator := t.separator()
	var held []byte
	chunk := make([]byte, 64<<10)
	for searched := 0; ; {
		n, err := body.Read(chunk)
		held = append(held, chunk[:n]...)
		used := 0
		for {
			i := bytes.Index(held[max(searched, used):], separator)
			if i < 0 {
				break
			}
			end := max(searched, used) + i
			if int64(end-used) > t.most {
				return t.tooLong()
			}
			if err := t.record(held[used:end], held[used:end+len(separator)]); err != nil {
				return err
			}
			used = end + len(separator)
			searched = used
		}
		held = append(held[:0], held[used:]...)
		searched = max(0, len(held)-len(separator)+1)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case int64(len(held)) > t.most:
			return t.tooLong()
		}
	}
}

func (t *tailing) tooLong() error {
	return &PollError{URL: t.shown, code: decode.CodeTooLarge, text: fmt.Sprintf("the record at byte %d is longer than %s, which is the limit of one request", t.file.Offset, wording.Size(t.most))}
}

// record takes a record; whole has its separator.
func (t *tailing) record(text, whole []byte) error {
	item, err := t.itemOf(text)
	if err != nil {
		return err
	}
	if item != nil {
		if err := t.item(item); err != nil {
			return err
		}
	}
	t.file.Offset += int64(len(whole))
	t.file.ETag = ""
	if len(whole) >= checkedBytes {
		t.before = append(t.before[:0], whole[len(whole)-checkedBytes:]...)
	} else {
		t.before = append(t.before, whole...)
		t.before = append(t.before[:0], t.before[max(0, len(t.before)-checkedBytes):]...)
	}
	if !t.full() {
		return nil
	}
	return t.commit()
}

// itemOf is what a record says, or nil for a blank one.
func (t *tailing) itemOf(text []byte) ([]byte, error) {
	d := &t.config.Decode
	wrong := func(err error) error {
		var e *decode.Error
		if errors.As(err, &e) {
			return &PollError{URL: t.shown, code: e.Code, text: fmt.Sprintf("the record at byte %d: %s", t.file.Offset, e.What), err: err}
		}
		return &PollError{URL: t.shown, code: decode.CodeSyntax, text: fmt.Sprintf("the record at byte %d: %v", t.file.Offset, err), err: err}
	}
	if string(t.separator()) == "\n" {
		text = bytes.TrimSuffix(text, []byte("\r"))
	}
	switch d.Format {
	case decode.Lines:
		line, ok := decode.DecodeText(text, d.Invalid)
		if !ok {
			return nil, wrong(&decode.Error{Code: decode.CodeUTF8, What: "a text that is not UTF-8"})
		}
		return rawjson.AppendString(nil, line), nil
	case decode.NDJSON:
		if text = bytes.TrimSpace(text); len(text) == 0 {
			return nil, nil
		}
		if _, _, err := rawjson.Check(text, nil); err != nil {
			return nil, wrong(err)
		}
		return text, nil
	default:
		item, err := t.decoder.Open(bytes.NewReader(text)).Next()
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		if err != nil {
			return nil, wrong(err)
		}
		return item.JSON, nil
	}
}

// commit commits the records that were read, with the place behind them.
func (t *tailing) commit() error {
	if err := t.flushTo(t.ctx, t.response); err != nil {
		return err
	}
	if len(t.before) > 0 {
		t.file.Before, t.file.Hash = int64(len(t.before)), hashOf(t.before)
	}
	f := t.file
	t.mark.File = &f
	if t.answered.total > 0 {
		if err := t.finishItems(); err != nil {
			return err
		}
		if err := t.moveCursor(); err != nil {
			return err
		}
	}
	if err := t.walk.commit(t.ctx, false); err != nil {
		return err
	}
	*t.answered, t.first, t.latest = answered{}, nil, t.latest[:0]
	t.env.Page = expr.Items{}
	var err error
	t.state, err = t.walk.state(t.user)
	return err
}
