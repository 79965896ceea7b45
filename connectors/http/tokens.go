package http

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Tokens are the OAuth2 tokens of a process. It is safe for concurrent use.
//
//  1. Whoever needs a token that is not there asks for it, and everybody else who needs the same waits for the answer: a
//     token server is asked once, however many polls begin at once.
//  2. A failure is not kept. Those who waited for it have it all the same, so that a broken token server is not asked by each
//     of them.
//  3. A token is renewed early by the time that a request with it may take to arrive. Who was answered 401 with one renews
//     it, unless somebody has done so since.
type Tokens struct {
	mu   sync.Mutex
	held map[[sha256.Size]byte]*token // by what is asked for
}

// token is one of them. Tokens.mu guards it.
type token struct {
	access  string
	ends    time.Time // zero if nobody says
	refresh string    // what the server gave in place of the configured one
	asking  *tokenAnswer
}

// tokenAnswer is what those who wait for a token wait for. done is closed when the rest is there.
type tokenAnswer struct {
	done   chan struct{}
	access string
	err    error
}

// NewTokens returns a Tokens that has none yet.
func NewTokens() *Tokens { return &Tokens{held: map[[sha256.Size]byte]*token{}} }

const (
	// earlyRenewal is how long before its end a token is renewed, but at most a tenth of its life.
	earlyRenewal = 30 * time.Second
	// maxTokenBytes is the largest answer of a token server.
	maxTokenBytes = 1 << 20
)

// grant is what is asked of a token server.
type grant struct {
	url, id, secret, refresh string
	form                     []Pair
	inBody                   bool
}

func (g *grant) key() [sha256.Size]byte {
	h := sha256.New()
	for _, text := range append([]string{g.url, g.id, g.secret, g.refresh}, flat(g.form)...) {
		fmt.Fprintf(h, "%d:%s", len(text), text)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

func flat(pairs []Pair) []string {
	var texts []string
	for _, p := range pairs {
		texts = append(texts, p.Name, p.Value)
	}
	return texts
}

// get is a token that holds. refused is one that was answered 401; it is not given again. rotated tells that the server has
// given another refresh token with it.
func (t *Tokens) get(ctx context.Context, client *Client, g *grant, refused string) (access string, rotated bool, err error) {
	for key := g.key(); ; {
		access, rotated, err = t.once(ctx, client, g, key, refused)
		if !errors.Is(err, errGone) {
			return access, rotated, err
		}
	}
}

// errGone is what those who wait for a token see when whoever asked for it was cancelled: they ask themselves.
var errGone = errors.New("the poll that asked for the token was cancelled")

func (t *Tokens) once(ctx context.Context, client *Client, g *grant, key [sha256.Size]byte, refused string) (access string, rotated bool, err error) {
	t.mu.Lock()
	held := t.held[key]
	if held == nil {
		held = &token{}
		t.held[key] = held
	}
	if held.access != "" && held.access != refused && (held.ends.IsZero() || time.Now().Before(held.ends)) {
		defer t.mu.Unlock()
		return held.access, false, nil
	}
	answer := held.asking
	if answer != nil {
		t.mu.Unlock()
		select {
		case <-answer.done:
			return answer.access, false, answer.err
		case <-ctx.Done():
			return "", false, context.Cause(ctx)
		}
	}
	answer = &tokenAnswer{done: make(chan struct{})}
	held.asking = answer
	ask := *g
	if held.refresh != "" {
		ask.refresh = held.refresh
	}
	t.mu.Unlock()
	began := time.Now()
	got, err := ask.ask(ctx, client)
	t.mu.Lock()
	defer t.mu.Unlock()
	held.asking, held.access = nil, ""
	answer.err = err
	if err == nil {
		held.access, held.ends = got.Access, time.Time{}
		if life := time.Duration(got.Seconds) * time.Second; life > 0 {
			held.ends = began.Add(life - min(earlyRenewal, life/10))
		}
		if got.Refresh != "" && got.Refresh != ask.refresh && ask.refresh != "" {
			held.refresh, rotated = got.Refresh, true
		}
		answer.access = held.access
	} else if ctx.Err() != nil {
		answer.err = errGone
	}
	close(answer.done)
	return answer.access, rotated, err
}

// tokenReply is what a token server answers (RFC 6749, section 5.1).
type tokenReply struct {
	Access  string      `json:"access_token"`
	Type    string      `json:"token_type"`
	Expires json.Number `json:"expires_in"`
	Refresh string      `json:"refresh_token"`
	Error   string      `json:"error"`

	Seconds int64 `json:"-"`
}

func (g *grant) ask(ctx context.Context, client *Client) (*tokenReply, error) {
	form := []Pair{{"grant_type", "client_credentials"}}
	if g.refresh != "" {
		form = []Pair{{"grant_type", "refresh_token"}, {"refresh_token", g.refresh}}
	}
	form = append(form, g.form...)
	r := &Request{Method: http.MethodPost, URL: g.url, MaxBytes: maxTokenBytes, MaxDecompressed: maxTokenBytes, Redirect: Refuse,
		Headers: []Pair{{"Content-Type", "application/x-www-form-urlencoded"}, {"Accept", "application/json"}}}
	switch {
	case g.inBody || g.secret == "":
		form = append(form, Pair{"client_id", g.id})
		if g.secret != "" {
			form = append(form, Pair{"client_secret", g.secret})
		}
	default:
		r.Headers = append(r.Headers, Pair{"Authorization", basic(string(encodeText(g.id)), string(encodeText(g.secret)))})
	}
	r.Body = encodeForm(form)
	shown := MaskURL(g.url)
	response, err := client.Do(ctx, r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	var reply tokenReply
	wrong := json.Unmarshal(text, &reply)
	fail := func(why string) (*tokenReply, error) {
		return nil, &PollError{URL: "token server " + shown, code: CodeAuth, text: why, Status: response.Status}
	}
	switch {
	case response.Status != http.StatusOK:
		why := fmt.Sprintf("status %d", response.Status)
		if isToken(reply.Error) && len(reply.Error) <= 64 {
			why += " (" + reply.Error + ")"
		}
		return fail(why + "; look at the client's id and secret, the scopes, and whether the refresh token still holds")
	case wrong != nil, reply.Access == "":
		return fail("the answer has no access_token")
	case reply.Type != "" && !strings.EqualFold(reply.Type, "bearer"):
		return fail("the token is not of the type bearer")
	}
	if seconds, err := reply.Expires.Float64(); err == nil && seconds > 0 {
		reply.Seconds = int64(min(seconds, 1e9))
	}
	return &reply, nil
}
