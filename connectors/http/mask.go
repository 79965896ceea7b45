package http

import (
	"net/url"
	"strings"
	"unicode"
)

// mask stands where a secret was.
const mask = "***"

// MaskURL makes a URL fit to be shown: user and password, and the values of query members whose names speak of secrets
// (api_key, token, X-Amz-Signature, …), are replaced; a fragment is left out. Of a URL that cannot be read nothing is shown.
func MaskURL(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" {
		return "(unreadable URL)"
	}
	u.Fragment, u.RawFragment = "", ""
	user := ""
	if u.User != nil {
		user = mask + "@"
		u.User = nil
	}
	u.RawQuery = maskQuery(u.RawQuery)
	shown := u.String()
	if user == "" {
		return shown
	}
	scheme, rest, _ := strings.Cut(shown, "//")
	return scheme + "//" + user + rest
}

func maskQuery(query string) string {
	if query == "" {
		return ""
	}
	parts := strings.FieldsFunc(query, func(r rune) bool { return r == '&' || r == ';' })
	for i, part := range parts {
		name, value, found := strings.Cut(part, "=")
		plain, err := url.QueryUnescape(name)
		if err != nil {
			plain = name
		}
		if found && value != "" && isSecretName(plain) {
			parts[i] = name + "=" + mask
		}
	}
	return strings.Join(parts, "&")
}

// secretWords are words of a name that make it a secret's; secretParts do so inside of a word too (accesstoken).
var (
	secretWords = map[string]bool{
		"key": true, "auth": true, "authorization": true, "sig": true, "pass": true, "pwd": true, "pin": true, "otp": true,
		"jwt": true, "bearer": true, "session": true, "sid": true, "sessionid": true, "cookie": true, "code": true,
		"assertion": true,
	}
	secretParts = []string{"token", "secret", "passw", "passphrase", "apikey", "accesskey", "authkey", "privatekey", "signature", "credential"}
)

// isSecretName tells by its name that a value is to be hidden. Rather one too many.
func isSecretName(name string) bool {
	flat := strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, name)
	for _, part := range secretParts {
		if strings.Contains(flat, part) {
			return true
		}
	}
	for _, word := range words(name) {
		if secretWords[word] {
			return true
		}
	}
	return false
}

// isSecretHeader is isSecretName for headers, some of which are called otherwise than they sound.
func isSecretHeader(name string) bool {
	switch strings.ToLower(name) {
	case "idempotency-key", "www-authenticate":
		return false
	}
	return isSecretName(name)
}

// words splits a name where its words meet: at what is no letter or digit, and before a capital (apiKey).
func words(name string) []string {
	var all []string
	word := []rune{}
	end := func() {
		if len(word) > 0 {
			all = append(all, strings.ToLower(string(word)))
			word = word[:0]
		}
	}
	var last rune
	for _, r := range name {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			end()
		case unicode.IsUpper(r) && unicode.IsLower(last):
			end()
			word = append(word, r)
		default:
			word = append(word, r)
		}
		last = r
	}
	end()
	return all
}
