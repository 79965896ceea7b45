package decode

import (
	"bytes"
	"errors"
	"io"

	"github.com/flechtwerk/flechtwerk/engine/wording"
)

// window is the part of a body that is looked at. It begins at the first byte that is not used up.
//
//  1. buf[start:end] has been read and not used up; offsets are counted from start, so that filling moves nothing under a
//     caller that keeps offsets. Slices of it are valid until the next call of fill.
//  2. It grows only where an item does not fit, up to limit.
type window struct {
	in         io.Reader
	buf        []byte
	start, end int
	base       int64 // of buf[start] in the body
	limit      int64
	err        error // what in answered last
	begun      bool
}

const windowSize = 64 << 10

func newWindow(in io.Reader, limit int64) *window { return &window{in: in, limit: limit} }

// rest is what has been read and not used up.
func (w *window) rest() []byte { return w.buf[w.start:w.end] }

// use drops n bytes.
func (w *window) use(n int) {
	w.start += n
	w.base += int64(n)
}

// fill reads more. It answers false when nothing more comes: then err is io.EOF, an error of the reader, or that the item is
// too large. A byte order mark at the beginning of the body is dropped.
func (w *window) fill() bool {
	if w.err != nil {
		return false
	}
	if w.end == len(w.buf) {
		held := w.end - w.start
		if int64(held) > w.limit {
			w.err = w.tooLarge()
			return false
		}
		if held <= len(w.buf)/2 && len(w.buf) > 0 {
			copy(w.buf, w.buf[w.start:])
		} else {
			grown := make([]byte, max(windowSize, 2*len(w.buf)))
			copy(grown, w.buf[w.start:])
			w.buf = grown
		}
		w.start, w.end = 0, held
	}
	if !w.begun {
		w.begun = true
		return w.begin()
	}
	return w.read()
}

func (w *window) read() bool {
	for range 100 {
		n, err := w.in.Read(w.buf[w.end:])
		w.end += n
		if err != nil {
			w.err = err
		}
		if n > 0 {
			return true
		}
		if err != nil {
			return false
		}
	}
	w.err = io.ErrNoProgress
	return false
}

func (w *window) begin() bool {
	const mark = "\uFEFF"
	for w.end < len(mark) && w.read() {
		if !bytes.HasPrefix([]byte(mark), w.buf[:min(w.end, len(mark))]) {
			break
		}
	}
	if bytes.HasPrefix(w.buf[:w.end], []byte(mark)) {
		w.use(len(mark))
	}
	return w.start < w.end || w.err == nil && w.read()
}

// ended tells whether the body came to its end, rather than to an error.
func (w *window) ended() bool { return errors.Is(w.err, io.EOF) }

// cut is the error of an item that the body ends in: an error of the reader, or one that says what is missing.
func (w *window) cut(what string) error {
	if w.err != nil && !w.ended() {
		return w.err
	}
	return &Error{Code: CodeSyntax, Offset: w.base + int64(w.end-w.start), What: what}
}

func (w *window) tooLarge() error {
	return &Error{Code: CodeTooLarge, Offset: w.base, What: "an item of more than " + wording.Size(w.limit), Hint: "the limit of an item allows more"}
}

// byteAt is the byte n behind the start, if there is one.
func (w *window) byteAt(n int) (byte, bool) {
	for w.start+n >= w.end {
		if !w.fill() {
			return 0, false
		}
	}
	return w.buf[w.start+n], true
}

// space uses up white space of JSON.
func (w *window) space() {
	for {
		for w.start < w.end {
			switch w.buf[w.start] {
			case ' ', '\t', '\n', '\r':
				w.use(1)
			default:
				return
			}
		}
		if !w.fill() {
			return
		}
	}
}

// until is the text before the separator and the number of bytes with it. At the end of the body there need be none.
// Nothing at all is io.EOF.
func (w *window) until(separator []byte) (text []byte, n int, err error) {
	from := 0
	for {
		b := w.rest()
		if i := bytes.Index(b[from:], separator); i >= 0 {
			if int64(from+i) > w.limit {
				return nil, 0, w.tooLarge()
			}
			return b[:from+i], from + i + len(separator), nil
		}
		from = max(0, len(b)-len(separator)+1)
		if !w.fill() {
			if !w.ended() {
				return nil, 0, w.err
			}
			if b = w.rest(); len(b) == 0 {
				return nil, 0, io.EOF
			}
			if int64(len(b)) > w.limit {
				return nil, 0, w.tooLarge()
			}
			return b, len(b), nil
		}
	}
}
