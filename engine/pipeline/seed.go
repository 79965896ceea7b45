package pipeline

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
	"github.com/flechtwerk/flechtwerk/engine/stream"
	"github.com/flechtwerk/flechtwerk/engine/wording"
)

// Seed is what a topic is filled with once.
type Seed struct {
	// File is a .ndjson, .jsonl, .json or .csv file; empty for an inline seed.
	File string
	// Key is the member of each record whose value is the record's key; empty for records without key.
	Key string

	topic *stream.Topic
	open  func(name string) (io.ReadCloser, error)
	rows  []row  // of an inline seed
	from  string // the pipeline file, for errors of an inline seed
}

// NewSeed is a seed for a topic from a file of any of the formats, whose records have their key in the member key. The file is
// opened by Records.
func NewSeed(file, key string, topic *stream.Topic) (*Seed, error) {
	if !slices.Contains(seedKinds, filepath.Ext(file)) {
		return nil, &SeedError{File: file, What: "a " + wording.List(seedKinds, "or") + " file is expected"}
	}
	return &Seed{File: file, Key: key, topic: topic, open: func(name string) (io.ReadCloser, error) { return os.Open(name) }}, nil
}

// SeedRecord is one record of a seed, encoded as its topic wants it.
type SeedRecord struct {
	Key   []byte // nil without Seed.Key
	Value []byte
	Line  int // of the file, or of the pipeline file for an inline seed
}

// SeedError is a record of a seed that cannot be read.
type SeedError struct {
	File string
	Line int // from 1; 0 where the file itself cannot be read
	What string

	column int // of an inline record
}

func (e *SeedError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("read seed %s: %s", e.File, e.What)
	}
	return fmt.Sprintf("read seed %s:%d: %s", e.File, e.Line, e.What)
}

// maxSeedLine is the longest line of a seed file in bytes.
const maxSeedLine = 16 << 20

// Records reads the seed from its beginning; the bytes of a record belong to the caller. An error, a *SeedError, is the last
// thing that it answers.
func (s *Seed) Records() iter.Seq2[SeedRecord, error] {
	return func(yield func(SeedRecord, error) bool) {
		if s.File == "" {
			for _, r := range s.rows {
				out, err := s.encode(r.json)
				if err != nil {
					yield(SeedRecord{}, &SeedError{s.from, r.line, err.Error(), r.column})
					return
				}
				out.Line = r.line
				if !yield(out, nil) {
					return
				}
			}
			return
		}
		file, err := s.open(s.File)
		if err != nil {
			yield(SeedRecord{}, &SeedError{File: s.File, Line: 0, What: reason(err).Error()})
			return
		}
		defer func() { _ = file.Close() }() // it was only read
		in := bufio.NewReaderSize(file, 64<<10)
		if mark, _ := in.Peek(3); string(mark) == "\uFEFF" {
			_, _ = in.Discard(3)
		}
		switch filepath.Ext(s.File) {
		case ".csv":
			s.table(in, yield)
		case ".json":
			s.array(in, yield)
		default:
			s.lines(in, yield)
		}
	}
}

// lines reads one JSON value a line. Empty lines are passed over.
func (s *Seed) lines(in *bufio.Reader, yield func(SeedRecord, error) bool) {
	var long []byte
	for line := 1; ; {
		piece, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) && len(long)+len(piece) <= maxSeedLine {
			long = append(long, piece...)
			continue
		}
		if err != nil && !errors.Is(err, io.EOF) {
			what := err.Error()
			if errors.Is(err, bufio.ErrBufferFull) {
				what = fmt.Sprintf("the line is longer than %d bytes", maxSeedLine)
			}
			yield(SeedRecord{}, &SeedError{File: s.File, Line: line, What: what})
			return
		}
		if len(long) > 0 {
			piece = append(long, piece...)
			long = nil
		}
		if piece = bytes.TrimSpace(piece); len(piece) > 0 && !s.record(s.File, line, piece, yield) {
			return
		}
		if err != nil { // the end of the file
			return
		}
		line++
	}
}

// array reads one JSON array.
func (s *Seed) array(in *bufio.Reader, yield func(SeedRecord, error) bool) {
	text, err := io.ReadAll(in)
	if err != nil {
		yield(SeedRecord{}, &SeedError{File: s.File, Line: 0, What: err.Error()})
		return
	}
	kind, _, err := rawjson.Check(text, nil)
	if err != nil {
		line := 1
		var se *rawjson.SyntaxError
		if errors.As(err, &se) {
			line += bytes.Count(text[:se.Offset], []byte("\n"))
		}
		yield(SeedRecord{}, &SeedError{File: s.File, Line: line, What: err.Error()})
		return
	}
	if kind != rawjson.Array {
		yield(SeedRecord{}, &SeedError{File: s.File, Line: 1, What: "a JSON array of records is expected; name a file with one record a line .ndjson"})
		return
	}
	line, from := 1, uint32(0)
	for _, span := range rawjson.Elements(text, nil) {
		line += bytes.Count(text[from:span.Start], []byte("\n"))
		from = span.Start
		if !s.record(s.File, line, text[span.Start:span.End], yield) {
			return
		}
	}
}

// table reads CSV: a header line, then records whose members are texts.
func (s *Seed) table(in io.Reader, yield func(SeedRecord, error) bool) {
	r := csv.NewReader(in)
	r.ReuseRecord = true
	fail := func(err error) {
		e := &SeedError{File: s.File, Line: 0, What: err.Error()}
		var pe *csv.ParseError
		if errors.As(err, &pe) {
			e.Line, e.What = pe.Line, pe.Err.Error()
			if errors.Is(pe.Err, csv.ErrFieldCount) {
				e.What = fmt.Sprintf("every row has %d cells, as the header line has", r.FieldsPerRecord)
			}
		}
		yield(SeedRecord{}, e)
	}
	head, err := r.Read()
	if errors.Is(err, io.EOF) {
		yield(SeedRecord{}, &SeedError{File: s.File, Line: 1, What: "a header line with the names of the columns is expected"})
		return
	}
	if err != nil {
		fail(err)
		return
	}
	names := make([][]byte, len(head))
	for i, name := range head {
		names[i] = append(rawjson.AppendString(nil, name), ':')
		if slices.Contains(head[:i], name) {
			yield(SeedRecord{}, &SeedError{File: s.File, Line: 1, What: fmt.Sprintf("the column %q is there twice", name)})
			return
		}
	}
	for {
		cells, err := r.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			fail(err)
			return
		}
		line, _ := r.FieldPos(0)
		text := []byte{'{'}
		for i, cell := range cells {
			if i > 0 {
				text = append(text, ',')
			}
			text = rawjson.AppendString(append(text, names[i]...), cell)
		}
		if !s.record(s.File, line, append(text, '}'), yield) {
			return
		}
	}
}

// record encodes one row and yields it; it answers false when there is nothing more to do.
func (s *Seed) record(file string, line int, text []byte, yield func(SeedRecord, error) bool) bool {
	out, err := s.encode(text)
	if err != nil {
		yield(SeedRecord{}, &SeedError{File: file, Line: line, What: err.Error()})
		return false
	}
	out.Line = line
	return yield(out, nil)
}

func (s *Seed) encode(text []byte) (SeedRecord, error) {
	var out SeedRecord
	kind, members, err := rawjson.Check(text, nil)
	if err != nil {
		return out, err
	}
	if s.Key != "" {
		if kind != rawjson.Object {
			return out, fmt.Errorf("the record is no object, so it has no member %q for its key", s.Key)
		}
		raw := rawjson.Find(text, members, s.Key)
		if raw == nil || string(raw) == "null" {
			return out, fmt.Errorf("the record has no %q for its key", s.Key)
		}
		if out.Key, err = seedKey(raw, s.topic.Key); err != nil {
			return out, fmt.Errorf("member %q: %w", s.Key, err)
		}
	}
	if s.topic.Value == stream.JSON {
		out.Value = rawjson.Compact(nil, text)
		return out, nil
	}
	if kind != rawjson.String {
		return out, fmt.Errorf("the values of topic %s are %s, so a record of its seed is a JSON text", s.topic.Name, s.topic.Value)
	}
	out.Value = textBytes(text)
	return out, nil
}

// seedKey encodes a member of a record as its key.
func seedKey(raw []byte, format stream.Format) ([]byte, error) {
	kind := rawjson.KindOf(raw[0])
	switch {
	case format == stream.JSON:
		return rawjson.Canonical(nil, raw), nil
	case kind == rawjson.String:
		return textBytes(raw), nil
	case format == stream.Bytes:
		return nil, errors.New("a key of bytes is taken from a text")
	default:
		return rawjson.Canonical(nil, raw), nil
	}
}

func textBytes(raw []byte) []byte {
	text, _ := rawjson.Text(raw)
	return []byte(text)
}

// seedSample is how many records of a seed are looked at before anything runs.
const seedSample = 1000

var seedKinds = []string{".csv", ".json", ".jsonl", ".ndjson"}

// seed checks the seed of a topic as far as its first records tell.
func (d *draft) seed(t *Topic, spec *SeedSpec, n *node) *Seed {
	s := &Seed{Key: spec.Key.Value, topic: &t.Topic, open: d.Open, rows: spec.Records.Items, from: d.src.file}
	if n.kind != mapping {
		return nil
	}
	hasFile, hasRecords := n.find("file") != nil, n.find("records") != nil
	switch {
	case hasFile == hasRecords:
		d.report(n, "seed.source", "a seed has either `file:` or `records:`", "name a file, or write the records here")
		return nil
	case hasFile && (!spec.File.given() || spec.File.missing), hasRecords && !spec.Records.given(), spec.Key.missing:
		return nil
	case hasFile:
		s.File = d.beside(spec.File.Value)
		if !slices.Contains(seedKinds, filepath.Ext(s.File)) {
			d.report(spec.File.node, "seed.format", "a seed is a "+wording.List(seedKinds, "or")+" file", "rename the file, or convert it")
			return nil
		}
		n = spec.File.node
	default:
		n = spec.Records.node
	}
	seen := 0
	for _, err := range s.Records() {
		if err != nil {
			d.seedError(n, err)
			return nil
		}
		if seen++; seen == seedSample {
			break
		}
	}
	if seen == 0 {
		d.report(n, "seed.empty", "the seed has no record", "")
	}
	return s
}

func (d *draft) seedError(n *node, err error) {
	var se *SeedError
	if !errors.As(err, &se) {
		d.report(n, "seed.record", err.Error(), "")
		return
	}
	switch {
	case se.File == d.src.file:
		d.problem(se.File, se.Line, se.column, "seed.record", se.What, "")
	case se.Line == 0:
		d.report(n, "seed.file", fmt.Sprintf("the seed %s cannot be read: %s", n.text, se.What), "the path is relative to the pipeline file")
	default:
		d.report(n, "seed.record", fmt.Sprintf("line %d of %s: %s", se.Line, n.text, se.What), "")
	}
}
