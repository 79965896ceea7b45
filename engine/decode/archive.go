package decode

import (
	"archive/zip"
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"path"
	"strconv"
	"strings"

	"github.com/flechtwerk/flechtwerk/engine/wording"
)

// gunzip undoes gzip, up to a limit. It opens at the first Read, which reads already.
type gunzip struct {
	in     *source
	buffer *bufio.Reader
	opened *gzip.Reader
	left   budget
}

func newGunzip(in io.Reader, limit int64) *gunzip {
	from := &source{in: in}
	return &gunzip{in: from, buffer: bufio.NewReader(from), left: budget{limit, limit}}
}

func (g *gunzip) Read(p []byte) (int, error) {
	if g.opened == nil {
		r, err := gzip.NewReader(g.buffer)
		if err != nil {
			return 0, g.in.explain(err, "gzip")
		}
		g.opened = r
	}
	n, err := g.opened.Read(p)
	if err := g.left.spend(n); err != nil {
		return 0, err
	}
	return n, g.in.explain(err, "gzip")
}

// archive reads members of a zip, one after another.
type archive struct {
	body   io.Reader
	config *Config
	opened *zip.Reader
	at     int // the next member
	picked int
	left   budget
}

// next opens the next picked member. Its reader is at its end before the one after it is opened.
func (a *archive) next() (io.Reader, string, error) {
	if a.opened == nil {
		if err := a.open(); err != nil {
			return nil, "", err
		}
	}
	for a.at < len(a.opened.File) {
		f := a.opened.File[a.at]
		a.at++
		if !picks(a.config.Members, f.Name) {
			continue
		}
		a.picked++
		name := strings.ToValidUTF8(f.Name, "\uFFFD")
		m, err := openMember(f, &a.left)
		if err != nil {
			var wrong *Error
			if errors.As(err, &wrong) {
				wrong.Member = name
			}
			return nil, "", err
		}
		return m, name, nil
	}
	if a.picked == 0 && a.config.Members != "" {
		return nil, "", &Error{Code: CodeMember, Offset: -1, What: "no member of the zip is picked by the pattern " + strconv.Quote(a.config.Members),
			Hint: "* stops at a slash"}
	}
	return nil, "", io.EOF
}

func (a *archive) open() error {
	limit := a.config.Limits.Packed
	packed, err := io.ReadAll(io.LimitReader(a.body, limit+1))
	if err != nil {
		return err
	}
	if int64(len(packed)) > limit {
		return &Error{Code: CodeTooLarge, Offset: -1, What: "a zip of more than " + wording.Size(limit), Hint: "the limit of a packed body allows more"}
	}
	a.left = budget{a.config.Limits.Unpacked, a.config.Limits.Unpacked}
	a.opened, err = openZip(packed)
	return err
}

func openZip(packed []byte) (*zip.Reader, error) {
	r, err := zip.NewReader(bytes.NewReader(packed), int64(len(packed)))
	if err != nil {
		return nil, damaged(err, "zip")
	}
	return r, nil
}

// Entry is a member of a zip.
type Entry struct {
	Name string
	// Size is what the archive says of it, unpacked; it may be wrong.
	Size int64
	file *zip.File
}

// Unzip lists the members of a zip, without folders, in the order of the archive. The entries keep packed.
func Unzip(packed []byte) ([]Entry, error) {
	r, err := openZip(packed)
	if err != nil {
		return nil, err
	}
	var entries []Entry
	for _, f := range r.File {
		if picks("", f.Name) {
			entries = append(entries, Entry{strings.ToValidUTF8(f.Name, "\uFFFD"), int64(min(f.UncompressedSize64, 1<<53)), f})
		}
	}
	return entries, nil
}

// Unpack unpacks the member, up to limit bytes. It may be called any number of times.
func (e *Entry) Unpack(limit int64) ([]byte, error) {
	m, err := openMember(e.file, &budget{limit, limit})
	if err != nil {
		return nil, err
	}
	return io.ReadAll(m)
}

// picks tells whether a pattern picks the member called name.
func picks(pattern, name string) bool {
	if strings.HasSuffix(name, "/") {
		return false
	}
	if pattern == "" || pattern == name {
		return true
	}
	if !strings.Contains(pattern, "/") {
		name = path.Base(name)
	}
	ok, err := path.Match(pattern, name)
	return ok && err == nil
}

// member is an unpacked member of a zip.
type member struct {
	in   io.Reader
	left *budget
}

func openMember(f *zip.File, left *budget) (*member, error) {
	const encrypted = 1
	if f.Flags&encrypted != 0 {
		return nil, &Error{Code: CodeSyntax, Offset: -1, What: "the member is encrypted", Hint: "encrypted members cannot be read"}
	}
	in, err := f.Open()
	if err != nil {
		return nil, damaged(err, "zip")
	}
	return &member{in, left}, nil
}

func (m *member) Read(p []byte) (int, error) {
	n, err := m.in.Read(p)
	if err := m.left.spend(n); err != nil {
		return 0, err
	}
	return n, damaged(err, "zip")
}

// budget is how much more may be unpacked.
type budget struct{ left, limit int64 }

func (b *budget) spend(n int) error {
	if b.left -= int64(n); b.left >= 0 {
		return nil
	}
	return &Error{Code: CodeTooLarge, Offset: -1, What: "more than " + wording.Size(b.limit) + " come out when the body is unpacked",
		Hint: "the limit of what is unpacked allows more"}
}

// source remembers the error of a reader, so that it is not mistaken for one of what the reader gave.
type source struct {
	in  io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.in.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// explain makes an Error of what a decompressor says, unless its source failed.
func (s *source) explain(err error, format string) error {
	if err != nil && s.err != nil {
		return s.err
	}
	return damaged(err, format)
}

// damaged makes an Error of what a decompressor says of its data.
func damaged(err error, format string) error {
	what := "the " + format + " data are damaged"
	switch {
	case err == nil, err == io.EOF: //nolint:errorlint // io.Reader's contract
		return err
	case errors.Is(err, io.ErrUnexpectedEOF):
		what = "the " + format + " data end too early"
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, zip.ErrFormat):
		what = "the body is no " + format
	case errors.Is(err, zip.ErrAlgorithm):
		return &Error{Code: CodeSyntax, Offset: -1, What: "the member is packed in a way that is not known here", Hint: "stored and deflated members can be read"}
	}
	return &Error{Code: CodeSyntax, Offset: -1, What: what}
}
