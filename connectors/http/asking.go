package http

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/flechtwerk/flechtwerk/engine/expr"
	"github.com/flechtwerk/flechtwerk/engine/rawjson"
)

// asking is a request of a listing, before it is known which page it asks for.
type asking struct {
	request Request
	body    BodyConfig // for where a cursor goes
}

// fill makes a request of its templates.
func (c *RequestConfig) fill(env *expr.Env) (*asking, error) {
	a := &asking{body: c.Body, request: Request{Method: c.Method, Timeout: c.Timeout, MaxBytes: c.MaxBytes, MaxDecompressed: c.MaxDecompressed, Redirect: c.Redirect}}
	var err error
	if a.request.URL, err = fillURL(c.URL, env); err != nil {
		return nil, err
	}
	if a.request.Query, err = fillPairs(c.Query, env); err != nil {
		return nil, err
	}
	if a.request.Headers, err = fillPairs(c.Headers, env); err != nil {
		return nil, err
	}
	kind := ""
	switch b := &c.Body; {
	case b.JSON != nil:
		kind = "application/json"
		a.request.Body, err = b.JSON.appendTo(nil, env)
	case b.Form != nil:
		kind = "application/x-www-form-urlencoded"
		var form []Pair
		if form, err = fillPairs(b.Form, env); err == nil {
			a.request.Body = encodeForm(form)
		}
	case b.Text != nil:
		kind = "text/plain; charset=utf-8"
		a.request.Body, err = b.Text.Append(nil, env)
	}
	if err != nil {
		return nil, err
	}
	if kind != "" && !hasPair(a.request.Headers, "Content-Type") {
		a.request.Headers = append(a.request.Headers, Pair{"Content-Type", kind})
	}
	return a, nil
}

// fillPairs leaves out a parameter whose value is one hole that gives nothing.
func fillPairs(params []Param, env *expr.Env) ([]Pair, error) {
	pairs := make([]Pair, 0, len(params))
	for i := range params {
		value, err := params[i].Value.Append(nil, env)
		var failure *expr.Failure
		switch {
		case err == nil:
			pairs = append(pairs, Pair{params[i].Name, string(value)})
		case params[i].Value.Only() != nil && errors.As(err, &failure) && failure.Code == expr.CodeNilHole:
		default:
			return nil, err
		}
	}
	return pairs, nil
}

func fillText(t *expr.Template, env *expr.Env) (string, error) {
	text, err := t.Append(nil, env)
	return string(text), err
}

func hasPair(pairs []Pair, name string) bool {
	return slices.ContainsFunc(pairs, func(p Pair) bool { return strings.EqualFold(p.Name, name) })
}

func encodeForm(pairs []Pair) []byte {
	var b []byte
	for i, p := range pairs {
		if i > 0 {
			b = append(b, '&')
		}
		b = append(b, url.QueryEscape(p.Name)...)
		b = append(b, '=')
		b = append(b, url.QueryEscape(p.Value)...)
	}
	return b
}

// fillURL fills the holes of a URL, each escaped for where it stands.
func fillURL(t *expr.Template, env *expr.Env) (string, error) {
	filled, err := t.AppendURL(nil, env)
	return string(filled), err
}

// appendTo appends the value with its holes filled.
func (t *BodyTree) appendTo(dst []byte, env *expr.Env) ([]byte, error) {
	switch {
	case t.Value != nil:
		if only := t.Value.Only(); only != nil {
			return only.AppendJSON(dst, env)
		}
		text, err := t.Value.Append(nil, env)
		if err != nil {
			return nil, err
		}
		return rawjson.AppendString(dst, string(text)), nil
	case t.Literal != nil:
		return append(dst, t.Literal...), nil
	}
	open, closing := byte('{'), byte('}')
	if t.List {
		open, closing = '[', ']'
	}
	dst = append(dst, open)
	for i, item := range t.Items {
		if i > 0 {
			dst = append(dst, ',')
		}
		if !t.List {
			dst = append(rawjson.AppendString(dst, t.Names[i]), ':')
		}
		var err error
		if dst, err = item.appendTo(dst, env); err != nil {
			return nil, err
		}
	}
	return append(dst, closing), nil
}

// with is the request with a value that says which page is wanted, as JSON. A value of the same name gives way.
func (a *asking) with(param PageParam, value json.RawMessage) (Request, error) {
	r := a.request
	text := plain(value)
	switch param.In {
	case InHeader:
		r.Headers = append(slices.DeleteFunc(slices.Clone(r.Headers), func(p Pair) bool { return strings.EqualFold(p.Name, param.Name) }), Pair{param.Name, text})
	case InBody:
		if a.body.Form != nil {
			r.Body = setForm(r.Body, param.Name, text)
			return r, nil
		}
		body, err := setMember(r.Body, strings.Split(param.Name, "."), value)
		if err != nil {
			return r, newPollError("http."+CodeRequest, "the body has no place for "+param.Name+": "+err.Error(), nil)
		}
		r.Body = body
	default:
		r.URL = withoutMember(r.URL, param.Name)
		r.Query = append(slices.DeleteFunc(slices.Clone(r.Query), func(p Pair) bool { return p.Name == param.Name }), Pair{param.Name, text})
	}
	return r, nil
}

// plain is a JSON value as it stands in a URL or a header: a text without its quotes.
func plain(value json.RawMessage) string {
	if len(value) > 0 && value[0] == '"' {
		text, _ := rawjson.Text(value)
		return text
	}
	return string(value)
}

// setForm replaces a member of a form.
func setForm(form []byte, name, value string) []byte {
	prefix := url.QueryEscape(name) + "="
	var parts []string
	for part := range strings.SplitSeq(string(form), "&") {
		if part != "" && !strings.HasPrefix(part, prefix) {
			parts = append(parts, part)
		}
	}
	return []byte(strings.Join(append(parts, prefix+url.QueryEscape(value)), "&"))
}

// setMember replaces the member at a path of an object, or adds it.
func setMember(object []byte, path []string, value []byte) ([]byte, error) {
	if len(object) == 0 {
		object = []byte("{}")
	}
	if rawjson.KindOf(object[0]) != rawjson.Object {
		return nil, errors.New("it is not an object there")
	}
	out := []byte{'{'}
	found := false
	members := rawjson.Members(object, nil)
	for i := range members {
		m := &members[i]
		inner := object[m.Start:m.End]
		if m.Is(object, path[0]) {
			found = true
			inner = value
			if len(path) > 1 {
				var err error
				if inner, err = setMember(object[m.Start:m.End], path[1:], value); err != nil {
					return nil, err
				}
			}
		}
		out = appendMember(out, m.Name(object), inner)
	}
	if !found {
		for i := len(path) - 1; i > 0; i-- {
			value = append(appendMember([]byte{'{'}, path[i], value), '}')
		}
		out = appendMember(out, path[0], value)
	}
	return append(out, '}'), nil
}

func appendMember(dst []byte, name string, value []byte) []byte {
	if dst[len(dst)-1] != '{' {
		dst = append(dst, ',')
	}
	dst = append(rawjson.AppendString(dst, name), ':')
	return append(dst, value...)
}

// withoutMember drops the members of a name from the query of a URL.
func withoutMember(text, name string) string {
	head, query, found := strings.Cut(text, "?")
	if !found {
		return text
	}
	query, _, _ = strings.Cut(query, "#")
	kept := slices.DeleteFunc(strings.Split(query, "&"), func(part string) bool { return memberName(part) == name })
	if len(kept) == 0 {
		return head
	}
	return head + "?" + strings.Join(kept, "&")
}

// memberName is the name of a member of a query.
func memberName(part string) string {
	name, _, _ := strings.Cut(part, "=")
	if decoded, err := url.QueryUnescape(name); err == nil {
		return decoded
	}
	return name
}

// fingerprint tells one request from another. Secrets are no part of it, so that a new password changes nothing, and so that
// nothing about them can be learnt from it.
func (a *asking) fingerprint(s *secrets) string {
	h := sha256.New()
	write := func(text string) {
		h.Write([]byte(s.seal(text)))
		h.Write([]byte{0})
	}
	r := &a.request
	write(method(r))
	head, query, _ := strings.Cut(r.URL, "?")
	write(head)
	for part := range strings.SplitSeq(query, "&") {
		if !isSecretName(memberName(part)) {
			write(part)
		}
	}
	for _, p := range r.Query {
		if !isSecretName(p.Name) {
			write(p.Name)
			write(p.Value)
		}
	}
	for _, p := range r.Headers {
		if !isSecretHeader(p.Name) {
			write(http.CanonicalHeaderKey(p.Name))
			write(p.Value)
		}
	}
	write(string(r.Body))
	return hex.EncodeToString(h.Sum(nil)[:8])
}
