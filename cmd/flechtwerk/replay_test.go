package main

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// serve starts `flechtwerk replay` and answers its address. It ends with the test.
func serve(t *testing.T, dir string) (s *started, address string) {
	t.Helper()
	s = start(t, "replay", dir)
	s.stdout.Wait(t, 0, "http://")
	address, _, _ = strings.Cut(s.stdout.All()[0], " ")
	return s, address
}

func TestReplayServesAFolderByItsRules(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"feed.json":   `{"items":[]}`,
		"replay.json": `{"rules":[{"path":"/feed.json","status":503,"retry_after":"2s","times":1},{"path":"/gone","fault":"close"}]}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, address := serve(t, dir)
	get := func(path string) (int, string, http.Header) {
		answer, err := http.Get(address + path)
		if err != nil {
			return 0, "", nil
		}
		defer answer.Body.Close()
		body, _ := io.ReadAll(answer.Body)
		return answer.StatusCode, string(body), answer.Header
	}
	if status, _, header := get("/feed.json?token=s3cr3t"); status != 503 || header.Get("Retry-After") != "2" {
		t.Errorf("status %d, %v", status, header)
	}
	if status, body, header := get("/feed.json"); status != 200 || body != `{"items":[]}` || header.Get("ETag") == "" {
		t.Errorf("status %d, %s, %v", status, body, header)
	}
	if status, _, _ := get("/gone"); status != 0 {
		t.Errorf("a connection that was to be closed answered %d", status)
	}
	if status, _, _ := get("/replay.json"); status != 404 {
		t.Errorf("the rules are served: %d", status)
	}
	if status := s.stop(); status != 0 {
		t.Errorf("exit status %d", status)
	}
	for _, want := range []string{`method=GET url="/feed.json?token=***" status=503`, "url=/feed.json status=200 bytes=12", "url=/gone status=0"} {
		if !strings.Contains(s.stderr.String(), want) {
			t.Errorf("the log has no %q:\n%s", want, s.stderr.String())
		}
	}
}

func TestReplayRefusesWhatItCannotServe(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "replay.json"), []byte(`{"rules":[{"path":"/a","stauts":503}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"replay"}, "flechtwerk replay takes a folder"},
		{[]string{"replay", filepath.Join(dir, "none")}, "is no folder"},
		{[]string{"replay", dir}, `unknown field "stauts"`},
	} {
		if got := flechtwerk(t, nil, c.args...); got.status != 2 || !strings.Contains(got.stderr, c.want) {
			t.Errorf("%v: exit status %d, %s", c.args, got.status, got.stderr)
		}
	}
	if got := flechtwerk(t, nil, "replay", t.TempDir(), "--listen", "256.0.0.1:1"); got.status != 3 {
		t.Errorf("exit status %d, %s", got.status, got.stderr)
	}
}
