package decode

import (
	"bytes"
	"io"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/unicode"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
)

// ndjson reads a JSON document per line.
type ndjson struct {
	window *window
	depth  int
	line   int
	checks checks
}

func (r *ndjson) next() ([]byte, int, error) {
	w := r.window
	for {
		line, n, err := w.until([]byte("\n"))
		r.line++
		if err != nil {
			return nil, 0, inLine(err, r.line)
		}
		at := w.base
		w.use(n)
		trimmed := bytes.TrimLeft(line, " \t\r")
		at += int64(len(line) - len(trimmed))
		if trimmed = bytes.TrimRight(trimmed, " \t\r"); len(trimmed) == 0 {
			continue
		}
		if err := r.check(trimmed, at); err != nil {
			err.Line = r.line
			return nil, 0, err
		}
		return trimmed, r.line, nil
	}
}

// inLine adds a line to an error.
func inLine(err error, line int) error {
	if wrong, ok := err.(*Error); ok { //nolint:errorlint // ours are never wrapped here
		wrong.Line = line
	}
	return err
}

// check proves that a line which begins at offset is JSON and not too deep.
func (r *ndjson) check(json []byte, offset int64) *Error {
	if err := r.checks.check(json); err != nil {
		return wrongJSON(err, offset)
	}
	if r.depth < rawjson.MaxDepth {
		s := scan{}
		if _, err := s.run(json, r.depth); err != nil {
			err.Offset += offset
			return err
		}
	}
	return nil
}

// lines reads texts between separators.
type lines struct {
	window    *window
	separator []byte
	invalid   InvalidUTF8
	line      int
	json      []byte
}

func (r *lines) next() ([]byte, int, error) {
	w := r.window
	line, n, err := w.until(r.separator)
	r.line++
	if err != nil {
		return nil, 0, inLine(err, r.line)
	}
	if string(r.separator) == "\n" {
		line = bytes.TrimSuffix(line, []byte("\r"))
	}
	json, ok := appendText(r.json[:0], line, r.invalid)
	if !ok {
		return nil, 0, notUTF8(r.line)
	}
	w.use(n)
	r.json = json
	return json, r.line, nil
}

// text reads a body as one string.
type text struct {
	window  *window
	invalid InvalidUTF8
	done    bool
}

func (r *text) next() ([]byte, int, error) {
	if r.done {
		return nil, 0, io.EOF
	}
	r.done = true
	w := r.window
	for w.fill() {
	}
	if !w.ended() {
		return nil, 0, w.err
	}
	if int64(len(w.rest())) > w.limit {
		return nil, 0, w.tooLarge()
	}
	json, ok := appendText(nil, w.rest(), r.invalid)
	if !ok {
		return nil, 0, notUTF8(0)
	}
	return json, 0, nil
}

func notUTF8(line int) *Error {
	return &Error{Code: CodeUTF8, Line: line, Offset: -1, What: "a text that is not UTF-8", Hint: "invalid_utf8 allows it: replace or latin1"}
}

// appendText appends bytes as a JSON string. It answers false for what is not UTF-8 and must be.
func appendText(dst, b []byte, invalid InvalidUTF8) ([]byte, bool) {
	text, ok := DecodeText(b, invalid)
	if !ok {
		return dst, false
	}
	return rawjson.AppendString(dst, text), true
}

// replaced is b with U+FFFD for what is not UTF-8, as the Encoding Standard has it.
func replaced(b []byte) string {
	if decoded, err := unicode.UTF8.NewDecoder().Bytes(b); err == nil {
		return rawjson.View(decoded)
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

func ascii(b []byte) bool {
	for _, c := range b {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func windows1252(b []byte) string {
	decoded := make([]byte, 0, len(b)+len(b)/8+8)
	for _, c := range b {
		decoded = utf8.AppendRune(decoded, charmap.Windows1252.DecodeByte(c))
	}
	return rawjson.View(decoded)
}
