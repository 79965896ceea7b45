package main_test

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/flechtwerk/flechtwerk/connectors/connectortest"
	"github.com/flechtwerk/flechtwerk/connectors/connectortest/replay"
	"github.com/flechtwerk/flechtwerk/engine/enginetest"
)

// The secrets of the test. Each is named like none, so that only their values can give them away.
var planted = map[string]string{
	"PART": "PLANTED-part/é 1", "WORD": "PLANTED&word=2", "VALUE": "PLANTED value 3", "PASS": "PLANTED:pass4", "IDENT": "PLANTED+ident5", "VARIABLE": "PLANTED\"variable6",
}

// secretStages are extractors whose requests are full of secrets, and fail in all ways.
const secretStages = `
pipeline: secrets
vars: { word: "${VARIABLE}" }
topics: { out: { partitions: 1 } }
extractors:
  denied: { every: 50ms, on_error: ON_ERROR, http: { url: "URL/denied/${PART}", query: { q: "${WORD}" }, auth: { basic: { user: me, password: "${PASS}" } } }, message: { topic: out, value: item } }
  broken: { every: 50ms, on_error: ON_ERROR, http: { url: "URL/broken", query: { q: "x-${WORD}-y" }, headers: { X-Thing: "${VALUE}" } }, message: { topic: out, value: item } }
  turning: { every: 50ms, on_error: ON_ERROR, http: { url: "URL/turning?q={{ vars.word }}" }, message: { topic: out, value: item } }
  wrong: { every: 50ms, on_error: ON_ERROR, http: { url: "URL/wrong/${PART}", auth: { bearer: "${file:FILE}" } }, message: { topic: out, value: item } }
  nowhere: { every: 50ms, on_error: ON_ERROR, http: { url: "http://127.0.0.1:1/${PART}?q=${WORD}", timeout: 5s }, message: { topic: out, value: item } }
  waiting: { every: 50ms, on_error: ON_ERROR, http: { url: "URL/waiting", query: { q: "${WORD}" }, retry: { times: 2, pause: 10ms..20ms } }, message: { topic: out, value: item } }
  unknown: { every: 50ms, on_error: ON_ERROR, http: { url: "URL/unknown/${PART}", auth: { oauth2: { token_url: "URL/token?q=${WORD}", client_id: "${IDENT}", client_secret: "${PASS}" } } }, message: { topic: out, value: item } }
  odd: { every: 50ms, on_error: ON_ERROR, state: { n: 1 }, http: { url: "URL/odd/${PART}/{{ state.n }}", query: { q: "${WORD}" } }, message: { topic: out, value: { a: 'item.a + "x"' } } }
  circle: { every: 50ms, on_error: ON_ERROR, http: { url: "URL/circle?q=${VALUE}", paginate: { next: body.next } }, records: body.items, message: { topic: out, value: item } }
  fine: { every: 50ms, on_error: ON_ERROR, http: { url: "URL/fine/${PART}", query: { q: "${WORD}" }, paginate: { cursor: body.next, param: after } }, records: body.items, message: { topic: out, value: item } }
`

// TestH6NoSecretIsShown runs requests with planted secrets into every kind of failure, and looks for them in all that the
// process says: its log at the level debug, its last words, /readyz, /metrics, the states, and validate --json.
func TestH6NoSecretIsShown(t *testing.T) {
	t.Parallel()
	server := connectortest.NewReplay(t, "")
	for _, r := range []replay.Rule{
		{Path: "/denied/*/*", Status: 403, Text: "PLANTED by the server"},
		{Path: "/broken", Text: strings.Repeat("x", 100), Fault: replay.Truncate},
		{Path: "/turning", Fault: replay.Loop},
		{Path: "/wrong/*/*", Text: `{"PLANTED": `},
		{Path: "/waiting", Status: 429, RetryAfter: replay.Seconds(1), Times: 1},
		{Path: "/waiting", Status: 500},
		{Path: "/token", Status: 401, JSON: []byte(`{"error":"invalid_client"}`)},
		{Path: "/odd/*/*/*", JSON: []byte(`[{"a":1}]`)},
		{Path: "/circle", JSON: []byte(`{"items":[1],"next":"/circle?q=PLANTED%20value%203"}`)},
		{Path: "/fine/*/*", Query: map[string]string{"after": "PLANTED-part/é 1"}, Status: 500},
		{Path: "/fine/*/*", JSON: []byte(`{"items":[2],"next":"PLANTED-part/é 1"}`)},
	} {
		if err := server.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	mounted := filepath.Join(dir, "mounted")
	if err := os.WriteFile(mounted, []byte("PLANTED-file-7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var env []string
	for name, value := range planted {
		env = append(env, name+"="+value)
	}
	pipeline := func(onError, more string) string {
		text := strings.NewReplacer("URL", server.URL, "FILE", mounted, "ON_ERROR", onError).Replace(secretStages) + more
		file := filepath.Join(dir, regexp.MustCompile(`\W`).ReplaceAllString(onError, "")+".yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	binary := enginetest.Build(t, "github.com/flechtwerk/flechtwerk/cmd/flechtwerk")
	clean := func(what, text string) {
		t.Helper()
		forms := []string{"PLANTED"}
		for _, secret := range planted {
			forms = append(forms, base64.StdEncoding.EncodeToString([]byte("me:"+secret)), base64.StdEncoding.EncodeToString([]byte(secret)))
		}
		for line := range strings.Lines(text) {
			for _, form := range forms {
				if strings.Contains(line, form) {
					t.Errorf("%s: %s", what, line)
				}
			}
		}
	}

	p := enginetest.Start(t, enginetest.Command{Path: binary, Env: env, Args: []string{"run", pipeline("{ retry: 20ms..100ms }", ""), "--dev", "--log-level", "debug", "-s", "http.listen=127.0.0.1:0"}})
	stages := []string{"denied", "broken", "turning", "wrong", "nowhere", "waiting", "unknown", "odd", "fine"}
	for _, stage := range stages {
		p.Stderr.WaitFor(t, 0, "a failed poll of "+stage, func(line string) bool {
			return strings.Contains(line, "secrets/"+stage) && strings.Contains(line, "error=")
		})
	}
	p.Stderr.Wait(t, 0, "http.repeated_page")
	p.Stderr.Wait(t, 0, "the request waits")
	var address, kafka string
	for _, line := range p.Stderr.All() {
		if m := regexp.MustCompile(`msg="HTTP for probes and metrics" address=(\S+)`).FindStringSubmatch(line); m != nil {
			address = m[1]
		}
		if m := regexp.MustCompile(`kafka=(\S+)`).FindStringSubmatch(line); m != nil && kafka == "" {
			kafka = m[1]
		}
	}
	for _, path := range []string{"/readyz", "/metrics"} {
		answer, err := http.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if !strings.Contains(string(text), "denied") {
			t.Errorf("%s knows nothing of the stages: %s", path, text)
		}
		clean(path, string(text))
	}
	states := enginetest.Start(t, enginetest.Command{Path: binary, Env: env, Args: []string{"state", "get", pipeline("{ retry: 20ms..100ms }", ""), "fine", "default", "-s", "kafka.brokers=" + kafka}})
	if status := states.Status(); status != 0 || !strings.Contains(states.Stdout.String(), "$http") {
		t.Errorf("state get: exit status %d, %s%s\n%s", status, states.Stdout, states.Stderr, regexp.MustCompile(`(?m)^.*secrets/fine.*$`).FindAllString(p.Stderr.String(), 12))
	}
	clean("state get", states.Stdout.String()+states.Stderr.String())
	p.Signal(t, syscall.SIGTERM)
	select {
	case <-p.Ended():
	case <-time.After(time.Minute):
		t.Fatal("the run does not end")
	}
	clean("the log", p.Stderr.String()+p.Stdout.String())

	for _, stage := range stages {
		formats := []string{"logfmt"}
		if stage == "denied" || stage == "odd" {
			formats = append(formats, "json")
		}
		for _, format := range formats {
			p := enginetest.Start(t, enginetest.Command{Path: binary, Env: env, Args: []string{"run", pipeline("fail", ""), "--stage", stage, "--dev", "--log-format", format, "-s", "http.listen=off"}})
			if status := p.Status(); status != 1 {
				t.Errorf("%s: exit status %d:\n%s", stage, status, p.Stderr)
			}
			clean(stage+" ended", p.Stderr.String()+p.Stdout.String())
		}
	}
	bad := fmt.Sprintf("  bad: { every: ${PART}, http: { url: \"${WORD}\", method: \"${VALUE}\", proxy: \"${PASS}\", expect: \"${IDENT}\", headers: { A: \"{{ vars.wrd }}${PART}\" }, decode: { format: \"${WORD}\", delimiter: \"${PART}\" }, tls: { ca: \"${file:%s}\" } }, message: { topic: \"${VALUE}\", value: item } }\n", mounted)
	for _, args := range [][]string{{"validate", "--json"}, {"validate"}} {
		p := enginetest.Start(t, enginetest.Command{Path: binary, Env: env, Args: append(args, pipeline("skip", bad))})
		if status := p.Status(); status != 2 {
			t.Errorf("%v: exit status %d: %s%s", args, status, p.Stdout, p.Stderr)
		}
		clean(strings.Join(args, " "), p.Stdout.String()+p.Stderr.String())
	}
}
