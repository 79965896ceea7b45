package decode

import (
	"errors"
	"fmt"
	"io"
	"path"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
)

// Format is what a body, or a member of a zip, is written in.
type Format uint8

// The formats.
const (
	JSON     Format = iota // one document
	NDJSON                 // a document on each line; blank lines are passed over
	CSV                    // rows of fields; an item is an object by the columns
	TSV                    // CSV with tabs and without quotes
	XML                    // one document, as xml.go says how
	Lines                  // an item is a line, as a string
	Text                   // one item: the whole body, as a string
	Protobuf               // one message, or a stream of them
)

var formatNames = [...]string{"json", "ndjson", "csv", "tsv", "xml", "lines", "text", "protobuf"}

func (f Format) String() string { return formatNames[f] }

// Lists tells whether a body of the format is one document, in which Config.Path can pick a list of items.
func (f Format) Lists() bool { return f == JSON || f == XML || f == Protobuf }

// Packing is what a body is wrapped in.
type Packing uint8

// The packings.
const (
	Plain Packing = iota
	Gzip          // any number of members, one after another
	Zip           // each picked member is a body of its own, in the order of the archive
)

// InvalidUTF8 says what is done with a text that is not UTF-8, in CSV, TSV, Lines and Text.
type InvalidUTF8 uint8

// What is done with a text that is not UTF-8.
const (
	InvalidError   InvalidUTF8 = iota
	InvalidReplace             // each wrong byte becomes U+FFFD
	InvalidLatin1              // not UTF-8 at all: every byte is read as windows-1252
)

// Config says how a body is read. The zero value is one JSON document.
type Config struct {
	Format  Format
	Packing Packing
	// Members picks members of a zip by name or by a pattern of path.Match, in which * stops at a slash; a pattern without a
	// slash looks at the last part of the name only. Empty is all of them. Folders are passed over.
	Members string
	// List says that the items are the elements of the list at Path, rather than the whole document (formats that Lists). An
	// empty Path is the document itself. In XML they are the elements at that path, the root's name first; in Protobuf fields
	// have the names that they have in JSON.
	List bool
	Path []string

	Table     Table       // of CSV and TSV
	Invalid   InvalidUTF8 // of CSV, TSV, Lines, Text and Protobuf
	Separator string      // of Lines; "\n" by default, then a carriage return before it is dropped
	Tree      Tree        // of XML
	// Message is what a body of Protobuf is.
	Message *Message
	// Delimited says that a body of Protobuf is any number of messages, each behind its length as a varint.
	Delimited bool
	// Defaults says that fields of Protobuf that have no presence (in proto3 those that are not optional) are written with
	// their defaults where they are not there.
	Defaults bool

	Limits Limits
}

// Limits are how much of a body is held, in bytes. What is 0 stands for the default.
type Limits struct {
	// Item is the largest item, in the body and as JSON, and the largest rest of a document (64 MiB).
	Item int64
	// Unpacked is the most that comes out of a gzip, or of all picked members of a zip (1 GiB).
	Unpacked int64
	// Packed is the largest zip (256 MiB).
	Packed int64
	// Depth is how deep an item may nest (1000, which is also the most).
	Depth int
}

// DefaultLimits are those of a Config that does not say.
var DefaultLimits = Limits{Item: 64 << 20, Unpacked: 1 << 30, Packed: 256 << 20, Depth: rawjson.MaxDepth}

// Decoder reads bodies of one kind. It keeps nothing of them and may be used by many goroutines.
type Decoder struct {
	config Config
	table  *columns // of CSV and TSV with given columns
}

// New checks a Config. Its errors are for whoever wrote the config.
func New(c Config) (*Decoder, error) {
	l := &c.Limits
	for _, limit := range []struct {
		value     *int64
		byDefault int64
		most      int64
	}{
		{&l.Item, DefaultLimits.Item, 1 << 30}, {&l.Unpacked, DefaultLimits.Unpacked, 1 << 50}, {&l.Packed, DefaultLimits.Packed, 1 << 30},
	} {
		if *limit.value == 0 {
			*limit.value = limit.byDefault
		}
		if *limit.value < 0 || *limit.value > limit.most {
			return nil, fmt.Errorf("a limit of %d bytes is outside of 1 to %d", *limit.value, limit.most)
		}
	}
	if l.Depth == 0 {
		l.Depth = DefaultLimits.Depth
	}
	if l.Depth < 1 || l.Depth > rawjson.MaxDepth {
		return nil, fmt.Errorf("a depth of %d is outside of 1 to %d", l.Depth, rawjson.MaxDepth)
	}
	if c.List && !c.Format.Lists() {
		return nil, fmt.Errorf("a path picks a list in a document, and %s has none: its items are its lines or rows", c.Format)
	}
	if c.Members != "" {
		if c.Packing != Zip {
			return nil, errors.New("members are picked in a zip only")
		}
		if _, err := path.Match(c.Members, ""); err != nil {
			return nil, errors.New("the pattern of members is not closed")
		}
	}
	d := &Decoder{config: c}
	switch c.Format {
	case CSV, TSV:
		if err := d.config.Table.complete(c.Format); err != nil {
			return nil, err
		}
		if c.Table.Columns != nil {
			d.table = newColumns(c.Table.Columns)
		}
	case Lines:
		if c.Separator == "" {
			d.config.Separator = "\n"
		}
	case Protobuf:
		if err := c.checkMessage(); err != nil {
			return nil, err
		}
	case XML:
		if c.List && len(c.Path) == 0 {
			return nil, errors.New("a path in XML begins with the name of the root, such as feed.entry")
		}
	default:
	}
	return d, nil
}

// Item is one JSON text of a body.
type Item struct {
	// JSON is valid until the next call of Next.
	JSON []byte
	// Member is the member of the zip that it comes from.
	Member string
	// Line is where it begins, from 1, in formats of lines; 0 elsewhere.
	Line int
}

// Items reads one body. It is used by one goroutine at a time. It holds nothing that must be closed; the body is the
// caller's to close.
type Items struct {
	decoder *Decoder
	format  reader
	archive *archive // of a zip
	member  string
	err     error
	rest    []byte
	found   bool // there was a list at the path; a null is none
}

// reader reads one document. next answers io.EOF at its end.
type reader interface {
	next() (json []byte, line int, err error)
}

// Open begins to read a body. Nothing is read before the first Next.
func (d *Decoder) Open(body io.Reader) *Items {
	x := &Items{decoder: d}
	switch d.config.Packing {
	case Gzip:
		x.format = d.document(x, newGunzip(body, d.config.Limits.Unpacked))
	case Zip:
		x.archive = &archive{body: body, config: &d.config}
	default:
		x.format = d.document(x, body)
	}
	return x
}

func (d *Decoder) document(x *Items, body io.Reader) reader {
	c := &d.config
	w := newWindow(body, c.Limits.Item)
	switch c.Format {
	case XML:
		return newTree(x, body, c)
	case NDJSON:
		return &ndjson{window: w, depth: c.Limits.Depth}
	case CSV, TSV:
		return newTable(w, c, d.table)
	case Lines:
		return &lines{window: w, separator: []byte(c.Separator), invalid: c.Invalid}
	case Text:
		return &text{window: w, invalid: c.Invalid}
	case Protobuf:
		return newMessages(x, w, c)
	default:
		return newJSON(x, w, c)
	}
}

// Next gives the next item, or io.EOF. After an error it gives that error again. An error is an *Error, or one of the reader
// of the body.
func (x *Items) Next() (Item, error) {
	for x.err == nil {
		if x.format == nil {
			body, name, err := x.archive.next()
			if err != nil {
				x.err = err
				break
			}
			x.member, x.rest, x.found = name, nil, false
			x.format = x.decoder.document(x, body)
		}
		json, line, err := x.format.next()
		if err == nil {
			return Item{json, x.member, line}, nil
		}
		if x.archive != nil && errors.Is(err, io.EOF) {
			x.format = nil
			continue
		}
		x.err = x.at(err)
	}
	return Item{}, x.err
}

// at adds the member of the zip to an error.
func (x *Items) at(err error) error {
	var wrong *Error
	if errors.As(err, &wrong) && x.member != "" {
		wrong.Member = x.member
	}
	return err
}

// Rest is the document around the list of items, as JSON, where the list itself is empty: of {"items":[1,2],"next":"b"} it is
// {"items":[],"next":"b"}. It is there after io.EOF, of the last member where the body is a zip, and nil where the config
// picks no list.
func (x *Items) Rest() []byte { return x.rest }
