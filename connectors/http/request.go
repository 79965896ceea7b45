package http

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// Pair is a name with a value, of a query or a header. Names may come more than once and keep their order.
type Pair struct{ Name, Value string }

// Redirect says what is done with an answer that points elsewhere.
type Redirect uint8

// What is done with an answer that points elsewhere.
const (
	Follow Redirect = iota // ask there, up to Config.MaxRedirects times
	Manual                 // the answer is the result
	Refuse                 // it is an error
)

// Request is one request.
type Request struct {
	Method string // GET if empty
	// URL is absolute, or is completed by the client's base URL. A user and a password in it become a header.
	URL string
	// Query is appended to that of the URL, escaped.
	Query []Pair
	// Headers may be any but those that make the frame of a message (Content-Length and its like).
	Headers []Pair
	Body    []byte
	// Timeout, MaxBytes and MaxDecompressed stand in for those of the client where they are above 0.
	Timeout                   time.Duration
	MaxBytes, MaxDecompressed int64
	Redirect                  Redirect
}

var (
	errNoScheme = errors.New("the URL begins with neither http:// nor https://, and there is no base_url to complete it")
	errScheme   = errors.New("the URL begins with neither http:// nor https://")
	errNoHost   = errors.New("the URL names no host")
)

func method(r *Request) string {
	if r.Method == "" {
		return http.MethodGet
	}
	return strings.ToUpper(r.Method)
}

// prepare makes of a request what goes out, or says why it cannot. Its errors hold nothing of the request but the names of
// headers.
func (c *Client) prepare(r *Request) (*http.Request, error) {
	u, err := c.complete(r.URL, r.Query)
	if err != nil {
		return nil, err
	}
	name := method(r)
	if !isToken(name) || name == http.MethodConnect {
		return nil, errors.New("this method cannot be sent")
	}
	header := make(http.Header, len(r.Headers)+4)
	for _, p := range r.Headers {
		if err := checkHeader(p); err != nil {
			return nil, err
		}
		key := http.CanonicalHeaderKey(p.Name)
		header[key] = append(header[key], p.Value)
	}
	wire := &http.Request{
		Method: name, URL: u, Header: header, Host: header.Get("Host"),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	header.Del("Host")
	if u.User != nil {
		if header["Authorization"] == nil {
			password, _ := u.User.Password()
			wire.SetBasicAuth(u.User.Username(), password)
		}
		u.User = nil
	}
	for _, p := range [...]Pair{{"User-Agent", c.config.UserAgent}, {"Accept", "*/*"}} {
		if header[p.Name] == nil {
			header[p.Name] = []string{p.Value}
		}
	}
	// A range counts the bytes as sent, so nobody should squeeze them.
	if header["Accept-Encoding"] == nil && header["Range"] == nil && name != http.MethodHead {
		header["Accept-Encoding"] = []string{"gzip, deflate"}
	}
	setBody(wire, r.Body)
	return wire, nil
}

func setBody(wire *http.Request, body []byte) {
	if len(body) == 0 {
		return
	}
	wire.ContentLength = int64(len(body))
	wire.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	wire.Body, _ = wire.GetBody()
}

// complete joins the base URL, the request's and the query.
func (c *Client) complete(text string, query []Pair) (*url.URL, error) {
	u, err := parseURL(text)
	if err != nil {
		return nil, err
	}
	if !u.IsAbs() {
		if c.base == nil {
			return nil, errNoScheme
		}
		joined := *c.base
		if path := u.EscapedPath(); path != "" {
			whole := strings.TrimSuffix(c.base.EscapedPath(), "/") + "/" + strings.TrimPrefix(path, "/")
			if joined.Path, err = url.PathUnescape(whole); err != nil {
				return nil, errors.New("the path of the URL has a wrong escape")
			}
			joined.RawPath = whole
		}
		joined.RawQuery = joinQuery(c.base.RawQuery, u.RawQuery)
		u = &joined
	}
	for _, p := range query {
		u.RawQuery = joinQuery(u.RawQuery, url.QueryEscape(p.Name)+"="+url.QueryEscape(p.Value))
	}
	return u, nil
}

func joinQuery(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "&" + b
}

var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// parseURL reads a URL of the schemes http and https, or one without scheme and host. Its errors do not repeat the URL.
func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		var inner *url.Error
		if errors.As(err, &inner) {
			err = inner.Err
		}
		return nil, errors.New("the URL cannot be read: " + quoted.ReplaceAllString(err.Error(), "…"))
	}
	switch u.Scheme {
	case "http", "https":
		if u.Hostname() == "" {
			return nil, errNoHost
		}
	case "":
		if u.Host != "" || u.User != nil {
			return nil, errScheme
		}
	default:
		return nil, errScheme
	}
	u.Fragment, u.RawFragment = "", ""
	u.RawQuery = escapeQuery(u.RawQuery)
	return u, nil
}

// escapeQuery escapes what would break the line that the query is sent in and leaves the rest as the user has it.
func escapeQuery(query string) string {
	bad := func(c byte) bool { return c <= ' ' || c >= 0x7f || c == '"' || c == '<' || c == '>' }
	n := 0
	for i := range len(query) {
		if bad(query[i]) {
			n++
		}
	}
	if n == 0 {
		return query
	}
	b := make([]byte, 0, len(query)+2*n)
	for i := range len(query) {
		if c := query[i]; bad(c) {
			b = fmt.Appendf(b, "%%%02X", c)
		} else {
			b = append(b, c)
		}
	}
	return string(b)
}

func checkHeader(p Pair) error {
	if !isToken(p.Name) {
		return errors.New("a header's name is empty or has a character that may not be in one")
	}
	switch http.CanonicalHeaderKey(p.Name) {
	case "Content-Length", "Transfer-Encoding", "Trailer", "Connection", "Keep-Alive", "Upgrade", "Te", "Expect":
		return fmt.Errorf("the header %s is made by the client itself; leave it out", p.Name)
	}
	for i := range len(p.Value) {
		if c := p.Value[i]; c < ' ' && c != '\t' || c == 0x7f {
			return fmt.Errorf("the value of the header %s has a line break or another control character", p.Name)
		}
	}
	return nil
}

// isToken tells whether text may be a method or the name of a header (RFC 9110, section 5.6.2).
func isToken(text string) bool {
	for i := range len(text) {
		c := text[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return text != ""
}

// redirect makes the next request of an answer that points elsewhere, as the Fetch standard has it. Neither a request nor
// an error means that the answer is the result.
func (x *exchange) redirect(wire *http.Request, answer *http.Response, hops int) (*http.Request, *Error) {
	status := answer.StatusCode
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
	default:
		return nil, nil
	}
	location := answer.Header.Get("Location")
	if location == "" || x.request.Redirect == Manual {
		return nil, nil
	}
	fail := func(format string, args ...any) (*http.Request, *Error) {
		return nil, &Error{Code: CodeRedirects, Err: fmt.Errorf(format, args...)}
	}
	if x.request.Redirect == Refuse {
		return fail("status %d points to %s, and redirects are refused", status, MaskURL(location))
	}
	if limit := x.client.config.MaxRedirects; hops >= limit {
		return fail("more than %d redirects, which is the limit %s", limit, optionMaxRedirects)
	}
	to, err := wire.URL.Parse(location)
	if err == nil {
		to, err = parseURL(to.String())
	}
	if err != nil {
		return fail("status %d points to where no request can go (Location: %s)", status, MaskURL(location))
	}
	next := &http.Request{
		Method: wire.Method, URL: to, Header: wire.Header.Clone(), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	to.User = nil
	body := x.request.Body
	if wire.ContentLength == 0 {
		body = nil // an earlier redirect has dropped it
	}
	if status == http.StatusSeeOther && wire.Method != http.MethodHead || status < http.StatusSeeOther && wire.Method == http.MethodPost {
		next.Method, body = http.MethodGet, nil
		for name := range next.Header {
			if strings.HasPrefix(name, "Content-") {
				next.Header.Del(name)
			}
		}
	}
	setBody(next, body)
	if hostName(to) == hostName(wire.URL) && to.Scheme == wire.URL.Scheme {
		next.Host = wire.Host
	} else if leavesHome(wire.URL, to) {
		for name := range next.Header {
			if isSecretHeader(name) {
				next.Header.Del(name)
			}
		}
	}
	return next, nil
}

// leavesHome tells that secrets meant for one URL are none of the other's business: it is another host, or the way to it is
// open to everybody. The step from http to https of the same name is the one that is harmless.
func leavesHome(from, to *url.URL) bool {
	return !strings.EqualFold(from.Hostname(), to.Hostname()) ||
		!(from.Scheme == "http" && to.Scheme == "https")
}
