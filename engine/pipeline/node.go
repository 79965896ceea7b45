package pipeline

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// node is one value of a YAML text: what it says, where it stands and how it was written.
type node struct {
	kind         kind
	style        style
	line, column int // of its first character; of a quoted scalar that is the quote
	tag          string
	text         string // of a scalar, decoded
	anchor       bool   // it was written elsewhere and stands here by an alias or a merge key

	block stream.Text // of a literal block: the text and where it begins
	lines int         // on how many lines a flow scalar stands

	entries []entry  // of a mapping, in the order of the file
	items   []*node  // of a list
	head    *node    // the key that a mapping belongs to
	meant   []string // the keys that a mapping does not have but seems to mean by misspelt ones
}

type entry struct{ key, value *node }

type kind uint8

const (
	empty   kind = iota // nothing was written, or only a tag
	null                // null or ~
	scalar              // a text, number or boolean; which of them is for the reader to say
	list                // a sequence
	mapping             // a mapping
)

type style uint8

const (
	bare   style = iota // a scalar without quotes, or a block collection
	single              // a scalar in single quotes
	double              // a scalar in double quotes
	block               // a literal block, after |
	folded              // a folded block, after >
	flow                // a collection in { } or [ ]
)

// find is the value under a key, or nil.
func (n *node) find(key string) *node {
	if n != nil && n.kind == mapping {
		for _, e := range n.entries {
			if e.key.text == key {
				return e.value
			}
		}
	}
	return nil
}

// key is the node of a key, or nil.
func (n *node) key(name string) *node {
	if n != nil && n.kind == mapping {
		for _, e := range n.entries {
			if e.key.text == name {
				return e.key
			}
		}
	}
	return nil
}

// has tells whether a mapping has a key, or seems to mean it by a misspelt one.
func (n *node) has(name string) bool { return n.key(name) != nil || slices.Contains(n.meant, name) }

// what names the kind of a node for a person.
func (n *node) what() string {
	switch n.kind {
	case empty:
		return "nothing"
	case null:
		return "null"
	case list:
		return "a list"
	case mapping:
		return "a mapping"
	default:
		if n.style == bare {
			switch resolve(n.text) {
			case isBool:
				return "a boolean"
			case isInteger, isFloat:
				return "a number"
			default:
			}
		}
		return "a text"
	}
}

// jsonKind is what a scalar without quotes means.
type jsonKind uint8

const (
	isText jsonKind = iota
	isNull
	isBool
	isInteger
	isFloat
	isOdd // a number to some readers of YAML and a text, or another number, to others
)

// resolve tells what a scalar without quotes means, by the core schema of YAML 1.2.
func resolve(text string) jsonKind {
	switch text {
	case "", "~", "null", "Null", "NULL":
		return isNull
	case "true", "True", "TRUE", "false", "False", "FALSE":
		return isBool
	case ".inf", ".Inf", ".INF", "+.inf", "-.inf", "-.Inf", "-.INF", "+.Inf", "+.INF", ".nan", ".NaN", ".NAN":
		return isOdd
	}
	digits := strings.TrimLeft(text, "+-")
	if len(text)-len(digits) > 1 || digits == "" {
		return isText
	}
	if len(digits) > 2 && digits[0] == '0' && strings.ContainsRune("xXoObB", rune(digits[1])) {
		if strings.Trim(digits[2:], "0123456789abcdefABCDEF_") == "" {
			return isOdd
		}
		return isText
	}
	whole := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' })
	if whole < 0 {
		if len(digits) > 1 && digits[0] == '0' {
			return isOdd
		}
		return isInteger
	}
	if strings.Trim(digits, "0123456789_") == "" && digits[0] != '_' && digits[len(digits)-1] != '_' {
		return isOdd
	}
	rest := digits[whole:]
	fraction := 0
	if rest[0] == '.' {
		rest = rest[1:]
		for fraction < len(rest) && rest[fraction] >= '0' && rest[fraction] <= '9' {
			fraction++
		}
		rest = rest[fraction:]
	}
	if whole+fraction == 0 {
		return isText
	}
	if rest != "" {
		if rest[0] != 'e' && rest[0] != 'E' {
			return isText
		}
		rest = rest[1:]
		if rest != "" && (rest[0] == '+' || rest[0] == '-') {
			rest = rest[1:]
		}
		if rest == "" || strings.Trim(rest, "0123456789") != "" {
			return isText
		}
	}
	if whole > 1 && digits[0] == '0' {
		return isOdd
	}
	return isFloat
}

// number is a scalar that resolves to a number, as JSON writes it; its digits stay.
func number(text string) string {
	text = strings.TrimPrefix(text, "+")
	sign := ""
	if strings.HasPrefix(text, "-") {
		sign, text = "-", text[1:]
	}
	if strings.HasPrefix(text, ".") {
		text = "0" + text
	}
	if i := strings.IndexByte(text, '.'); i >= 0 && (i+1 == len(text) || text[i+1] < '0' || text[i+1] > '9') {
		text = text[:i] + text[i+1:]
	}
	return sign + text
}

// characters is the length of s in characters.
func characters(s string) int { return utf8.RuneCountInString(s) }

// quoted is text as a YAML scalar in quotes, in the kind of quotes that needs no escapes where there is one.
func quoted(text string) string {
	if strings.Contains(text, "'") && !strings.ContainsAny(text, `"\`) {
		return `"` + text + `"`
	}
	return "'" + strings.ReplaceAll(text, "'", "''") + "'"
}
