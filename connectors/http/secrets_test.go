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

	"github.com/flechtwerk/flechtwerk/connectors/connectortest"
	"github.com/flechtwerk/flechtwerk/connectors/http"
	"github.com/flechtwerk/flechtwerk/engine/expr"
)

// TestH6SecretsAreInNoErrorStateOrEvent plants secrets wherever a request may have one, before a server that repeats all that
// it is sent, and looks for them in everything that comes out.
func TestH6SecretsAreInNoErrorStateOrEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		planted := map[string]string{
			"path": "p-S3CRET/1+ä", "query": "q-S3CRET&2", "plain": "e-S3CRET=3", "header": "h-S3CRET 4", "key": "k-S3CRET 5", "password": "w-S3CRET:6",
			"bearer": "b-S3CRET.7", "client": "c-S3CRET 8", "refresh": "r-S3CRET 9", "config": "g-S3CRET-10", "user": "u-S3CRET-11",
		}
		found := 0
		looked := 0
		for name, auth := range map[string]*http.Auth{
			"key in the query": {APIKey: &http.APIKey{Name: "k", Value: template(t, planted["key"])}},
			"key in a header":  {APIKey: &http.APIKey{In: http.InHeader, Name: "K", Value: template(t, planted["key"])}},
			"basic":            {Basic: &http.Basic{User: template(t, "anna"), Password: template(t, planted["password"])}},
			"bearer":           {Bearer: template(t, planted["bearer"])},
			"oauth": {OAuth2: &http.OAuth2{TokenURL: template(t, "http://replay.test/token?token={{ config.token }}"), ClientID: template(t, "id"),
				ClientSecret: template(t, planted["client"]), RefreshToken: template(t, planted["refresh"])}},
			"oauth refused": {OAuth2: &http.OAuth2{TokenURL: template(t, "http://replay.test/refused"), ClientID: template(t, "id"), ClientSecret: template(t, planted["client"])}},
		} {
			for _, what := range []string{"fine", "401", "404", "500", "hang up", "redirect", "redirect away", "no JSON", "evil next", "limit", "wait"} {
				r := newRig(t)
				var mu sync.Mutex
				var events []string
				echo := nethttp.HandlerFunc(func(w nethttp.ResponseWriter, q *nethttp.Request) {
					mu.Lock()
					defer mu.Unlock()
					all, _ := io.ReadAll(q.Body)
					everything := q.URL.RequestURI() + fmt.Sprint(q.Header) + string(all)
					found += strings.Count(everything, "S3CRET")
					w.Header().Set("X-Echo", url.QueryEscape(everything))
					switch {
					case strings.HasPrefix(q.URL.Path, "/token"):
						_, _ = io.WriteString(w, `{"access_token":"a-S3CRET-0"}`)
						return
					case strings.HasPrefix(q.URL.Path, "/refused"), what == "401":
						w.WriteHeader(nethttp.StatusUnauthorized)
					case what == "404":
						w.WriteHeader(nethttp.StatusNotFound)
					case what == "500":
						w.WriteHeader(nethttp.StatusInternalServerError)
					case what == "wait":
						w.Header().Set("Retry-After", "1")
						w.WriteHeader(nethttp.StatusTooManyRequests)
					case what == "hang up":
						panic(nethttp.ErrAbortHandler)
					case what == "redirect":
						nethttp.Redirect(w, q, q.URL.RequestURI(), nethttp.StatusFound)
						return
					case what == "redirect away":
						nethttp.Redirect(w, q, "ftp://replay.test"+q.URL.RequestURI(), nethttp.StatusFound)
						return
					case what == "no JSON":
						_, _ = io.WriteString(w, everything)
						return
					case q.URL.Query().Get("p") == "":
						next := "http://replay.test" + q.URL.RequestURI() + "&p=2"
						if what == "evil next" {
							next = "http://evil.test" + q.URL.RequestURI()
						}
						text, _ := json.Marshal(next)
						fmt.Fprintf(w, `{"items":[1,2,3],"next":%s}`, text)
						return
					}
					_ = json.NewEncoder(w).Encode(map[string]any{"items": []int{4}, "error": everything})
				})
				config := http.Config{Dial: connectortest.ServeInMemory(t, echo), Proxy: "direct"}
				config.Events.RequestDone = func(i http.RequestInfo) { events = append(events, i.String()) }
				config.Events.BreakerOpened = func(i http.BreakerInfo) { events = append(events, i.String()) }
				config.Breaker.Failures = 1
				client, err := http.New(config)
				if err != nil {
					t.Fatal(err)
				}
				r.config.Client = client
				r.config.Auth = auth
				r.config.Records = records(t, "body.items")
				r.config.Paginate = &http.Paginate{Style: http.NextURL, Next: compiled(t, "body.next", expr.Page, expr.Any)}
				r.config.Secrets = []string{planted["path"], planted["plain"]}
				r.config.Request = http.RequestConfig{
					URL: template(t, "http://"+planted["user"]+":"+planted["user"]+"@replay.test/items/"+url.PathEscape(planted["path"])),
					Query: []http.Param{
						{Name: "api_key", Value: template(t, planted["query"])}, {Name: "plain", Value: template(t, planted["plain"])}, {Name: "token", Value: template(t, "{{ config.token }}")},
					},
					Headers: []http.Param{{Name: "X-Api-Key", Value: template(t, planted["header"])}},
				}
				if what == "limit" {
					r.config.Request.MaxBytes = 10
				}
				r.config.Retry = &http.Retry{Times: 1}
				r.config.RetryAfter.Times = 1
				l := &ledger{after: 1}
				var errs []string
				for range 3 {
					if err := l.poll(t.Context(), r.source(t), `{"token":"`+planted["config"]+`"}`); err != nil {
						errs = append(errs, err.Error())
					}
				}
				if what == "fine" && name != "oauth refused" {
					same(t, name+": values", l.values, []string{"1", "2", "3", "4", "1", "2", "3", "4"})
					if !strings.Contains(l.states[0], `"next"`) {
						t.Errorf("%s: the state of a listing under way is %s", name, l.states[0])
					}
				} else if len(errs) == 0 {
					t.Errorf("%s, %s: no error", name, what)
				}
				for kind, texts := range map[string][]string{
					"errors": errs, "states": l.states, "events": events, "warnings": {fmt.Sprint(r.warnings)}, "waits": {fmt.Sprint(r.waits)},
				} {
					for _, text := range texts {
						looked += len(text)
						if i := strings.Index(text, "S3CRET"); i >= 0 {
							t.Errorf("%s, %s: a secret is in %s: %s", name, what, kind, text)
						}
					}
				}
				client.Close()
			}
		}
		if found < 500 || looked < 10_000 {
			t.Errorf("the server has seen only %d secrets, and the test only %d bytes", found, looked)
		}
	})
}

// TestH6CursorWithASecret lets a server put the key that it was sent into its cursor.
func TestH6CursorWithASecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, kind := range []http.PageStyle{http.NextCursor, http.NextURL} {
			next := `"at k-S3CRET/5 2"`
			if kind == http.NextURL {
				next = `"/items/k-S3CRET%2F5?after=at+k-S3CRET%2F5+2"`
			}
			r := newRig(t, json1(query("after", "at k-S3CRET/5 2"), `{"items":[2]}`), json1(nil, `{"items":[1],"next":`+next+`}`))
			r.config.Records = records(t, "body.items")
			r.config.Auth = &http.Auth{APIKey: &http.APIKey{In: http.InHeader, Name: "K", Value: template(t, "k-S3CRET/5")}}
			r.config.Paginate = &http.Paginate{Style: kind, Next: compiled(t, "body.next", expr.Page, expr.Any)}
			if kind == http.NextCursor {
				r.config.Paginate.Param.Name = "after"
			}
			l := &ledger{after: 1}
			_ = l.poll(t.Context(), r.source(t), `{}`)
			if state := string(l.state); !strings.Contains(state, "next") || strings.Contains(state, "S3CRET") {
				t.Errorf("state %s", state)
			}
			if err := l.poll(t.Context(), r.source(t), `{}`); err != nil {
				t.Fatal(err)
			}
			same(t, "values", l.values, []string{"1", "2"})
		}
	})
}
