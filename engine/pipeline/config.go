package pipeline

import (
	"errors"
	"fmt"
	"slices"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
)

// ConfigSpec is what a stage wants of its configs. A nil *ConfigSpec takes every JSON object as it is. It may be used by any
// number of goroutines.
type ConfigSpec struct {
	// Defaults is a JSON object, or nil.
	Defaults []byte

	schema *jsonSchema // nil takes all
}

// ErrNotObject is a config that is no JSON object.
var ErrNotObject = errors.New("a config is a JSON object")

// Complete answers config with its defaults, if it fits the schema. It is Fill and Check in one, for stages without a Where.
func (c *ConfigSpec) Complete(config []byte) ([]byte, error) {
	full, err := c.Fill(config)
	if err != nil {
		return nil, err
	}
	return full, c.Check(full)
}

// Fill answers config with its defaults: what a config says itself counts, also null, and objects are filled likewise. The
// answer is config itself where there is nothing to fill in. An error says that config is no JSON object.
func (c *ConfigSpec) Fill(config []byte) ([]byte, error) {
	kind, members, err := rawjson.Check(config, nil)
	if err != nil {
		return nil, err
	}
	if kind != rawjson.Object {
		return nil, ErrNotObject
	}
	if c == nil || c.Defaults == nil {
		return config, nil
	}
	full, changed := fill(nil, config, members, c.Defaults)
	if !changed {
		return config, nil
	}
	return full, nil
}

// fill appends the object text with the members of defaults, an object too, that it has not.
func fill(dst, text []byte, members []rawjson.Member, defaults []byte) (out []byte, changed bool) {
	more := rawjson.Members(defaults, nil)
	dst = append(dst, '{')
	comma := func() {
		if dst[len(dst)-1] != '{' {
			dst = append(dst, ',')
		}
	}
	for i := range members {
		m := &members[i]
		value := text[m.Start:m.End]
		comma()
		name := m.Name(text)
		dst = append(rawjson.AppendString(dst, name), ':')
		other := rawjson.Find(defaults, more, name)
		if other != nil && rawjson.KindOf(value[0]) == rawjson.Object && rawjson.KindOf(other[0]) == rawjson.Object {
			var inner bool
			dst, inner = fill(dst, value, rawjson.Members(value, nil), other)
			changed = changed || inner
			continue
		}
		dst = rawjson.Compact(dst, value)
	}
	for i := range more {
		name := more[i].Name(defaults)
		if slices.ContainsFunc(members, func(m rawjson.Member) bool { return m.Name(text) == name }) {
			continue
		}
		comma()
		dst, changed = append(rawjson.AppendString(dst, name), ':'), true
		dst = append(dst, defaults[more[i].Start:more[i].End]...)
	}
	return append(dst, '}'), changed
}

// Check tells whether a config that Fill has filled fits the schema. Its error is a *SchemaError.
func (c *ConfigSpec) Check(config []byte) error {
	if c == nil || c.schema == nil {
		return nil
	}
	return c.schema.check(config)
}

// Judge tells whether a config, as it is written, is the extractor's own, and if so, what is wrong with it: whatever Config,
// Where and EveryExpr have against it. p is the extractor's pipeline.
func (e *Extractor) Judge(p *Pipeline, key string, config []byte) (own bool, err error) {
	full, err := e.Config.Fill(config)
	if err != nil {
		return true, err
	}
	check := &configCheck{draft: &draft{pipe: p}, e: e}
	own, name, err := check.judge(key, full)
	if wrong := (*SchemaError)(nil); err != nil && !errors.As(err, &wrong) {
		err = fmt.Errorf("`%s` fails: %s", name, failure(err))
	}
	return own, err
}
