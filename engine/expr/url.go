package expr

import (
	"bytes"
	"net/url"
	"strings"
)

// AppendURL is Append for a template that is a URL: each hole is escaped for its place.
//
// A hole at the very beginning is the beginning of a URL, or all of it, and is taken as it is. One among scheme and path is a
// host or a port, and may hold nothing else. One in the path is a segment or a part of one: a slash in it is escaped. One
// behind the first question mark is a part of the query.
func (t *Template) AppendURL(dst []byte, env *Env) ([]byte, error) {
	begin := len(dst)
	return t.fill(dst, env, func(dst, hole []byte) ([]byte, string) {
		switch before := dst[begin:]; {
		case len(before) == 0:
			if bytes.ContainsFunc(hole, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
				return dst, "a space or control character in a URL"
			}
			return append(dst, hole...), ""
		case bytes.IndexByte(before, '?') >= 0:
			return append(dst, url.QueryEscape(string(hole))...), ""
		case inAuthority(before):
			if len(hole) == 0 || bytes.ContainsFunc(hole, notOfHost) {
				return dst, "a hole among scheme and path of a URL is a host or a port, and this is none"
			}
			return append(dst, hole...), ""
		default:
			segment := string(hole)
			if segment == "." || segment == ".." {
				return dst, "a hole in the path of a URL that is . or .. would lead to another path"
			}
			return append(dst, url.PathEscape(segment)...), ""
		}
	})
}

// inAuthority tells whether a URL that begins like this goes on within its host.
func inAuthority(url []byte) bool {
	_, rest, absolute := bytes.Cut(url, []byte("//"))
	return absolute && bytes.IndexByte(rest, '/') < 0
}

func notOfHost(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-._:[]", r))
}
