package pipeline

import (
	"fmt"
	"regexp"
	"strings"
)

// expanded is a scalar after `${…}` has been replaced in it.
type expanded struct {
	text string
	// kind is what a hole that is the whole scalar was written to be: `${N:8|int}`. Otherwise it is isText.
	kind jsonKind
	// env says that something was replaced, missing that a value could not be had: then text still holds `${…}`, and the
	// reason is either known to the user already or is NoEnv.
	env, missing bool
	// values are what was put in place of holes.
	values []string
}

var (
	envName  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	intText  = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)
	numText  = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)
	envTypes = map[string]jsonKind{"int": isInteger, "number": isFloat, "bool": isBool}
)

const dollarHint = "write `$${…}` for a literal `${…}`"

// expand replaces every `${…}` of a scalar. `$${` becomes `${`, and what follows it stays.
//
//	${NAME}  ${NAME:default}  ${file:/path}   each also with |int, |number or |bool before the }
func (d *decoder) expand(n *node) expanded {
	if n.kind != scalar || !strings.Contains(n.text, "${") {
		return expanded{text: n.text}
	}
	var out expanded
	var b strings.Builder
	text := n.text
	for at := 0; at < len(text); {
		i := strings.Index(text[at:], "${")
		if i < 0 {
			b.WriteString(text[at:])
			break
		}
		start := at + i
		if start > 0 && text[start-1] == '$' {
			b.WriteString(text[at : start-1])
			b.WriteString("${")
			at = start + 2
			continue
		}
		b.WriteString(text[at:start])
		length := holeLength(text[start:])
		if length == 0 {
			d.at(n, start, "env.syntax", "`${` without its `}`", dollarHint)
			return expanded{text: text, missing: true}
		}
		value, kind, ok := d.hole(n, start, length)
		out.kind, out.env = kind, true
		if out.missing = out.missing || !ok; ok {
			out.values = append(out.values, value)
		}
		b.WriteString(value)
		at = start + length
	}
	out.text = b.String()
	return out
}

// hole answers what stands for the `${…}` of a length at a byte of a scalar. Where that could not be had it answers false and
// the hole itself.
func (d *decoder) hole(n *node, start, length int) (value string, kind jsonKind, ok bool) {
	whole := n.text[start : start+length]
	value, kind, ok = d.lookup(n, start, whole)
	if kind != isText && length != len(n.text) {
		d.at(n, start, "env.type", fmt.Sprintf("%s is part of a longer text, where its type has no effect", whole), "leave the |type out")
		ok = false
	}
	if !ok {
		return whole, kind, false
	}
	return value, kind, true
}

// holeLength is the length of the `${…}` that text begins with, or 0. Braces inside it nest.
func holeLength(text string) int {
	depth := 0
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return i + 1
			}
		case '\n':
			return 0
		}
	}
	return 0
}

// lookup answers the value of one hole. What is wrong with it is reported, save that nothing was looked up with NoEnv.
func (d *decoder) lookup(n *node, at int, whole string) (value string, kind jsonKind, ok bool) {
	inner := whole[2 : len(whole)-1]
	typeName := ""
	if i := strings.LastIndexByte(inner, '|'); i >= 0 {
		if k, known := envTypes[inner[i+1:]]; known {
			typeName, kind, inner = inner[i+1:], k, inner[:i]
		}
	}
	name, rest, given := strings.Cut(inner, ":")
	switch {
	case name == "file" && given:
		value, ok = d.secret(n, at, whole, rest)
	case !envName.MatchString(name):
		d.at(n, at, "env.syntax", fmt.Sprintf("%s names no environment variable", whole), "write `${NAME}` or `${NAME:default}`; "+dollarHint)
		return "", kind, false
	default:
		if !d.NoEnv {
			value, ok = d.LookupEnv(name)
		}
		if !ok && given {
			value, ok = rest, true
		}
		if !ok && !d.NoEnv {
			d.at(n, at, "env.missing", fmt.Sprintf("the environment variable %s is not set", name),
				fmt.Sprintf("set it, or write a default: `${%s:…}`", name))
		}
	}
	if !ok {
		return "", kind, false
	}
	fits := true
	switch kind {
	case isInteger:
		fits = intText.MatchString(value)
	case isFloat:
		fits = numText.MatchString(value)
	case isBool:
		fits = value == "true" || value == "false"
	default:
	}
	if !fits {
		d.at(n, at, "env.type", fmt.Sprintf("what %s stands for is no %s", whole, typeName), "")
		return "", kind, false
	}
	return value, kind, true
}

// secret reads a mounted file. One line feed at its end is not part of the secret.
func (d *decoder) secret(n *node, at int, whole, path string) (string, bool) {
	if d.NoEnv {
		return "", false
	}
	text, err := d.ReadFile(path)
	if err != nil {
		d.at(n, at, "env.file", fmt.Sprintf("%s cannot be read: %v", whole, reason(err)), "mount the file, or correct its path")
		return "", false
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r"), true
}
