package script

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/dop251/goja"
	whatwg "github.com/nlnwa/whatwg-url/url"
)

// The classes URL and URLSearchParams of the URL Standard. An object of them is a Go value behind the class's prototype.

// urlBox is a URL object.
type urlBox struct {
	url    *whatwg.Url
	params *paramsBox   // the list behind searchParams
	object *goja.Object // searchParams, once it was read
}

// paramsBox is a URLSearchParams object. It belongs to a URL or to none.
type paramsBox struct {
	list [][2]string
	url  *urlBox
}

// maxURL is the longest URL, in bytes, and the longest query.
const maxURL = 1 << 20

// urlClasses makes both classes, since each makes objects of the other.
func (v *vm) urlClasses() *[2]*goja.Object {
	if v.urls == nil {
		v.urls = &[2]*goja.Object{}
		v.urls[0], v.urls[1] = newURLClass(v), newParamsClass(v)
	}
	return v.urls
}

// isURL tells whether o is a URL or URLSearchParams, which no freezing keeps from being changed.
func isURL(o *goja.Object) bool {
	t := o.ExportType()
	return t == reflect.TypeFor[*urlBox]() || t == reflect.TypeFor[*paramsBox]()
}

// boxOf is the Go value behind an object, or nil. To export any other object would run its getters.
func boxOf[T any](value goja.Value) *T {
	if o, ok := value.(*goja.Object); ok && o.ExportType() == reflect.TypeFor[*T]() {
		return o.Export().(*T)
	}
	return nil
}

// wrap makes an object of a Go value with the methods of a prototype.
func (v *vm) wrap(box any, prototype *goja.Object) *goja.Object {
	o := v.rt.ToValue(box).(*goja.Object)
	must(o.SetPrototype(prototype))
	return o
}

func (v *vm) invalidURL(what string) { v.raise("TypeError", "invalid_url", "URL: %s", what) }

// urlText is an argument of a URL function, as text.
func (v *vm) urlText(value goja.Value) string {
	text := value.String()
	if len(text) > maxURL {
		v.raise("RangeError", codeTooLarge, "URL: the text is longer than %d bytes", maxURL)
	}
	return text
}

func (v *vm) parseURL(call []goja.Value) (*whatwg.Url, string) {
	if len(call) == 0 {
		return nil, "there is no text"
	}
	text := v.urlText(call[0])
	if len(call) < 2 || goja.IsUndefined(call[1]) {
		u, err := whatwg.Parse(text)
		if err != nil {
			return nil, "the text is no absolute URL"
		}
		return u, ""
	}
	base, err := whatwg.Parse(v.urlText(call[1]))
	if err != nil {
		return nil, "the base is no absolute URL"
	}
	u, err := base.Parse(text)
	if err != nil {
		return nil, "the text is no URL"
	}
	return u, ""
}

func newURLClass(v *vm) *goja.Object {
	var class *goja.Object
	wrap := func(u *whatwg.Url, prototype *goja.Object) *goja.Object {
		b := &urlBox{url: u, params: &paramsBox{list: parseQuery(u.Query())}}
		b.params.url = b
		return v.wrap(b, prototype)
	}
	of := func(this goja.Value) *urlBox {
		b := boxOf[urlBox](this)
		if b == nil {
			v.wrong("URL", "a member of it is called on %s", kindName(this))
		}
		return b
	}
	href := func(call goja.FunctionCall) goja.Value { return v.rt.ToValue(of(call.This).url.Href(false)) }
	class = v.class("URL", 1, func(call goja.ConstructorCall) *goja.Object {
		u, problem := v.parseURL(call.Arguments)
		if u == nil {
			v.invalidURL(problem)
		}
		return wrap(u, call.This.Prototype())
	}, map[string]func(goja.FunctionCall) goja.Value{"toString": href, "toJSON": href})
	prototype := class.Get("prototype").(*goja.Object)
	for name, f := range map[string]func(goja.FunctionCall) goja.Value{
		"canParse": func(call goja.FunctionCall) goja.Value {
			u, _ := v.parseURL(call.Arguments)
			return v.rt.ToValue(u != nil)
		},
		"parse": func(call goja.FunctionCall) goja.Value {
			u, _ := v.parseURL(call.Arguments)
			if u == nil {
				return goja.Null()
			}
			return wrap(u, prototype)
		},
	} {
		define(class, name, v.native(name, 1, f))
	}
	for name, part := range map[string]struct {
		get func(*whatwg.Url) string
		set func(*whatwg.Url, string)
	}{
		"protocol": {(*whatwg.Url).Protocol, (*whatwg.Url).SetProtocol},
		"username": {(*whatwg.Url).Username, (*whatwg.Url).SetUsername},
		"password": {(*whatwg.Url).Password, (*whatwg.Url).SetPassword},
		"host":     {(*whatwg.Url).Host, (*whatwg.Url).SetHost},
		"hostname": {(*whatwg.Url).Hostname, (*whatwg.Url).SetHostname},
		"port":     {(*whatwg.Url).Port, (*whatwg.Url).SetPort},
		"pathname": {(*whatwg.Url).Pathname, (*whatwg.Url).SetPathname},
		"search":   {(*whatwg.Url).Search, (*whatwg.Url).SetSearch},
		"hash":     {(*whatwg.Url).Hash, (*whatwg.Url).SetHash},
		"origin":   {originOf, nil},
	} {
		var set func(*urlBox, goja.Value)
		if part.set != nil {
			set = func(b *urlBox, value goja.Value) {
				part.set(b.url, v.urlText(value))
				if name == "search" {
					b.params.list = parseQuery(b.url.Query())
				}
			}
		}
		v.urlMember(prototype, name, func(b *urlBox) goja.Value { return v.rt.ToValue(part.get(b.url)) }, set, of)
	}
	v.urlMember(prototype, "href", func(b *urlBox) goja.Value { return v.rt.ToValue(b.url.Href(false)) }, func(b *urlBox, value goja.Value) {
		u, problem := v.parseURL([]goja.Value{value})
		if u == nil {
			v.invalidURL(problem)
		}
		b.url, b.params.list = u, parseQuery(u.Query())
	}, of)
	v.urlMember(prototype, "searchParams", func(b *urlBox) goja.Value {
		if b.object == nil {
			b.object = v.wrap(b.params, v.urlClasses()[1].Get("prototype").(*goja.Object))
		}
		return b.object
	}, nil, of)
	return class
}

func (v *vm) urlMember(prototype *goja.Object, name string, get func(*urlBox) goja.Value, set func(*urlBox, goja.Value), of func(goja.Value) *urlBox) {
	getter := v.native("get "+name, 0, func(call goja.FunctionCall) goja.Value { return get(of(call.This)) })
	var setter goja.Value
	if set != nil {
		setter = v.native("set "+name, 1, func(call goja.FunctionCall) goja.Value {
			set(of(call.This), call.Argument(0))
			return goja.Undefined()
		})
	}
	must(prototype.DefineAccessorProperty(name, getter, setter, goja.FLAG_TRUE, goja.FLAG_TRUE))
}

// originOf is the origin of a URL (URL Standard, 4.7), of which only the network schemes have one here.
func originOf(u *whatwg.Url) string {
	switch u.Scheme() {
	case "http", "https", "ws", "wss", "ftp":
		return u.Protocol() + "//" + u.Host()
	}
	return "null"
}

func newParamsClass(v *vm) *goja.Object {
	of := func(this goja.Value) *paramsBox {
		b := boxOf[paramsBox](this)
		if b == nil {
			v.wrong("URLSearchParams", "a member of it is called on %s", kindName(this))
		}
		return b
	}
	// changing is a method that changes the list.
	changing := func(change func(b *paramsBox, name, value string, given bool)) func(goja.FunctionCall) goja.Value {
		return func(call goja.FunctionCall) goja.Value {
			b, value := of(call.This), call.Argument(1)
			change(b, v.urlText(call.Argument(0)), v.urlText(value), !goja.IsUndefined(value))
			if text := formatQuery(b.list); len(text) > maxURL {
				v.raise("RangeError", codeTooLarge, "URLSearchParams: the query is longer than %d bytes", maxURL)
			} else if b.url != nil {
				b.url.url.SetSearch(text)
			}
			return goja.Undefined()
		}
	}
	each := func(item func(pair [2]string) any) func(goja.FunctionCall) goja.Value {
		return func(call goja.FunctionCall) goja.Value {
			b, i := of(call.This), 0
			return v.walk(func() goja.Value {
				if i++; i > len(b.list) {
					return goja.Undefined()
				}
				return v.rt.ToValue(item(b.list[i-1]))
			})
		}
	}
	entries := each(func(pair [2]string) any { return v.rt.NewArray(pair[0], pair[1]) })
	class := v.class("URLSearchParams", 0, func(call goja.ConstructorCall) *goja.Object {
		return v.wrap(&paramsBox{list: v.params(call.Argument(0), of)}, call.This.Prototype())
	}, map[string]func(goja.FunctionCall) goja.Value{
		"append": changing(func(b *paramsBox, name, value string, _ bool) { b.list = append(b.list, [2]string{name, value}) }),
		"delete": changing(func(b *paramsBox, name, value string, given bool) {
			b.remove(0, func(p [2]string) bool { return p[0] == name && (!given || p[1] == value) })
		}),
		"set":  changing(func(b *paramsBox, name, value string, _ bool) { b.set(name, value) }),
		"sort": changing(func(b *paramsBox, _, _ string, _ bool) { b.sort() }),
		"get": func(call goja.FunctionCall) goja.Value {
			if i := of(call.This).find(call.Argument(0).String()); i >= 0 {
				return v.rt.ToValue(of(call.This).list[i][1])
			}
			return goja.Null()
		},
		"getAll": func(call goja.FunctionCall) goja.Value {
			all, name := []any{}, call.Argument(0).String()
			for _, p := range of(call.This).list {
				if p[0] == name {
					all = append(all, p[1])
				}
			}
			return v.rt.NewArray(all...)
		},
		"has": func(call goja.FunctionCall) goja.Value {
			name, value := call.Argument(0).String(), call.Argument(1)
			for _, p := range of(call.This).list {
				if p[0] == name && (goja.IsUndefined(value) || p[1] == value.String()) {
					return v.values.yes
				}
			}
			return v.values.no
		},
		"forEach": func(call goja.FunctionCall) goja.Value {
			f, ok := goja.AssertFunction(call.Argument(0))
			if !ok {
				v.wrong("URLSearchParams.forEach", "the argument is %s; a function is expected", kindName(call.Argument(0)))
			}
			b := of(call.This)
			for i := 0; i < len(b.list); i++ {
				_, err := f(call.Argument(1), v.rt.ToValue(b.list[i][1]), v.rt.ToValue(b.list[i][0]), call.This)
				must(err)
			}
			return goja.Undefined()
		},
		"toString": func(call goja.FunctionCall) goja.Value { return v.rt.ToValue(formatQuery(of(call.This).list)) },
		"entries":  entries,
		"keys":     each(func(pair [2]string) any { return pair[0] }),
		"values":   each(func(pair [2]string) any { return pair[1] }),
	})
	prototype := class.Get("prototype").(*goja.Object)
	must(prototype.DefineDataPropertySymbol(goja.SymIterator, prototype.Get("entries"), goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_FALSE))
	must(prototype.DefineAccessorProperty("size", v.native("get size", 0, func(call goja.FunctionCall) goja.Value {
		return v.rt.ToValue(len(of(call.This).list))
	}), nil, goja.FLAG_TRUE, goja.FLAG_TRUE))
	return class
}

// params is what URLSearchParams is made of: a text, an iterable of pairs, or an object.
func (v *vm) params(value goja.Value, of func(goja.Value) *paramsBox) (list [][2]string) {
	if goja.IsUndefined(value) {
		return nil
	}
	o, ok := value.(*goja.Object)
	switch {
	case !ok:
		return parseQuery(strings.TrimPrefix(v.urlText(value), "?"))
	case boxOf[paramsBox](o) != nil:
		return append(list, of(o).list...)
	case isFunction(o.GetSymbol(goja.SymIterator)):
		v.rt.ForOf(o, func(pair goja.Value) bool {
			p, ok := pair.(*goja.Object)
			if !ok || p.ClassName() != "Array" || len(v.values.elements(p)) != 2 {
				v.wrong("URLSearchParams", "the list has an element that is no pair of name and value")
			}
			list = append(list, [2]string{present(p.Get("0")).String(), present(p.Get("1")).String()})
			return true
		})
	default:
		for _, name := range o.Keys() {
			list = append(list, [2]string{name, present(o.Get(name)).String()})
		}
	}
	return list
}

func (b *paramsBox) find(name string) int {
	for i, p := range b.list {
		if p[0] == name {
			return i
		}
	}
	return -1
}

// remove drops what is found from a place on.
func (b *paramsBox) remove(from int, found func([2]string) bool) {
	kept := b.list[:from:from]
	for _, p := range b.list[from:] {
		if !found(p) {
			kept = append(kept, p)
		}
	}
	b.list = kept
}

func (b *paramsBox) set(name, value string) {
	i := b.find(name)
	if i < 0 {
		b.list = append(b.list, [2]string{name, value})
		return
	}
	b.list[i][1] = value
	b.remove(i+1, func(p [2]string) bool { return p[0] == name })
}

// sort sorts by name, in UTF-16 units as the standard has it, and leaves pairs of one name as they stand.
func (b *paramsBox) sort() {
	slices.SortStableFunc(b.list, func(x, y [2]string) int {
		return slices.Compare(utf16.Encode([]rune(x[0])), utf16.Encode([]rune(y[0])))
	})
}

// parseQuery reads application/x-www-form-urlencoded (URL Standard, 5.1).
func parseQuery(query string) (list [][2]string) {
	for part := range strings.SplitSeq(query, "&") {
		if part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		list = append(list, [2]string{unescapeForm(name), unescapeForm(value)})
	}
	return list
}

func unescapeForm(text string) string {
	if !strings.ContainsAny(text, "+%") {
		return text
	}
	b := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '+':
			b = append(b, ' ')
		case c == '%' && i+2 < len(text):
			if n, err := strconv.ParseUint(text[i+1:i+3], 16, 8); err == nil {
				b = append(b, byte(n))
				i += 2
				continue
			}
			b = append(b, c)
		default:
			b = append(b, c)
		}
	}
	return replaceInvalid(b)
}

// formatQuery writes application/x-www-form-urlencoded (URL Standard, 5.2).
func formatQuery(list [][2]string) string {
	var b strings.Builder
	for i, pair := range list {
		if i > 0 {
			b.WriteByte('&')
		}
		escapeForm(&b, pair[0])
		b.WriteByte('=')
		escapeForm(&b, pair[1])
	}
	return b.String()
}

func escapeForm(b *strings.Builder, text string) {
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == ' ':
			b.WriteByte('+')
		case c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' || strings.IndexByte("*-._", c) >= 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(b, "%%%02X", c)
		}
	}
}
