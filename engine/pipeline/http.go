package pipeline

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/flechtwerk/flechtwerk/engine/decode"
	"github.com/flechtwerk/flechtwerk/engine/expr"
	"github.com/flechtwerk/flechtwerk/engine/wording"
)

// HTTP is the request of an extractor and how its answers are read. Templates have scope expr.Config.
type HTTP struct {
	Method         string
	URL            *expr.Template
	Query, Headers []HTTPParam
	// Body is nil for a request without one.
	Body *HTTPBody
	// Auth is nil for nobody.
	Auth *HTTPAuth
	// TLS is nil where the system decides.
	TLS *HTTPTLS
	// Proxy is a URL, "direct", or empty where the environment decides.
	Proxy string
	// Timeout and MaxBytes are 0 where `fetch:` decides.
	Timeout  time.Duration
	MaxBytes int64
	// Redirect is follow, manual or error.
	Redirect string
	// Paginate is nil where an answer is all there is.
	Paginate *HTTPPages
	// Conditional is nil where the method and the pages decide.
	Conditional *bool
	// Tail is nil where an answer is read as a whole.
	Tail   *HTTPTail
	Decode decode.Config
	// Expect is empty for 200 to 299.
	Expect     []StatusRange
	RetryAfter HTTPRetryAfter
	// Retry is nil for never.
	Retry *HTTPRetry
	// Secrets are what came from outside of the file into the request, and into the vars that it reads. None of it may be
	// shown.
	Secrets []string
}

// HTTPParam is a name with a value. One with a value that is a single hole which gives nil is left out.
type HTTPParam struct {
	Name  string
	Value *expr.Template
}

// HTTPBody is the body of a request: one of its members.
type HTTPBody struct {
	JSON *HTTPTree
	Form []HTTPParam
	Text *expr.Template
}

// HTTPTree is a JSON value with templates in it: a template, a literal (compact JSON), names with items, or a list of items.
type HTTPTree struct {
	Value   *expr.Template
	Literal []byte
	Names   []string
	Items   []*HTTPTree
	List    bool
}

// HTTPAuth is who asks: one of its members.
type HTTPAuth struct {
	Basic  *HTTPBasic
	Bearer *expr.Template
	APIKey *HTTPKey
	OAuth2 *HTTPOAuth2
}

// HTTPBasic is a user with a password.
type HTTPBasic struct{ User, Password *expr.Template }

// HTTPKey is a key in a header or in the query.
type HTTPKey struct {
	InHeader bool
	HTTPParam
}

// HTTPOAuth2 is a token server. ClientSecret and RefreshToken may be nil.
type HTTPOAuth2 struct {
	TokenURL, ClientID, ClientSecret, RefreshToken *expr.Template
	Scopes                                         []string
	Params                                         []HTTPParam
	InBody                                         bool
}

// HTTPTLS is how a connection is encrypted. Certificates and keys are in PEM, and empty where nothing is said.
type HTTPTLS struct {
	CA, Cert, Key []byte
	ServerName    string
	Insecure      bool
}

// HTTPPages is how an answer leads to the next page. One of Next, Link, Cursor, HasPage and HasOffset says so, or none where
// there is Until.
type HTTPPages struct {
	Next, Cursor       *expr.Expr // scope expr.Page
	Link               string
	HasPage, HasOffset bool
	Start              int
	// Param is where the cursor, the page or the offset is sent: In is query, header or body.
	ParamIn, ParamName string
	Until              *expr.Expr // scope expr.Item
	StopWhen           *expr.Expr // scope expr.Page
	MaxPages           int        // 0 is without limit
	OtherHosts         bool
}

// HTTPTail is a file that grows.
type HTTPTail struct {
	Separator        string // empty is a line feed
	FromEnd, Restart bool
	MaxBytes         int64 // 0 by default
}

// HTTPRetryAfter is how a poll waits where a server says so. What is 0 is by default.
type HTTPRetryAfter struct {
	Most  time.Duration
	Times int
	Off   bool
}

// HTTPRetry is how a request is tried again.
type HTTPRetry struct {
	Times     int
	Pause     Backoff
	AnyMethod bool
}

// try fills the templates of a request, in scope expr.Config, to see whether they can be filled. A nil HTTP has none.
func (h *HTTP) try(env *expr.Env) error {
	if h == nil {
		return nil
	}
	whole := []*expr.Template{}
	parts := slices.Concat(h.Query, h.Headers)
	if b := h.Body; b != nil {
		whole = append(whole, b.Text)
		parts = append(parts, b.Form...)
		whole = b.JSON.templates(whole)
	}
	if a := h.Auth; a != nil {
		whole = append(whole, a.Bearer)
		if a.Basic != nil {
			whole = append(whole, a.Basic.User, a.Basic.Password)
		}
		if a.APIKey != nil {
			whole = append(whole, a.APIKey.Value)
		}
		if o := a.OAuth2; o != nil {
			whole = append(whole, o.ClientID, o.ClientSecret, o.RefreshToken)
			parts = append(parts, o.Params...)
			if o.TokenURL != nil {
				if _, err := o.TokenURL.AppendURL(nil, env); err != nil {
					return err
				}
			}
		}
	}
	for _, p := range parts {
		if p.Value.Only() == nil {
			whole = append(whole, p.Value)
		}
	}
	if h.URL != nil {
		if _, err := h.URL.AppendURL(nil, env); err != nil {
			return err
		}
	}
	for _, t := range whole {
		if t == nil {
			continue
		}
		if _, err := t.Append(nil, env); err != nil {
			return err
		}
	}
	return nil
}

// templates adds those of a tree that must give something.
func (t *HTTPTree) templates(to []*expr.Template) []*expr.Template {
	if t == nil {
		return to
	}
	if t.Value != nil && t.Value.Only() == nil {
		to = append(to, t.Value)
	}
	for _, item := range t.Items {
		to = item.templates(to)
	}
	return to
}

// CursorField is a member of what an extractor's `cursor:` makes.
type CursorField struct {
	Name  string
	Value *expr.Expr // scope expr.Page
}

var httpMethods = []string{"GET", "POST", "PUT", "PATCH", "DELETE"}

// request is an `http:` on its way to an HTTP.
type request struct {
	*draft
	e    *Extractor
	spec *HTTPSpec
	in   *node // the mapping of `http:`
	what string
	out  *HTTP
}

// http makes the request of an extractor and what becomes of its answers.
func (d *draft) http(e *Extractor, item *Item[ExtractorSpec]) {
	spec := item.Value.HTTP
	at := item.value.find("http")
	if spec == nil || at == nil || at.kind != mapping {
		return
	}
	r := &request{draft: d, e: e, spec: spec, in: at, what: "extractors." + item.Name + ".http", out: &HTTP{Method: "GET", Redirect: "follow"}}
	e.HTTP = r.out
	r.line()
	r.body()
	r.auth()
	r.tls()
	r.pages()
	r.tail()
	r.decode()
	r.answers()
	r.secrets()
	r.records(&item.Value, item.value)
}

// noEffect reports a key that would do nothing.
func (r *request) noEffect(at *node, key, why, hint string) {
	if k := at.key(key); k != nil {
		r.report(k, "field.no_effect", fmt.Sprintf("`%s` has no effect %s", key, why), hint)
	}
}

// template compiles a template. What stands in it for `${…}` is taken as it is, and is a secret.
func (r *request) template(t *Template) *expr.Template {
	if !t.given() {
		return nil
	}
	text := &leafText{t.node, t.text}
	r.e.texts = append(r.e.texts, text)
	n := t.node
	out, err := expr.CompileSecretTemplate(n.text, r.scope(expr.Config), text, func(at int) (string, int) {
		rest := n.text[at:]
		switch {
		case strings.HasPrefix(rest, "$${"):
			return "${", 3
		case !strings.HasPrefix(rest, "${"):
			return "", 0
		}
		length := holeLength(rest)
		if length == 0 {
			r.at(n, at, "env.syntax", "`${` without its `}`", dollarHint)
			return rest, len(rest)
		}
		value, _, ok := r.hole(n, at, length)
		if ok {
			r.out.Secrets = append(r.out.Secrets, value)
		}
		return value, length
	})
	var wrong *expr.Error
	if errors.As(err, &wrong) {
		r.expressionError(text, wrong)
		return nil
	}
	r.e.read(n, out.Reads())
	return out
}

func (r *request) params(list *Templates) []HTTPParam {
	var out []HTTPParam
	for i := range list.Items {
		if t := r.template(&list.Items[i].Template); t != nil {
			out = append(out, HTTPParam{list.Items[i].name, t})
		}
	}
	return out
}

// line makes the request's first line and its headers.
func (r *request) line() {
	spec, out := r.spec, r.out
	if m := &spec.Method; m.given() && !m.missing {
		out.Method = strings.ToUpper(m.Value)
		if !slices.Contains(httpMethods, out.Method) {
			hint := ""
			if near := nearest(out.Method, []string{"get", "post", "put", "patch", "delete"}); near != "" {
				hint = fmt.Sprintf("did you mean %s?", strings.ToUpper(near))
			}
			if out.Method == http.MethodHead {
				hint = "an answer to HEAD has no body, so there is nothing to read"
			}
			r.report(m.node, "field.value", fmt.Sprintf("%s.method is one of %s, and %s is none", r.what, wording.List(httpMethods, "and"), m.node.text), hint)
			out.Method = "GET"
		}
	}
	out.URL = r.template(&spec.URL)
	r.checkURL(&spec.URL, r.what+".url", r.draft.spec.Fetch == nil || !r.draft.spec.Fetch.BaseURL.given())
	out.Query, out.Headers = r.params(&spec.Query), r.params(&spec.Headers)
	for i := range spec.Headers.Items {
		r.header(&spec.Headers.Items[i])
	}
	if p := &spec.Proxy; p.given() && !p.missing {
		out.Proxy = p.Value
		out.Secrets = append(out.Secrets, r.outside(p.node)...)
		u, err := url.Parse(p.Value)
		if p.Value != "direct" && (err != nil || u.Host == "" || !slices.Contains([]string{"http", "https", "socks5", "socks5h"}, u.Scheme)) {
			r.report(p.node, "field.value", r.what+".proxy is the URL of a proxy, or `direct`, and "+p.node.text+" is neither", "as in http://proxy.example.com:3128")
		}
	}
	out.Timeout, out.MaxBytes = spec.Timeout.Value, spec.MaxBytes.Value
	if spec.Redirect.given() {
		out.Redirect = string(spec.Redirect.Value)
	}
}

// outside are the texts that stand in a scalar for `${…}`.
func (r *request) outside(n *node) []string {
	if !strings.Contains(n.text, "${") {
		return nil
	}
	var found []string
	for at := 0; at < len(n.text); at++ {
		length := 0
		if strings.HasPrefix(n.text[at:], "${") && (at == 0 || n.text[at-1] != '$') {
			length = holeLength(n.text[at:])
		}
		if length == 0 {
			continue
		}
		quiet := &decoder{loader: &loader{Options: r.Options, set: r.set}, src: r.src}
		if value, _, ok := quiet.hole(n, at, length); ok {
			found = append(found, value)
		}
	}
	return found
}

// checkURL looks at a URL as far as it is written out.
func (r *request) checkURL(t *Template, what string, whole bool) {
	if !t.given() {
		return
	}
	text := t.node.text
	if t.node.style == block {
		r.report(t.node, "http.url", what+" ends with a line break, because it is a block", "write it on one line")
		return
	}
	begin := text
	if i := strings.Index(text, "{{"); i >= 0 {
		begin = text[:i]
	}
	if i := strings.Index(begin, "${"); i >= 0 {
		begin = begin[:i]
	}
	scheme, _, absolute := strings.Cut(begin, "://")
	switch {
	case strings.TrimSpace(text) == "":
		r.report(t.node, "http.url", what+" is empty", "")
		return
	case absolute && scheme != "http" && scheme != "https":
		r.report(t.node, "http.url", fmt.Sprintf("%s begins with neither http:// nor https://", what), "")
		return
	case !absolute && whole && begin != "" && !strings.HasPrefix("https://", begin):
		r.report(t.node, "http.url", fmt.Sprintf("%s begins with neither http:// nor https://, and there is no `fetch.base_url` to complete it", what), "write the whole URL")
		return
	}
	rest := text
	for at := 0; rest != ""; {
		i := strings.IndexAny(rest, "{}# \t\n")
		if i < 0 {
			return
		}
		switch {
		case strings.HasPrefix(rest[i:], "{{"):
			length := strings.Index(rest[i:], "}}")
			if length < 0 {
				return // reported where it was compiled
			}
			i += length + 1
		case i > 0 && rest[i-1] == '$':
			i += max(holeLength(rest[i-1:])-2, 0)
		case rest[i] == '{' || rest[i] == '}':
			r.at(t.node, at+i, "http.url", "a brace alone is no part of a URL", "a hole is written `{{ config.name }}`")
			return
		case rest[i] == '#':
			r.at(t.node, at+i, "http.url", "what follows # in a URL is never sent", "remove it, or write %23")
			return
		default:
			r.at(t.node, at+i, "http.url", "a space is no part of a URL", "write %20, or put it into `query:`, where it is escaped")
			return
		}
		at, rest = at+i+1, rest[i+1:]
	}
}

// frameHeaders are those that make the frame of a message.
var frameHeaders = []string{"content-length", "transfer-encoding", "connection", "upgrade", "trailer", "te", "keep-alive", "proxy-connection"}

func (r *request) header(h *namedTemplate) {
	name := strings.ToLower(h.name)
	switch {
	case h.name == "" || strings.ContainsFunc(h.name, func(c rune) bool {
		return c <= ' ' || c >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c)
	}):
		r.report(h.key, "http.header", fmt.Sprintf("%q is no name of a header", h.name), "")
	case slices.Contains(frameHeaders, name):
		r.report(h.key, "http.header", fmt.Sprintf("the header %s belongs to the connection and is not sent by a pipeline", h.name), "remove it")
	case name == "authorization" && r.spec.Auth != nil:
		r.report(h.key, "http.header", "the header Authorization is there beside `auth:`", "say it in one place")
	case (name == "if-none-match" || name == "if-modified-since") && (r.spec.Conditional.Value || !r.spec.Conditional.given()):
		r.report(h.key, "http.header", fmt.Sprintf("the header %s is what `conditional` sends", h.name), "remove it; ETag and Last-Modified are kept in the state by themselves")
	case name == "range" && r.spec.Tail != nil:
		r.report(h.key, "http.header", "the header Range is what `tail` sends", "remove it")
	}
}

func (r *request) body() {
	spec, at := r.spec.Body, r.in.find("body")
	if spec == nil || at.kind != mapping {
		return
	}
	given := presentOf(at, "json", "form", "text")
	if r.one(at, given, r.what+".body", "`json:`, `form:` or `text:`") {
		return
	}
	r.out.Body = &HTTPBody{Form: r.params(&spec.Form), Text: r.template(&spec.Text)}
	if spec.JSON.given() {
		r.out.Body.JSON = r.tree(spec.JSON.root)
	}
}

// presentOf are the keys of a mapping among some.
func presentOf(n *node, keys ...string) []*node {
	var found []*node
	for _, e := range n.entries {
		if slices.Contains(keys, e.key.text) {
			found = append(found, e.key)
		}
	}
	return found
}

// one reports a mapping that does not have exactly one of some keys. It answers whether it did.
func (r *request) one(at *node, given []*node, what, keys string) (reported bool) {
	switch {
	case len(given) > 1:
		r.report(given[1], "http.two", fmt.Sprintf("%s has `%s` and `%s`", what, given[0].text, given[1].text), "it is one of them")
	case len(given) == 0 && len(at.meant) == 0:
		place := at
		if at.head != nil {
			place = at.head
		}
		r.report(place, "field.missing", what+" does not say which", "write "+keys)
	default:
		return len(given) == 0
	}
	return true
}

func (r *request) tree(n *bodyNode) *HTTPTree {
	out := &HTTPTree{Literal: n.literal, Names: n.names, List: n.list}
	if n.template != nil {
		out.Value = r.template(n.template)
	}
	for _, item := range n.items {
		out.Items = append(out.Items, r.tree(item))
	}
	return out
}

func (r *request) auth() {
	spec, at := r.spec.Auth, r.in.find("auth")
	if spec == nil || at.kind != mapping {
		return
	}
	what := r.what + ".auth"
	if r.one(at, presentOf(at, "basic", "bearer", "api_key", "oauth2"), what, "`basic:`, `bearer:`, `api_key:` or `oauth2:`") {
		return
	}
	out := &HTTPAuth{Bearer: r.template(&spec.Bearer)}
	r.out.Auth = out
	if b := spec.Basic; b != nil {
		out.Basic = &HTTPBasic{r.template(&b.User), r.template(&b.Password)}
	}
	if k := spec.APIKey; k != nil {
		r.apiKey(k, at.find("api_key"), what+".api_key")
	}
	if o := spec.OAuth2; o != nil {
		out.OAuth2 = &HTTPOAuth2{
			TokenURL: r.template(&o.TokenURL), ClientID: r.template(&o.ClientID), ClientSecret: r.template(&o.ClientSecret),
			RefreshToken: r.template(&o.RefreshToken), Params: r.params(&o.Params), InBody: o.Credentials.Value == "body",
		}
		r.checkURL(&o.TokenURL, what+".oauth2.token_url", true)
		for i := range o.Scopes.Items {
			out.OAuth2.Scopes = append(out.OAuth2.Scopes, o.Scopes.Items[i].Value)
		}
		if inner := at.find("oauth2"); !inner.has("client_secret") {
			if !inner.has("refresh_token") && inner.has("client_id") {
				r.report(inner.key("client_id"), "http.auth", what+".oauth2 has neither `client_secret` nor `refresh_token`, so nothing proves who asks", "write one of them")
			}
			r.noEffect(inner, "credentials", "without a `client_secret`", "remove it")
		}
		for i := range o.Params.Items {
			if p := &o.Params.Items[i]; slices.Contains([]string{"grant_type", "client_id", "client_secret", "refresh_token", "scope"}, p.name) {
				r.report(p.key, "http.auth", fmt.Sprintf("%s.oauth2 sends `%s` itself", what, p.name), "remove it")
			}
		}
	}
}

func (r *request) apiKey(k *APIKeySpec, at *node, what string) {
	if at.kind != mapping || r.one(at, presentOf(at, "header", "query"), what, "`header:` or `query:`, the name that holds the key") {
		return
	}
	name := &k.Query
	if k.Header.given() {
		name = &k.Header
	}
	r.out.Auth.APIKey = &HTTPKey{InHeader: k.Header.given(), HTTPParam: HTTPParam{name.Value, r.template(&k.Value)}}
	others := &r.spec.Query
	if k.Header.given() {
		others = &r.spec.Headers
	}
	for i := range others.Items {
		if o := &others.Items[i]; strings.EqualFold(o.name, name.Value) {
			r.report(o.key, "http.auth", fmt.Sprintf("`%s` is what %s sends", o.name, what), "say it in one place")
		}
	}
}

func (r *request) tls() {
	spec, at := r.spec.TLS, r.in.find("tls")
	if spec == nil || at.kind != mapping {
		return
	}
	what := r.what + ".tls"
	out := &HTTPTLS{ServerName: spec.ServerName.Value, Insecure: spec.Insecure.Value}
	r.out.TLS = out
	if u := &r.spec.URL; u.given() && strings.HasPrefix(u.node.text, "http://") {
		r.noEffect(r.in, "tls", "on a URL that begins with http://", "write https:// in the URL")
	}
	if len(at.entries) == 0 {
		r.report(r.in.key("tls"), "field.empty", what+" says nothing", "write a key, or remove it")
	}
	if out.Insecure {
		for _, key := range []string{"ca", "server_name"} {
			r.noEffect(at, key, "where any server is trusted", "remove it, or `insecure`")
		}
		r.report(at.key("insecure"), "http.insecure", "any server is trusted, so that whoever is on the way can read and change everything", "name the server's certificate in `ca:`")
	}
	out.CA, out.Cert, out.Key = r.pem(&spec.CA, what+".ca"), r.pem(&spec.Cert, what+".cert"), r.pem(&spec.Key, what+".key")
	if out.CA != nil && !x509.NewCertPool().AppendCertsFromPEM(out.CA) {
		r.report(spec.CA.node, "http.tls", what+".ca holds no certificate in PEM", "")
	}
	for _, pair := range [][2]string{{"cert", "key"}, {"key", "cert"}} {
		if k := at.key(pair[0]); k != nil && !at.has(pair[1]) {
			r.report(k, "http.tls", fmt.Sprintf("%s has a `%s` without its `%s`", what, pair[0], pair[1]), "write both")
		}
	}
	if out.Cert != nil && out.Key != nil {
		if _, err := tls.X509KeyPair(out.Cert, out.Key); err != nil {
			r.report(spec.Cert.node, "http.tls", what+": certificate and key are no pair in PEM", "")
		}
	}
}

// pem reads a file beside the pipeline.
func (r *request) pem(name *Text, what string) []byte {
	if !name.given() || name.missing {
		return nil
	}
	text, err := r.ReadFile(r.beside(name.Value))
	if err != nil {
		r.report(name.node, "http.tls", fmt.Sprintf("the file of %s cannot be read: %v", what, reason(err)), "the path is relative to the pipeline file")
		return nil
	}
	return text
}

// pageStyles are the keys of which one says how pages follow each other.
var pageStyles = []string{"next", "link", "cursor", "page", "offset"}

func (r *request) pages() {
	spec, at := r.spec.Paginate, r.in.find("paginate")
	if spec == nil || at.kind != mapping {
		return
	}
	what := r.what + ".paginate"
	given := presentOf(at, pageStyles...)
	if !at.has("until") || len(given) > 1 {
		if r.one(at, given, what, "`next:`, `link:`, `cursor:`, `page:` or `offset:`") {
			return
		}
	}
	style := ""
	if len(given) > 0 {
		style = given[0].text
	}
	of, scope := &r.e.expressions, r.scope(expr.Page)
	out := &HTTPPages{
		Next: r.compile(of, &spec.Next, scope, expr.AText), Cursor: r.compile(of, &spec.Cursor, scope, expr.Any), Link: spec.Link.Value,
		HasPage: style == "page", HasOffset: style == "offset", MaxPages: spec.MaxPages.Value, OtherHosts: spec.OtherHosts.Value,
		Until: r.compile(of, &spec.Until, r.scope(expr.Item), expr.Condition), StopWhen: r.compile(of, &spec.StopWhen, scope, expr.Condition),
	}
	r.out.Paginate = out
	out.Start = spec.Page.Value + spec.Offset.Value
	for _, x := range []struct {
		e    *expr.Expr
		from *Expression
	}{{out.Next, &spec.Next}, {out.Cursor, &spec.Cursor}, {out.Until, &spec.Until}, {out.StopWhen, &spec.StopWhen}} {
		if x.e != nil && x.e.Constant() {
			r.report(x.from.node, "http.paginate", fmt.Sprintf("%s has an expression that is the same for every page", what), "name what tells, as in body.next")
		}
	}
	switch style {
	case "page", "offset":
		out.ParamIn, out.ParamName = "query", style
	case "cursor":
		if !at.has("param") {
			r.report(at.key("cursor"), "field.missing", what+" has no `param:`", "it says where the cursor is sent, as in `param: after`")
		}
	case "":
		for _, key := range []string{"stop_when", "max_pages"} {
			r.noEffect(at, key, "without a next page", "write "+"`next:`, `link:`, `cursor:`, `page:` or `offset:`")
		}
		fallthrough
	default:
		r.noEffect(at, "param", "with `"+cmpOr(style, "until")+"`", "remove it")
	}
	if style != "next" && style != "link" {
		r.noEffect(at, "other_hosts", "where the next page has the same URL", "remove it")
	}
	if p := &spec.Param; p.given() {
		out.ParamIn, out.ParamName = p.In, p.Name
		if p.In == "body" && (r.spec.Body == nil || r.spec.Body.Text.given()) {
			r.report(p.node, "http.paginate", what+".param is in the body, and the request has no `body.json` or `body.form`", "write a body, or send it in the query")
		}
	}
}

func cmpOr(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

func (r *request) tail() {
	spec, at := r.spec.Tail, r.in.find("tail")
	if spec == nil || at.kind != mapping {
		return
	}
	r.out.Tail = &HTTPTail{Separator: spec.Separator.Value, FromEnd: spec.From.Value == "end", Restart: spec.Truncated.Value == "restart", MaxBytes: spec.MaxBytes.Value}
	if spec.Separator.given() && spec.Separator.Value == "" {
		r.report(spec.Separator.node, "field.value", r.what+".tail.separator is empty", `as in "\n"`)
	}
	if k := r.in.key("paginate"); k != nil {
		r.report(k, "http.two", r.what+" has `tail` and `paginate`", "a file that grows has no pages")
	}
	if r.out.Method != http.MethodGet {
		r.report(r.spec.Method.node, "http.two", fmt.Sprintf("%s has `tail` and the method %s", r.what, r.out.Method), "a part of a file is asked for by GET")
	}
	for key, why := range map[string]string{"body": "with `tail`, which asks for a part of a file", "conditional": "with `tail`, which asks for what is new anyway",
		"max_bytes": "with `tail`; `tail.max_bytes` is how much one request asks for"} {
		r.noEffect(r.in, key, why, "remove it")
	}
}

// answers are which answers there are and what is done about the others.
func (r *request) answers() {
	spec, out := r.spec, r.out
	out.Expect = spec.Expect.Ranges
	out.RetryAfter = HTTPRetryAfter{spec.RetryAfter.Most, spec.RetryAfter.Times, spec.RetryAfter.Off}
	if spec.Conditional.given() {
		on := spec.Conditional.Value
		out.Conditional = &on
		if on && out.Method != http.MethodGet {
			r.report(r.in.key("conditional"), "field.no_effect", "`conditional` has no effect with the method "+out.Method, "servers answer only a GET with 304")
		}
	}
	if retry := spec.Retry; retry != nil {
		out.Retry = &HTTPRetry{Times: retry.Times.Value, Pause: Backoff{time.Second, time.Minute}, AnyMethod: retry.AnyMethod.Value}
		if retry.Pause.given() {
			out.Retry.Pause = retry.Pause.Value
		}
		safe := out.Method == http.MethodGet || out.Method == http.MethodPut || out.Method == http.MethodDelete
		switch {
		case !safe && !out.Retry.AnyMethod:
			r.report(r.in.key("retry"), "http.retry", fmt.Sprintf("a %s is not sent twice, because the first one may have done its work", out.Method), "`any_method: true` vouches that a second time does no harm")
		case safe && out.Retry.AnyMethod:
			r.noEffect(r.in.find("retry"), "any_method", "with the method "+out.Method+", which is safe to repeat", "remove it")
		}
	}
}

// secrets adds the vars that came from outside, as far as the request reads them, and leaves out what is none.
func (r *request) secrets() {
	var texts []string
	for _, t := range r.draft.spec.Vars.texts {
		texts = append(texts, t.values...)
	}
	r.out.Secrets = slices.DeleteFunc(append(r.out.Secrets, texts...), func(s string) bool { return len(s) < 3 || strings.Contains(s, "://") })
	slices.Sort(r.out.Secrets)
	r.out.Secrets = slices.Compact(r.out.Secrets)
}

// records compiles what becomes of the records of an answer.
func (r *request) records(spec *ExtractorSpec, stage *node) {
	e, of := r.e, &r.e.expressions
	e.Records = r.compile(of, &spec.Records, r.scope(expr.Response), expr.AList)
	what := "extractors." + e.Name
	switch message, relay := stage.key("message"), stage.has("relay"); {
	case message != nil && relay:
		r.report(second(message, stage.key("relay")), "stage.two_bodies", what+" has a `message` and a `relay`", "write the Message in the script, or leave the script out")
	case message == nil && !relay:
		r.report(e.item.key, "stage.no_body", what+" has neither `message:` nor `relay:`, so nothing becomes of what it reads", "write one of them")
	case relay:
		if !spec.Timeout.given() {
			e.Timeout = RelayTimeout
		}
	default:
		r.noEffect(stage, "timeout", "in a stage without a script", "`http.timeout` is the time of a request")
	}
	e.Message = r.message(of, stage, spec.Message, what, r.scope(expr.Item))
	if e.Message != nil {
		r.destination(what, e.item.key, stage, &spec.OutputTopics, &e.OutputTopics, e.Message, spec.Message)
	}
	r.cursor(spec, stage, what)
	r.readers(stage, what)
}

// second is the one of two nodes that stands below.
func second(a, b *node) *node {
	if b.line > a.line || b.line == a.line && b.column > a.column {
		return b
	}
	return a
}

// cursor compiles the `cursor:`, member by member.
func (r *request) cursor(spec *ExtractorSpec, stage *node, what string) {
	c := &spec.Cursor
	if !c.given() || c.broken {
		return
	}
	if c.tree.Kind != expr.Map || len(c.tree.Items) == 0 {
		r.report(c.node, "field.type", what+".cursor is a mapping of names and expressions", "as in `cursor: { since: page.last.time }`")
		return
	}
	r.e.texts = append(r.e.texts, leavesOf(c.tree)...)
	for i, item := range c.tree.Items {
		value, errs := expr.CompileTree(item, r.scope(expr.Page))
		for j := range errs {
			r.expressionError(errs[j].Tree.Ref.(*leafText), errs[j].Err)
		}
		if c.tree.Names[i] == "$http" {
			r.report(item.Ref.(*leafText).node, "field.value", "the member $http of the state is where pages, versions and files stand", "use another name")
		}
		if value != nil {
			r.e.read(item.Ref.(*leafText).node, value.Reads())
			r.e.Cursor = append(r.e.Cursor, CursorField{c.tree.Names[i], value})
		}
	}
}
