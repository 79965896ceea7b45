package decode

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
)

// The codes of an Error.
const (
	CodeSyntax   = "decode.syntax"    // the bytes are not of the format, or end too early
	CodeUTF8     = "decode.utf8"      // a text is not UTF-8
	CodeTooLarge = "decode.too_large" // an item, or what is unpacked, is over its limit
	CodeDepth    = "decode.depth"     // an item nests deeper than the limit
	CodeColumns  = "decode.columns"   // the first row does not name the columns, or a row does not fit them
	CodeList     = "decode.list"      // what stands where the list of items should be is no list
	CodeMember   = "decode.member"    // a zip has no such member
)

// Error is what is wrong with a body. It never holds anything of the body but the name of a member of a zip.
type Error struct {
	Code string
	// Member is the member of the zip, if the body is one.
	Member string
	// Line is from 1, in formats of lines; 0 elsewhere. A row that spans several lines has the first one's.
	Line int
	// Offset is from 0, in the unpacked body; -1 where a line or nothing says it better.
	Offset int64
	What   string
	// Hint says what to do; it may be empty.
	Hint string
}

func (e *Error) Error() string {
	var b strings.Builder
	sep := ""
	if e.Member != "" {
		b.WriteString("member " + strconv.Quote(e.Member))
		sep = ", "
	}
	if e.Line > 0 {
		fmt.Fprintf(&b, "%sline %d", sep, e.Line)
		sep = ", "
	}
	if e.Offset >= 0 {
		fmt.Fprintf(&b, "%sbyte %d", sep, e.Offset)
		sep = ", "
	}
	if sep != "" {
		b.WriteString(": ")
	}
	b.WriteString(e.What)
	if e.Hint != "" {
		b.WriteString("; " + e.Hint)
	}
	return b.String()
}

// wrongJSON is what rawjson says of a text that begins at offset.
func wrongJSON(err error, offset int64) *Error {
	e := &Error{Code: CodeSyntax, Offset: -1, What: err.Error()}
	var syntax *rawjson.SyntaxError
	if errors.As(err, &syntax) {
		e.What, e.Offset = syntax.What, offset+int64(syntax.Offset)
		switch syntax.What {
		case "invalid UTF-8":
			e.Code = CodeUTF8
		case "nested too deep":
			e.Code = CodeDepth
		}
	}
	return e
}
