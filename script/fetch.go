package script

import (
	"bytes"
	"cmp"
	"context"
	"crypto/md5" //nolint:gosec // servers publish it to find broken downloads
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dop251/goja"

	"github.com/flechtwerk/flechtwerk/engine/wording"
)

// FetchRequest is what a script asks for.
type FetchRequest struct {
	Method, URL    string
	Query, Headers []Pair
	Body           []byte        // nil is none
	Timeout        time.Duration // 0 is the default of the pipeline
	Redirect       string        // follow, manual or error
}

// Pair is a name with a value, of a query or a header.
type Pair struct{ Name, Value string }

// FetchResponse is an answer, whatever its status. The script reads Body to its end and closes it.
type FetchResponse struct {
	Status  int
	Headers http.Header
	URL     string // where the answer came from
	Shown   string // the same without secrets
	Elapsed time.Duration
	Body    io.ReadCloser
}

// FetchError is a request without an answer. Its Message holds no secret. Env.Fetch and the bodies of its answers give nothing else.
type FetchError struct {
	Code    string // such as timeout, connect, tls or too_large
	Message string
	Err     error
}

func (e *FetchError) Error() string { return e.Message }
func (e *FetchError) Unwrap() error { return e.Err }

// answer is a response whose body was read.
type answer struct {
	*FetchResponse
	method string
	body   []byte
	// items says that the body was read item by item: there is none to read again.
	items bool
}

// options are those of fetch that do not go into the request.
type options struct {
	request FetchRequest
	expect  []int
	verify  struct {
		size        int64 // -1 is not said
		md5, sha256 string
	}
}

// fetch is the function fetch. The body of the answer is read outside of the VM, so that its readers need no further wait, and
// no answer that a script forgets holds a connection.
func (v *vm) fetch(call goja.FunctionCall) goja.Value {
	if v.env.Fetch == nil {
		v.throw(refuse(CodeError, "", "fetch is not there"))
	}
	o := v.fetchOptions(call.Argument(0), call.Argument(1))
	return v.outside("fetch", func(ctx context.Context) settle {
		got, err := o.run(ctx, v.env.Fetch)
		return func() (goja.Value, error) {
			if err != nil {
				return nil, v.fetchError(err)
			}
			return v.response(got), nil
		}
	})
}

func (o *options) run(ctx context.Context, fetch func(context.Context, *FetchRequest) (*FetchResponse, error)) (*answer, error) {
	response, err := fetch(ctx, &o.request)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil {
		return nil, err
	}
	a := &answer{FetchResponse: response, method: cmp.Or(o.request.Method, http.MethodGet), body: body}
	if len(o.expect) > 0 && !slices.Contains(o.expect, a.Status) {
		return nil, a.fail("status", "answered %d: %s", a.Status, snippet(body))
	}
	if v := &o.verify; v.size >= 0 && v.size != int64(len(body)) {
		return nil, a.fail("verify", "answered %d bytes, and %d are expected", len(body), v.size)
	}
	if want := o.verify.md5; want != "" {
		if sum := md5.Sum(body); !sameSum(want, sum[:]) { //nolint:gosec // see above
			return nil, a.fail("verify", "answered a body whose MD5 is %x", sum)
		}
	}
	if want := o.verify.sha256; want != "" {
		if sum := sha256.Sum256(body); !sameSum(want, sum[:]) {
			return nil, a.fail("verify", "answered a body whose SHA-256 is %x", sum)
		}
	}
	return a, nil
}

func (a *answer) fail(code, format string, args ...any) error {
	return &FetchError{Code: code, Message: strings.TrimSpace(a.method+" "+a.Shown) + " " + fmt.Sprintf(format, args...)}
}

// sameSum compares a checksum in hexadecimal or base64 with its bytes.
func sameSum(text string, sum []byte) bool {
	return strings.EqualFold(text, hex.EncodeToString(sum)) || text == base64.StdEncoding.EncodeToString(sum)
}

const snippetSize = 200

// snippet is the beginning of a body for a person.
func snippet(body []byte) string {
	text := strings.ToValidUTF8(string(body[:min(len(body), snippetSize)]), "")
	text = strings.Join(strings.Fields(text), " ")
	if len(body) > snippetSize {
		text += "…"
	}
	return strconv.Quote(text)
}

// fetchError is an error as the script sees it: name, code and message.
func (v *vm) fetchError(err error) *thrownValue {
	code := "fetch"
	if e := (*FetchError)(nil); errors.As(err, &e) {
		code = e.Code
	}
	o := v.rt.NewGoError(err)
	define(o, "name", v.rt.ToValue("FetchError"))
	define(o, "message", v.rt.ToValue(err.Error()))
	define(o, "code", v.rt.ToValue(code))
	return &thrownValue{o}
}

// thrownValue is an error that rejects a promise with a value of its own.
type thrownValue struct{ value goja.Value }

func (t *thrownValue) Error() string { return t.value.String() }

var optionNames = []string{"method", "headers", "query", "body", "json", "ndjson", "form", "auth", "timeout", "redirect", "expect", "verify"}

// refuseOption throws that an option of fetch is wrong.
func (v *vm) refuseOption(hint, format string, args ...any) {
	v.throw(refuse(CodeFetch, hint, format, args...))
}

// members visits the members of an option that is an object.
func (v *vm) members(option string, value goja.Value, visit func(name string, value goja.Value)) {
	o, ok := value.(*goja.Object)
	if !ok || o.ClassName() != "Object" {
		v.refuseOption("", "%s of fetch is %s, not an object", option, kindName(value))
	}
	for _, name := range o.Keys() {
		if value := o.Get(name); value != nil && !goja.IsUndefined(value) {
			visit(name, value)
		}
	}
}

// pairs reads headers, query or form: a member that is an array is sent several times, null not at all.
func (v *vm) pairs(option string, value goja.Value) (pairs []Pair) {
	v.members(option, value, func(name string, value goja.Value) {
		list := []goja.Value{value}
		if o, ok := value.(*goja.Object); ok && o.ClassName() == "Array" {
			list = v.values.elements(o)
		}
		for _, value := range list {
			if value == nil || goja.IsNull(value) || goja.IsUndefined(value) {
				continue
			}
			text, ok := v.text(nil, value, false)
			if !ok {
				v.refuseOption("", "%s.%s of fetch is %s, not text", option, name, kindName(value))
			}
			pairs = append(pairs, Pair{name, string(text)})
		}
	})
	return pairs
}

func (v *vm) word(option string, value goja.Value) string {
	if !goja.IsString(value) {
		v.refuseOption("", "%s of fetch is %s, not a string", option, kindName(value))
	}
	return strings.Clone(value.String())
}

func (v *vm) fetchOptions(address, settings goja.Value) *options {
	o := &options{}
	o.request.Redirect = "follow"
	o.verify.size = -1
	o.request.URL = v.word("the URL", address)
	if goja.IsUndefined(settings) {
		return o
	}
	r := &o.request
	content, body := "", ""
	set := func(name, kind string, b []byte) {
		if body != "" {
			v.refuseOption("give one of them", "fetch has both %s and %s", body, name)
		}
		if body, content, r.Body = name, kind, b; b == nil {
			r.Body = []byte{}
		}
	}
	v.members("the second argument", settings, func(name string, value goja.Value) {
		switch name {
		case "method":
			r.Method = strings.ToUpper(v.word(name, value))
		case "headers":
			r.Headers = append(r.Headers, v.pairs(name, value)...)
		case "query":
			r.Query = v.pairs(name, value)
		case "body":
			if goja.IsNull(value) {
				return
			}
			b, ok := v.text(nil, value, true)
			if !ok {
				v.refuseOption("json: sends an object", "body of fetch is %s, not a string or a byte array", kindName(value))
			}
			set(name, "", b)
		case "json":
			set(name, "application/json", v.encoder.encode(nil, value))
		case "ndjson":
			list, ok := value.(*goja.Object)
			if !ok || list.ClassName() != "Array" {
				v.refuseOption("", "ndjson of fetch is %s, not an array", kindName(value))
			}
			var lines []byte
			for _, line := range v.values.elements(list) {
				lines = append(v.encoder.encode(lines, line), '\n')
			}
			set(name, "application/x-ndjson", lines)
		case "form":
			form := make([]string, 0, 8)
			for _, p := range v.pairs(name, value) {
				form = append(form, url.QueryEscape(p.Name)+"="+url.QueryEscape(p.Value))
			}
			set(name, "application/x-www-form-urlencoded", []byte(strings.Join(form, "&")))
		case "auth":
			r.Headers = append(r.Headers, Pair{"Authorization", v.authorization(value)})
		case "timeout":
			r.Timeout = v.duration(value)
		case "redirect":
			if r.Redirect = v.word(name, value); !slices.Contains([]string{"follow", "manual", "error"}, r.Redirect) {
				v.refuseOption("it is follow, manual or error", "redirect of fetch is %q", r.Redirect)
			}
		case "expect":
			o.expect = v.statuses(value)
		case "verify":
			v.members(name, value, func(name string, value goja.Value) {
				switch name {
				case "size":
					if !goja.IsNumber(value) || !(value.ToFloat() >= 0) || value.ToFloat() != math.Trunc(value.ToFloat()) || value.ToFloat() > 1<<53 {
						v.refuseOption("", "verify.size of fetch is %s, not a number of bytes", unfitting(value))
					}
					o.verify.size = int64(value.ToFloat())
				case "md5":
					o.verify.md5 = v.sum("verify.md5", value, md5.Size)
				case "sha256":
					o.verify.sha256 = v.sum("verify.sha256", value, sha256.Size)
				default:
					v.refuseOption("it has size, md5 and sha256", "verify of fetch has no %q", name)
				}
			})
		default:
			v.refuseOption(cmp.Or(wording.DidYouMean(name, optionNames), "it has "+strings.Join(optionNames, ", ")), "fetch has no option %q", name)
		}
	})
	if r.Method == "" && body != "" {
		r.Method = http.MethodPost
	}
	if content != "" && !slices.ContainsFunc(r.Headers, func(p Pair) bool { return strings.EqualFold(p.Name, "Content-Type") }) {
		r.Headers = append(r.Headers, Pair{"Content-Type", content})
	}
	return o
}

// sum is a checksum of so many bytes, in hexadecimal or base64.
func (v *vm) sum(option string, value goja.Value, size int) string {
	text := v.word(option, value)
	if _, err := hex.DecodeString(text); err == nil && len(text) == 2*size {
		return text
	}
	if b, err := base64.StdEncoding.DecodeString(text); err != nil || len(b) != size {
		v.refuseOption("write its hexadecimal digits, or base64", "%s of fetch is not the text of %d bytes", option, size)
	}
	return text
}

// authorization is the header of auth: { bearer } or { user, password }.
func (v *vm) authorization(value goja.Value) string {
	const hint = "it is { bearer } or { user, password }"
	var bearer, user, password string
	given := map[string]bool{}
	v.members("auth", value, func(name string, value goja.Value) {
		text := v.word("auth."+name, value)
		switch given[name] = true; name {
		case "bearer":
			bearer = text
		case "user":
			user = text
		case "password":
			password = text
		default:
			v.refuseOption(hint, "auth of fetch has no %q", name)
		}
	})
	switch {
	case given["bearer"] == given["user"] || given["bearer"] && given["password"]:
		v.refuseOption(hint, "auth of fetch has neither a bearer nor a user alone")
	case given["bearer"] && bearer == "":
		v.refuseOption("", "auth.bearer of fetch is empty")
	case given["bearer"]:
		return "Bearer " + bearer
	}
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

// duration is milliseconds, or a duration as the language writes it.
func (v *vm) duration(value goja.Value) time.Duration {
	if d := durationOf(value); d > 0 {
		return d
	}
	v.refuseOption("write milliseconds, or 500ms, 30s, 5m", "timeout of fetch is %s, not a duration", unfitting(value))
	return 0
}

func (v *vm) statuses(value goja.Value) (list []int) {
	values := []goja.Value{value}
	if o, ok := value.(*goja.Object); ok && o.ClassName() == "Array" {
		values = v.values.elements(o)
	}
	for _, s := range values {
		if s == nil || !goja.IsNumber(s) || s.ToInteger() < 100 || s.ToInteger() > 599 {
			v.refuseOption("write expect: [200, 304]", "expect of fetch holds %s, not a status", unfitting(s))
		}
		list = append(list, int(s.ToInteger()))
	}
	return list
}

// response is the object that fetch answers.
func (v *vm) response(a *answer) goja.Value {
	o := v.rt.NewObject()
	set := func(name string, value goja.Value) {
		must(o.DefineDataProperty(name, value, goja.FLAG_FALSE, goja.FLAG_FALSE, goja.FLAG_TRUE))
	}
	set("status", v.rt.ToValue(a.Status))
	set("ok", v.rt.ToValue(a.Status >= 200 && a.Status < 300))
	set("url", v.rt.ToValue(a.URL))
	set("elapsed", v.rt.ToValue(a.Elapsed.Milliseconds()))
	set("range", v.contentRange(a.Headers.Get("Content-Range")))
	headers := v.rt.NewObject()
	must(headers.Set("get", v.native("get", 1, func(call goja.FunctionCall) goja.Value {
		list := a.Headers.Values(call.Argument(0).String())
		if len(list) == 0 {
			return goja.Null()
		}
		return v.rt.ToValue(strings.ToValidUTF8(strings.Join(list, ", "), "\uFFFD"))
	})))
	set("headers", headers)
	c := &content{data: func() []byte { return a.body }, noJSON: func() {
		panic(v.fetchError(a.fail("json", "answered what is no JSON: %s", snippet(a.body))).value)
	}}
	return v.withReaders(o, func(r *reader) *goja.Object {
		return v.native(r.name, r.length, func(call goja.FunctionCall) goja.Value {
			promise, resolve, reject := v.rt.NewPromise()
			if thrown := v.rt.Try(func() {
				if a.items {
					panic(v.fetchError(a.fail("items", "was read item by item: each is a msg.value")).value)
				}
				must(resolve(r.read(v, c, call)))
			}); thrown != nil {
				must(reject(thrown.Value()))
			}
			return v.rt.ToValue(promise)
		})
	})
}

// withoutMark is a text without its byte order mark.
func withoutMark(b []byte) []byte { return bytes.TrimPrefix(b, []byte("\uFEFF")) }

var rangePattern = regexp.MustCompile(`^bytes (\d+)-(\d+)/(\d+|\*)$`)

// contentRange is what a partial answer holds (RFC 9110, section 14.4), or null.
func (v *vm) contentRange(header string) goja.Value {
	m := rangePattern.FindStringSubmatch(header)
	if m == nil {
		return goja.Null()
	}
	o := v.rt.NewObject()
	for i, name := range []string{"start", "end", "size"} {
		value := goja.Null()
		if n, err := strconv.ParseInt(m[i+1], 10, 64); err == nil {
			value = v.rt.ToValue(n)
		}
		define(o, name, value)
	}
	return o
}

var walkProgram = goja.MustCompile("walk", `(function(next) {
	return (function*() { for (let item; (item = next()) !== undefined;) yield item })();
})`, true)

// walk makes a generator of a Go function that answers undefined at its end.
func (v *vm) walk(next func() goja.Value) goja.Value {
	maker, err := v.rt.RunProgram(walkProgram)
	must(err)
	f, _ := goja.AssertFunction(maker)
	generator, err := f(goja.Undefined(), v.native("next", 0, func(goja.FunctionCall) goja.Value { return next() }))
	must(err)
	return generator
}

// lines walks the lines of a body: what stands between separators, without an empty last one.
func (v *vm) lines(body []byte, settings goja.Value) goja.Value {
	separator := []byte("\n")
	if value := option(v.options("lines", settings, "separator"), "separator"); value != nil {
		if separator = []byte(v.textOf("lines", "the option separator", value)); len(separator) == 0 {
			v.unfit("lines", "the option separator", value, "one character or more")
		}
	}
	rest := withoutMark(body)
	return v.walk(func() goja.Value {
		if len(rest) == 0 {
			return goja.Undefined()
		}
		line, after, _ := bytes.Cut(rest, separator)
		rest = after
		if string(separator) == "\n" {
			line = bytes.TrimSuffix(line, []byte("\r"))
		}
		return v.rt.ToValue(strings.ToValidUTF8(string(line), "\uFFFD"))
	})
}
