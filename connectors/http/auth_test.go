package http_test

import (
	"encoding/json"
	"fmt"
	"io"
	nethttp "net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flechtwerk/flechtwerk/connectors/connectortest"
	"github.com/flechtwerk/flechtwerk/connectors/http"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

func TestAuth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			name         string
			auth         http.Auth
			header, want string
			url          string
		}{
			{"basic", http.Auth{Basic: &http.Basic{User: template(t, "{{ config.user }}"), Password: template(t, "pä:ss")}}, "Authorization", "Basic YW5uYTpww6Q6c3M=", "/items"},
			{"bearer", http.Auth{Bearer: template(t, "tok")}, "Authorization", "Bearer tok", "/items"},
			{"key in a header", http.Auth{APIKey: &http.APIKey{In: http.InHeader, Name: "X-Key", Value: template(t, "k&y")}}, "X-Key", "k&y", "/items"},
			{"key in the query", http.Auth{APIKey: &http.APIKey{Name: "k", Value: template(t, "k&y")}}, "X-None", "", "/items?k=k%26y"},
		} {
			r := newRig(t, oneItem)
			r.config.Auth = &c.auth
			if err := (&ledger{}).poll(t.Context(), r.source(t), `{"user":"anna"}`); err != nil {
				t.Fatal(err)
			}
			if got := r.Requests()[0]; got.Header.Get(c.header) != c.want || got.URL != c.url {
				t.Errorf("%s: %s with %s %q", c.name, got.URL, c.header, got.Header.Get(c.header))
			}
		}
	})
}

// tokenServer gives tokens t1, t2, …, and takes only the last one for /items.
type tokenServer struct {
	mu       sync.Mutex
	given    int
	expires  int
	refresh  string // what it gives in place of the refresh token
	fail     int    // requests for tokens that it refuses
	forms    []url.Values
	users    []string
	asked    int
	refusals int // of /items
	delay    time.Duration
}

func (s *tokenServer) ServeHTTP(w nethttp.ResponseWriter, r *nethttp.Request) {
	if r.URL.Path == "/token" {
		pass(s.delay)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.URL.Path != "/token" {
		s.asked++
		if r.Header.Get("Authorization") != fmt.Sprintf("Bearer t%d", s.given) {
			s.refusals++
			w.WriteHeader(nethttp.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, `[{"id":1}]`)
		return
	}
	_ = r.ParseForm()
	s.forms = append(s.forms, r.PostForm)
	user, password, _ := r.BasicAuth()
	s.users = append(s.users, user+":"+password)
	if s.fail > 0 {
		s.fail--
		w.WriteHeader(nethttp.StatusBadRequest)
		_, _ = io.WriteString(w, `{"error":"invalid_grant","error_description":"the secret s3cret-client is wrong"}`)
		return
	}
	s.given++
	reply := map[string]any{"access_token": fmt.Sprintf("t%d", s.given), "token_type": "Bearer"}
	if s.expires > 0 {
		reply["expires_in"] = s.expires
	}
	if s.refresh != "" {
		reply["refresh_token"] = s.refresh
	}
	_ = json.NewEncoder(w).Encode(reply)
}

func (s *tokenServer) revoke() { s.mu.Lock(); s.given++; s.mu.Unlock() }

func newOAuth(t *testing.T, s *tokenServer) *rig {
	t.Helper()
	r := newRig(t)
	client, err := http.New(http.Config{Dial: connectortest.ServeInMemory(t, s), Proxy: "direct"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	r.config.Client = client
	r.config.Auth = &http.Auth{OAuth2: &http.OAuth2{
		TokenURL: template(t, "http://auth.test/token"), ClientID: template(t, "me&"), ClientSecret: template(t, "s3cret-client"),
		Scopes: []string{"read", "list"}, Params: []http.Param{{Name: "audience", Value: template(t, "api")}},
	}}
	return r
}

func TestOAuth2(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &tokenServer{expires: 3600, delay: time.Second}
		r := newOAuth(t, s)
		source := r.source(t)
		// Single flight: many polls at once get one token.
		done := make(chan error)
		for range 10 {
			go func() { done <- (&ledger{}).poll(t.Context(), source, `{}`) }()
		}
		for range 10 {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		if s.given != 1 || s.asked != 10 {
			t.Errorf("%d tokens for %d requests", s.given, s.asked)
		}
		want := url.Values{"grant_type": {"client_credentials"}, "scope": {"read list"}, "audience": {"api"}}
		if got := s.forms[0]; got.Encode() != want.Encode() || s.users[0] != "me%26:s3cret-client" {
			t.Errorf("asked with %v as %s", got, s.users[0])
		}
		// Another poller of the process has it too.
		r.config.Tokens = http.NewTokens()
		one, two := r.source(t), r.source(t)
		for _, source := range []stream.Source{one, two, one} {
			if err := (&ledger{}).poll(t.Context(), source, `{}`); err != nil {
				t.Fatal(err)
			}
		}
		if s.given != 2 {
			t.Errorf("%d tokens", s.given)
		}
		// It is renewed shortly before its end.
		pass(time.Hour - 32*time.Second)
		_ = (&ledger{}).poll(t.Context(), two, `{}`)
		before := s.given
		pass(2 * time.Second)
		_ = (&ledger{}).poll(t.Context(), two, `{}`)
		if before != 2 || s.given != 3 || s.refusals != 0 {
			t.Errorf("%d tokens before its time, %d after, %d refusals", before, s.given, s.refusals)
		}
		// Answered 401, it is renewed once.
		s.revoke()
		if err := (&ledger{}).poll(t.Context(), two, `{}`); err != nil || s.refusals != 1 {
			t.Errorf("%v after %d refusals", err, s.refusals)
		}
	})
}

func TestOAuth2Refusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &tokenServer{fail: 1}
		r := newOAuth(t, s)
		source := r.source(t)
		err := (&ledger{}).poll(t.Context(), source, `{}`)
		wantCode(t, err, http.CodeAuth, "token server http://auth.test/token: status 400 (invalid_grant)")
		if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("the error tells the secret: %v", err)
		}
		if err := (&ledger{}).poll(t.Context(), source, `{}`); err != nil {
			t.Errorf("a failure is kept: %v", err)
		}
		// A server that refuses every token is asked for one more, not for ever.
		refusing := func(w nethttp.ResponseWriter, r *nethttp.Request) {
			if r.URL.Path == "/token" {
				s.ServeHTTP(w, r)
				return
			}
			w.WriteHeader(nethttp.StatusUnauthorized)
		}
		client, err := http.New(http.Config{Dial: connectortest.ServeInMemory(t, nethttp.HandlerFunc(refusing)), Proxy: "direct"})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		r.config.Client = client
		before := s.given
		wantCode(t, (&ledger{}).poll(t.Context(), r.source(t), `{}`), http.CodeStatus, "status 401")
		if s.given != before+2 {
			t.Errorf("%d tokens", s.given-before)
		}
	})
}

func TestOAuth2RefreshToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &tokenServer{refresh: "r2", expires: 100}
		r := newOAuth(t, s)
		o := r.config.Auth.OAuth2
		o.RefreshToken, o.InBody, o.Scopes, o.Params = template(t, "r1-s3cret"), true, nil, nil
		source := r.source(t)
		for range 2 {
			if err := (&ledger{}).poll(t.Context(), source, `{}`); err != nil {
				t.Fatal(err)
			}
			pass(time.Minute * 2)
		}
		if a, b := s.forms[0].Encode(), s.forms[1].Encode(); a != "client_id=me%26&client_secret=s3cret-client&grant_type=refresh_token&refresh_token=r1-s3cret" ||
			b != strings.Replace(a, "r1-s3cret", "r2", 1) || s.users[0] != ":" {
			t.Errorf("asked with %s, then with %s", a, b)
		}
		same(t, "warnings", r.codes(), []string{http.WarnRotatedToken})
	})
}

// TestOAuth2LeaderIsCancelled lets the poll that asks for a token go away: those who wait for it ask themselves.
func TestOAuth2LeaderIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &tokenServer{delay: 20 * time.Second}
		r := newOAuth(t, s)
		source := r.source(t)
		ctx, cancel := contextWithCause(t, 10*time.Second, errKilled)
		defer cancel()
		leader := make(chan error)
		go func() { leader <- (&ledger{}).poll(ctx, source, `{}`) }()
		pass(time.Second)
		l := &ledger{}
		if err := l.poll(t.Context(), source, `{}`); err != nil {
			t.Error(err)
		}
		if err := <-leader; err == nil {
			t.Error("the leader was not cancelled")
		}
		same(t, "values", l.values, ids(1, 1))
	})
}
