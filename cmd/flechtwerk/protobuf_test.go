package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flechtwerk/flechtwerk/engine/pipeline"
)

// A script decodes by the file that its pipeline names, and a type that the file does not declare is found before anything
// runs, at its place in the script.
func TestProtobufOfAPipeline(t *testing.T) {
	check := func(body string) string {
		t.Helper()
		dir := t.TempDir()
		for name, text := range map[string]string{
			"types/rides.proto": "syntax = \"proto3\";\npackage rides.v1;\nimport \"place.proto\";\nmessage Ride { string id = 1; Place to = 2; }\n",
			"place.proto":       "syntax = \"proto3\";\npackage rides.v1;\nmessage Place { double lat = 1; }\n",
			"p.yaml": "pipeline: p\nprotobuf: types/rides.proto\ntransformers:\n  t:\n    input_topics: a\n    output_topics: b\n    transform: |\n      " +
				body + "\n",
		} {
			file := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		set, problems := pipeline.Load([]string{filepath.Join(dir, "p.yaml")}, pipeline.Options{})
		b, found := compile(set)
		problems = append(append(problems, found...), set.CheckScripts(b.facts)...)
		var lines []string
		for _, p := range problems {
			lines = append(lines, strings.TrimPrefix(p.String(), dir+"/"))
		}
		return strings.Join(lines, "\n")
	}
	if got := check("yield Message({ value: protobuf('rides.v1.Ride').decode(base64.decode(msg.value.ride)) });"); got != "" {
		t.Error(got)
	}
	if got, want := check("yield Message({ value: protobuf('Ride').decode(base64.decode(msg.value.ride)) });"), `p.yaml:8:39: error script.protobuf: the file declares no message "Ride"`; !strings.HasPrefix(got, want) {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if got, want := check("yield Message({ value: msg.value });"), "p.yaml:2:1: error protobuf.unread: "; !strings.HasPrefix(got, want) {
		t.Errorf("got %s\nwant %s", got, want)
	}
}
