package http

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
)

func (p *Paginate) check(method string, body *BodyConfig) error {
	param := func(what string, at PageParam) error {
		switch {
		case at.Name == "":
			return fmt.Errorf("paginate: %s has no name", what)
		case at.In == InBody && body.JSON == nil && body.Form == nil:
			return fmt.Errorf("paginate: %s stands in the body, and there is no body that is JSON or a form", what)
		}
		return nil
	}
	var err error
	switch p.Style {
	case OnePage:
		if p.Until == nil {
			err = errors.New("paginate says nothing")
		}
	case NextURL:
	case NextLink:
	case NextCursor:
		err = param("the cursor", p.Param)
	case PageNumber:
		err = param("the number of the page", p.Param)
	case Offset:
		err = param("the offset", p.Param)
	default:
		err = fmt.Errorf("paginate: there is no style %d", p.Style)
	}
	wantsNext := p.Style == NextURL || p.Style == NextCursor
	switch {
	case err != nil:
		return err
	case wantsNext && p.Next == nil:
		return errors.New("paginate does not say what leads to the next page")
	case !wantsNext && p.Next != nil:
		return errors.New("paginate: an expression for the next page has no effect in this style")
	case p.Start < 0 || p.Size < 0 || p.MaxPages < 0:
		return errors.New("paginate: a number is below 0")
	case p.Start != 0 && p.Style != PageNumber && p.Style != Offset:
		return errors.New("paginate: a start has no effect in this style")
	case p.SizeParam.Name != "" && p.Size == 0:
		return errors.New("paginate: the size of a page is sent, and not said")
	case p.SizeParam.Name == "" && p.Size != 0:
		return errors.New("paginate: the size of a page is said, and not sent")
	case p.Rel != "" && p.Style != NextLink:
		return errors.New("paginate: a relation has no effect without the header Link")
	case p.OtherHosts && p.Style != NextURL && p.Style != NextLink:
		return errors.New("paginate: other hosts have no effect without a next URL")
	}
	if p.SizeParam.Name != "" {
		return param("the size of a page", p.SizeParam)
	}
	return nil
}

// at is the request of the page that next leads to; nil is the first.
func (w *walk) at(next json.RawMessage) (Request, error) {
	p := w.config.Paginate
	if p == nil {
		return w.asking.request, nil
	}
	r := w.asking.request
	if next != nil && (p.Style == NextURL || p.Style == NextLink) {
		r.URL, r.Query = w.secrets.open(plain(next)), nil
		return w.completed(r), nil
	}
	asking := *w.asking
	var err error
	if p.SizeParam.Name != "" {
		if asking.request, err = asking.with(p.SizeParam, strconv.AppendInt(nil, p.Size, 10)); err != nil {
			return r, err
		}
	}
	switch {
	case p.Style == PageNumber || p.Style == Offset:
		if next == nil {
			next = strconv.AppendInt(nil, p.Start, 10)
		}
	case next == nil:
		return asking.request, nil
	default:
		next = onText(next, w.secrets.open)
	}
	return asking.with(p.Param, next)
}

// onText is a JSON value with its text changed, if it is one.
func onText(value json.RawMessage, change func(string) string) json.RawMessage {
	if len(value) == 0 || value[0] != '"' {
		return value
	}
	return rawjson.AppendString(nil, change(plain(value)))
}

// completed is a request to a URL of the server's own, with the secrets of the query that it left out or that were taken
// from it.
func (w *walk) completed(r Request) Request {
	u, err := url.Parse(r.URL)
	if err != nil {
		return r
	}
	if hostName(u) != w.home {
		r.Headers = slices.DeleteFunc(slices.Clone(r.Headers), func(p Pair) bool { return isSecretHeader(p.Name) })
		return r
	}
	for _, secret := range w.secretQuery() {
		r.URL = withoutMember(r.URL, secret.Name)
		r.Query = append(r.Query, secret)
	}
	return r
}

// secretQuery are the members of the first request's query that are secret.
func (w *walk) secretQuery() []Pair {
	var found []Pair
	_, query, _ := strings.Cut(w.asking.request.URL, "?")
	for part := range strings.SplitSeq(query, "&") {
		if name := memberName(part); isSecretName(name) {
			_, value, _ := strings.Cut(part, "=")
			if value, err := url.QueryUnescape(value); err == nil {
				found = append(found, Pair{name, value})
			}
		}
	}
	for _, p := range w.asking.request.Query {
		if isSecretName(p.Name) {
			found = append(found, p)
		}
	}
	return found
}

// next is where the page after this one is, or nil if this is the last.
func (w *walk) next(response *Response, count int64) (json.RawMessage, error) {
	p := w.config.Paginate
	switch p.Style {
	case NextURL, NextCursor:
		v, err := p.Next.Eval(&w.env)
		if err != nil {
			return nil, err
		}
		if b, isBool := v.Bool(); v.Nil() || isBool && !b {
			return nil, nil
		}
		text, isText := v.Text()
		if isText && text == "" {
			return nil, nil
		}
		if p.Style == NextURL {
			if !isText {
				return nil, newPollError(CodeNext, "the next URL is not a text", nil)
			}
			return w.nextURL(response, text)
		}
		if v.IsMap() || v.IsList() {
			if p.Param.In != InBody || w.config.Request.Body.JSON == nil {
				return nil, newPollError(CodeNext, "the cursor of the next page is a list or a map, which only a JSON body can send", nil)
			}
		}
		raw, err := p.Next.AppendJSON(nil, &w.env)
		if err != nil {
			return nil, err
		}
		return onText(rawjson.Compact(nil, raw), w.secrets.seal), nil
	case NextLink:
		rel := p.Rel
		if rel == "" {
			rel = "next"
		}
		link := linkOf(response.Headers, rel)
		if link == "" {
			return nil, nil
		}
		return w.nextURL(response, link)
	case PageNumber:
		return strconv.AppendInt(nil, w.number()+1, 10), nil
	case Offset:
		return strconv.AppendInt(nil, w.number()+count, 10), nil
	case OnePage:
	}
	return nil, nil
}

// number is that of the page under way, or its offset.
func (w *walk) number() int64 {
	if n, err := strconv.ParseInt(string(w.list.Next), 10, 64); err == nil {
		return n
	}
	return w.config.Paginate.Start
}

// nextURL makes a URL that a server has given into one that may be asked and kept.
func (w *walk) nextURL(response *Response, text string) (json.RawMessage, error) {
	here, err := url.Parse(response.URL)
	if err != nil {
		return nil, newPollError(CodeNext, "the URL of the answer cannot be read", nil)
	}
	to, err := here.Parse(text)
	if err == nil {
		to, err = parseURL(to.String())
	}
	if err != nil {
		return nil, &PollError{URL: w.shown, code: CodeNext, text: "the next page is at no URL that can be asked"}
	}
	to.User = nil
	if to.Scheme == "http" && here.Scheme == "https" && strings.EqualFold(to.Hostname(), here.Hostname()) && (to.Port() == "" || to.Port() == "80") {
		to.Scheme, to.Host = here.Scheme, here.Host // the server does not know how it is reached
	}
	leaves := hostName(to) != w.home
	switch {
	case leaves && !w.config.Paginate.OtherHosts:
		return nil, &PollError{URL: w.shown, code: CodeNext, text: "the next page is at another host, " + hostName(to) + ", and the request's secrets are not sent there; allow it if that is meant"}
	case to.Scheme != here.Scheme && to.Scheme == "http":
		return nil, &PollError{URL: w.shown, code: CodeNext, text: "the next page is at a URL that is not encrypted, and this one is"}
	}
	if !leaves {
		for _, secret := range w.secretQuery() {
			dropMember(to, secret.Name)
		}
		if key := w.credentials.query.Name; key != "" {
			dropMember(to, key)
		}
	}
	return json.RawMessage(rawjson.AppendString(nil, w.secrets.seal(to.String()))), nil
}

func dropMember(u *url.URL, name string) {
	if u.RawQuery == "" {
		return
	}
	u.RawQuery = strings.Join(slices.DeleteFunc(strings.Split(u.RawQuery, "&"), func(part string) bool { return memberName(part) == name }), "&")
}

// linkOf is the target of the first link with a relation (RFC 8288, section 3), or "".
func linkOf(headers http.Header, rel string) string {
	for _, value := range headers.Values("Link") {
		for rest := value; ; {
			open := strings.IndexByte(rest, '<')
			if open < 0 {
				break
			}
			target, after, closed := strings.Cut(rest[open+1:], ">")
			if !closed {
				break
			}
			var relation string
			relation, rest = linkRelation(after)
			if slices.ContainsFunc(strings.Fields(relation), func(one string) bool { return strings.EqualFold(one, rel) }) {
				return strings.TrimSpace(target)
			}
		}
	}
	return ""
}

// linkRelation reads the parameters of a link, up to the comma that ends it: the first rel of them, and what is left.
func linkRelation(text string) (relation, rest string) {
	found := false
	for {
		text = strings.TrimLeft(text, " \t")
		if text == "" || text[0] == ',' {
			return relation, text
		}
		text = strings.TrimLeft(text, "; \t")
		end := strings.IndexAny(text, "=;,")
		if end < 0 {
			return relation, ""
		}
		name := strings.TrimSpace(text[:end])
		value := ""
		if text[end] == '=' {
			value, text = linkValue(strings.TrimLeft(text[end+1:], " \t"))
		} else {
			text = text[end:]
		}
		if strings.EqualFold(name, "rel") && !found {
			relation, found = value, true
		}
	}
}

// linkValue reads the value of a parameter, quoted or not.
func linkValue(text string) (value, rest string) {
	if !strings.HasPrefix(text, `"`) {
		end := strings.IndexAny(text, ";,")
		if end < 0 {
			return strings.TrimSpace(text), ""
		}
		return strings.TrimSpace(text[:end]), text[end:]
	}
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		switch c := text[i]; c {
		case '"':
			return b.String(), text[i+1:]
		case '\\':
			if i++; i < len(text) {
				b.WriteByte(text[i])
			}
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), ""
}
