// Package rawjson reads and writes JSON as bytes, without building values.
//
// A record's value is its bytes until somebody looks at it. This package is the floor that looking stands on: one pass
// that proves a text to be JSON in valid UTF-8 and notes where its top-level members lie (Check), and small helpers that
// decode one scalar or append one to a buffer. The engine checks, expressions and scripts look, and what nobody touched
// is copied as it came, so that numbers keep their digits.
//
// Invariants:
//
//  1. After Check has returned without error every other function may be called on the text, or on the span of any value
//     in it, and need not look for syntax errors again.
//  2. No function keeps or changes the bytes that it was given. Strings that are returned by View alias them.
//
// The grammar is RFC 8259 without a byte order mark. Duplicate member names are kept in Members; Find answers the last, as
// JavaScript does.
package rawjson
