package http

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/flechtwerk/flechtwerk/engine/expr"
)

// credentials are what an Auth says for one config.
type credentials struct {
	header Pair // of basic, bearer and an API key; empty for others
	query  Pair // of an API key
	grant  *grant
}

// fill makes credentials of an Auth, and tells what of them is secret.
func (a *Auth) fill(env *expr.Env, secret func(string)) (*credentials, error) {
	if a == nil {
		return &credentials{}, nil
	}
	switch {
	case a.Basic != nil:
		user, err := fillText(a.Basic.User, env)
		if err != nil {
			return nil, err
		}
		password, err := fillText(a.Basic.Password, env)
		if err != nil {
			return nil, err
		}
		secret(password)
		return &credentials{header: Pair{"Authorization", basic(user, password)}}, nil
	case a.Bearer != nil:
		token, err := fillText(a.Bearer, env)
		if err != nil {
			return nil, err
		}
		secret(token)
		return &credentials{header: Pair{"Authorization", "Bearer " + token}}, nil
	case a.APIKey != nil:
		key, err := fillText(a.APIKey.Value, env)
		if err != nil {
			return nil, err
		}
		secret(key)
		if a.APIKey.In == InQuery {
			return &credentials{query: Pair{a.APIKey.Name, key}}, nil
		}
		return &credentials{header: Pair{a.APIKey.Name, key}}, nil
	}
	g, err := a.OAuth2.fill(env)
	if err != nil {
		return nil, err
	}
	secret(g.secret)
	secret(g.refresh)
	return &credentials{grant: g}, nil
}

func (o *OAuth2) fill(env *expr.Env) (*grant, error) {
	g := &grant{inBody: o.InBody}
	for _, part := range []struct {
		from *expr.Template
		to   *string
	}{{o.ClientID, &g.id}, {o.ClientSecret, &g.secret}, {o.RefreshToken, &g.refresh}} {
		if part.from == nil {
			continue
		}
		var err error
		if *part.to, err = fillText(part.from, env); err != nil {
			return nil, err
		}
	}
	var err error
	if g.url, err = fillURL(o.TokenURL, env); err != nil {
		return nil, err
	}
	if g.form, err = fillPairs(o.Params, env); err != nil {
		return nil, err
	}
	if len(o.Scopes) > 0 {
		g.form = append(g.form, Pair{"scope", strings.Join(o.Scopes, " ")})
	}
	return g, nil
}

func (a *Auth) check() error {
	if a == nil {
		return nil
	}
	n := 0
	for _, given := range []bool{a.Basic != nil, a.Bearer != nil, a.APIKey != nil, a.OAuth2 != nil} {
		if given {
			n++
		}
	}
	switch {
	case n != 1:
		return errors.New("auth is one of basic, bearer, an API key and OAuth2")
	case a.Basic != nil && (a.Basic.User == nil || a.Basic.Password == nil):
		return errors.New("auth: basic has a user and a password")
	case a.APIKey != nil && (a.APIKey.Name == "" || a.APIKey.Value == nil):
		return errors.New("auth: an API key has a name and a value")
	case a.APIKey != nil && a.APIKey.In == InBody:
		return errors.New("auth: an API key stands in a header or in the query")
	case a.OAuth2 != nil && (a.OAuth2.TokenURL == nil || a.OAuth2.ClientID == nil):
		return errors.New("auth: OAuth2 has the URL of a token server and the id of a client")
	case a.OAuth2 != nil && a.OAuth2.ClientSecret == nil && a.OAuth2.RefreshToken == nil:
		return errors.New("auth: OAuth2 with the credentials of the client has its secret")
	}
	return nil
}

// sign adds credentials to a request. A header of the same name that the request has itself gives way.
func (c *credentials) sign(r *Request, token string) {
	header := c.header
	if c.grant != nil {
		header = Pair{"Authorization", "Bearer " + token}
	}
	if header.Name != "" {
		r.Headers = append(slices.DeleteFunc(slices.Clone(r.Headers), func(p Pair) bool { return strings.EqualFold(p.Name, header.Name) }), header)
	}
	if c.query.Name != "" {
		r.URL = withoutMember(r.URL, c.query.Name)
		r.Query = append(slices.DeleteFunc(slices.Clone(r.Query), func(p Pair) bool { return p.Name == c.query.Name }), c.query)
	}
}

// token is the one to sign with, if one is needed.
func (w *walk) token(ctx context.Context, refused string) (string, error) {
	if w.credentials.grant == nil {
		return "", nil
	}
	token, rotated, err := w.config.Tokens.get(ctx, w.config.Client, w.credentials.grant, refused)
	if rotated {
		w.warn(WarnRotatedToken, MaskURL(w.credentials.grant.url), "the server gave another refresh token; it is kept in memory only, and after a restart the configured one is used")
	}
	return token, err
}

func basic(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

// encodeText is how RFC 6749, section 2.3.1, wants the id and the secret of a client in a header.
func encodeText(text string) []byte { return []byte(url.QueryEscape(text)) }

// isIdempotent tells whether a request may be sent twice without harm (RFC 9110, section 9.2.2).
func isIdempotent(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}
