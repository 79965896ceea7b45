package pipeline

import (
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"strings"

	"github.com/flechtwerk/flechtwerk/engine/wording"
)

// decoder lays the tree of one file into a Spec.
type decoder struct {
	*loader
	src *source
}

// decodable is a type of the Spec that reads itself from a node. what is how a person calls the place, such as
// `transformers.alerts.filter`. It answers false when nothing usable was found, which it has reported.
type decodable interface {
	decode(d *decoder, n *node, what string) bool
}

// into lays n into the value that target points to.
func (d *decoder) into(n *node, target reflect.Value, what string) bool {
	if t, ok := target.Interface().(decodable); ok {
		return t.decode(d, n, what)
	}
	target = target.Elem()
	if target.Kind() == reflect.Pointer {
		fresh := reflect.New(target.Type().Elem())
		ok := d.into(n, fresh, what)
		target.Set(fresh)
		return ok
	}
	return d.structure(n, target, what)
}

// field is a key of a Spec type.
type field struct {
	key   string
	index int
	need  string // why it may not be missing; empty if it may
	// instead are keys of which one may stand in its place.
	instead []string
	// later says that the key is refused as not supported yet; what it would hold is read all the same.
	later bool
	hint  string // with later
}

// fieldsOf lists the keys of a Spec type. The embedded Node is none.
func fieldsOf(t reflect.Type) []field {
	var fields []field
	for i := range t.NumField() {
		if f := t.Field(i); f.Tag.Get("json") != "" {
			hint, isLater := f.Tag.Lookup("later")
			fields = append(fields, field{f.Tag.Get("json"), i, f.Tag.Get("need"), strings.Fields(f.Tag.Get("instead")), isLater, hint})
		}
	}
	return fields
}

func (d *decoder) structure(n *node, target reflect.Value, what string) bool {
	if n.kind != mapping {
		d.wrongType(n, what, "a mapping of keys")
		return false
	}
	fields := fieldsOf(target.Type())
	for _, e := range n.entries {
		i := slices.IndexFunc(fields, func(f field) bool { return f.key == e.key.text })
		if i < 0 {
			d.unknown(n, e.key, what, target.Type(), fields)
			continue
		}
		if fields[i].later {
			d.report(e.key, "not_supported", fmt.Sprintf("`%s` is not supported yet", e.key.text), fields[i].hint)
		}
		inner := e.key.text
		if what != "" {
			inner = what + "." + inner
		}
		d.into(e.value, target.Field(fields[i].index).Addr(), inner)
	}
	for _, f := range fields {
		if f.need != "" && !n.has(f.key) && !slices.ContainsFunc(f.instead, n.has) {
			subject, at := what, n
			if subject == "" {
				subject = "the file"
			}
			if n.head != nil {
				at = n.head
			}
			d.report(at, "field.missing", fmt.Sprintf("%s has no `%s:`", subject, f.key), f.need)
		}
	}
	return true
}

// unknown reports a key that a place does not have.
func (d *decoder) unknown(n, key *node, what string, place reflect.Type, fields []field) {
	subject := what
	if subject == "" {
		subject = "the pipeline"
	}
	if why, ok := laterKeys[place.Name()][key.text]; ok {
		n.meant = append(n.meant, key.text)
		d.report(key, "not_supported", fmt.Sprintf("`%s` is not supported yet", key.text), why)
		return
	}
	var names []string
	for _, f := range fields {
		if !f.later {
			names = append(names, f.key)
		}
	}
	hint := didYouMean(key.text, names)
	if hint != "" {
		n.meant = append(n.meant, nearest(key.text, names))
	} else {
		if home := homeOf(key.text); home != "" {
			hint = home
		} else {
			hint = "it has " + wording.List(names, "and")
		}
	}
	d.report(key, "field.unknown", fmt.Sprintf("%s has no field %q", subject, key.text), hint)
}

// laterKeys are the keys of the language that nothing acts on yet, by the Spec type that would have them.
var laterKeys = map[string]map[string]string{
	"Spec":      {"import": ""},
	"TopicSpec": {"schema": "", "check": ""},
	"DefaultsSpec": {
		"schema": "", "check": "", "seed": "a seed belongs to one topic",
	},
	"ExtractorSpec": {
		"functions": "write `functions:` at the top of the pipeline", "metrics": "", "on_stop": "write it under `mqtt:`",
	},
	"TransformerSpec": {
		"order": "", "max_idle": "", "maps": "", "ttl": "", "timestamp": "", "group_by": "",
		"window": "keep what the window needs in `state`", "aggregate": "keep the aggregate in `state`", "emit": "", "having": "", "late": "", "idle_timeout": "",
		"tables": "", "timers": "", "on_timer": "", "sink": "",
		"functions": "write `functions:` at the top of the pipeline", "metrics": "",
	},
}

// homeOf tells where a key belongs that stands in the wrong place.
func homeOf(key string) string {
	for _, home := range []struct {
		name string
		typ  reflect.Type
	}{
		{"the top of the file", reflect.TypeFor[Spec]()},
		{"a topic", reflect.TypeFor[TopicSpec]()},
		{"an extractor", reflect.TypeFor[ExtractorSpec]()},
		{"a transformer", reflect.TypeFor[TransformerSpec]()},
	} {
		for _, f := range fieldsOf(home.typ) {
			if f.key == key {
				return fmt.Sprintf("`%s` belongs to %s", key, home.name)
			}
		}
	}
	return ""
}

// report adds a problem at a node.
func (d *decoder) report(n *node, code, message, hint string) {
	d.problem(d.src.file, n.line, n.column, code, message, hint)
}

// at adds a problem at a byte of a scalar's text.
func (d *decoder) at(n *node, offset int, code, message, hint string) {
	line, column := d.place(n, characters(n.text[:offset]))
	d.problem(d.src.file, line, column, code, message, hint)
}

// place is where in the file the character of a scalar's text stands, counted from 0.
func (d *decoder) place(n *node, character int) (line, column int) {
	switch {
	case n.style == block:
		before := string([]rune(n.text)[:character])
		breaks := strings.Count(before, "\n")
		return n.block.Position(breaks+1, characters(before[strings.LastIndexByte(before, '\n')+1:])+1)
	case n.lines > 1 || n.style == folded:
		return n.line, n.column
	case n.style == single || n.style == double:
		return n.line, n.column + written(d.src.from(n.line, n.column), character)
	default:
		return n.line, n.column + character
	}
}

// written is how many characters of a quoted scalar stand before its decoded character number n, the quote counted in.
func written(raw string, n int) int {
	runes := []rune(raw)
	if len(runes) == 0 {
		return n
	}
	i := 1
	for ; n > 0 && i < len(runes); n-- {
		switch {
		case runes[0] == '\'' && runes[i] == '\'':
			i += 2
		case runes[0] == '"' && runes[i] == '\\' && i+1 < len(runes):
			switch runes[i+1] {
			case 'x':
				i += 4
			case 'u':
				i += 6
			case 'U':
				i += 10
			default:
				i += 2
			}
		default:
			i++
		}
	}
	return i
}

// wrongType reports a node of the wrong kind.
func (d *decoder) wrongType(n *node, what, want string) {
	if what == "" {
		what = "a pipeline file"
	}
	if n.kind == empty && n.tag == "" {
		d.report(n, "field.empty", fmt.Sprintf("%s has no value; it is %s", what, want), "write one, or remove the key")
		return
	}
	hint := ""
	got := n.what()
	if n.tag != "" {
		got = "the YAML tag " + n.tag
		hint = "quote a text that begins with `!`"
	} else if want == "a text" && n.kind == scalar {
		hint = "quote it: " + quoted(n.text)
	}
	d.report(n, "field.type", fmt.Sprintf("%s is %s, and this is %s", what, want, got), hint)
}

// reason is a file error without the path that its message names already.
func reason(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
