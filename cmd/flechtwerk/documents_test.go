package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/flechtwerk/flechtwerk/engine/enginetest"
)

// TestDocumentsCommandsWork runs every command of docs/extractors.md, in its order, on its pipelines and files.
func TestDocumentsCommandsWork(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "extractors.md"))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	v := &verbs{t: t, kafka: broker(t)}
	parts := regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$").FindAllStringSubmatch(string(text), -1)
	ran := 0
	for _, part := range parts {
		switch part[1] {
		case "yaml":
			file := regexp.MustCompile(`^pipeline: (\S+)`).FindStringSubmatch(part[2])[1] + ".yaml"
			write(t, ".", file, part[2])
			v.want(0, "0 errors, 0 warnings in 1 file\n", "", "validate", file)
		case "json":
			write(t, ".", "regions.ndjson", part[2])
		}
	}
	for _, part := range parts {
		if part[1] != "sh" {
			continue
		}
		for line := range strings.Lines(part[2]) {
			args := words(strings.TrimSpace(line))
			if args[0] != "flechtwerk" {
				t.Fatalf("a command of another program: %s", line)
			}
			ran++
			if args[1] == "run" {
				s := start(t, append(args[1:], "-s", "kafka.brokers="+v.kafka, "-s", "http.listen=off", "--log-level", "debug")...)
				s.stderr.WaitFor(t, 0, "a poll of the config fr", func(line string) bool {
					return strings.Contains(line, "poll ended") && strings.Contains(line, "config=fr pages=1")
				})
				if status := s.stop(); status != 0 {
					t.Errorf("%s: exit status %d:\n%s", line, status, s.stderr.String())
				}
				continue
			}
			if got := v.run(args[1:]...); got.status != 0 || got.stdout == "" || got.stderr != "" {
				t.Errorf("%s: %+v", line, got)
			}
		}
	}
	if ran == 0 {
		t.Error("there are no commands")
	}
}

// The pipelines of docs/scripts.md, and the files that they name, have nothing wrong with them.
func TestPipelinesOfScriptsAreValid(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "scripts.md"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	t.Chdir(dir)
	var pipelines []string
	for _, part := range regexp.MustCompile("(?ms)^```(yaml|js file=(\\S+))\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		file := part[2]
		if file == "" {
			file = regexp.MustCompile(`^pipeline: (\S+)`).FindStringSubmatch(part[3])[1] + ".yaml"
			pipelines = append(pipelines, file)
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, ".", file, part[3])
	}
	if len(pipelines) == 0 {
		t.Fatal("there is no pipeline")
	}
	for _, file := range pipelines {
		if got := flechtwerk(t, nil, "validate", file); got.stdout != "0 errors, 0 warnings in 1 file\n" {
			t.Errorf("%s: %+v", file, got)
		}
	}
}

// words splits a command line as a shell does that knows single quotes only.
func words(line string) []string {
	var out []string
	for i, piece := range strings.Split(line, "'") {
		if i%2 == 1 {
			out = append(out, piece)
			continue
		}
		out = append(out, strings.Fields(piece)...)
	}
	return out
}

// TestMQTTDocumentWorks validates every pipeline of docs/mqtt.md, and plays its messages to its first one with its command.
func TestMQTTDocumentWorks(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "mqtt.md"))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	pipelines, commands := 0, 0
	for _, part := range regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		switch part[1] {
		case "yaml":
			pipelines++
			file := regexp.MustCompile(`^pipeline: (\S+)`).FindStringSubmatch(part[2])[1] + ".yaml"
			write(t, ".", file, part[2])
			v := &verbs{t: t}
			if got := v.run("validate", file); got.status != 0 || !strings.HasPrefix(got.stdout, "0 errors, 0 warnings in 1 file\n") {
				t.Errorf("%s: %+v", file, got)
			}
		case "json":
			write(t, ".", "messages.ndjson", part[2])
		case "sh":
			commands++
			args := words(strings.TrimSpace(part[2]))
			s := startIn(t, []string{"MQTT_URL=mqtt://" + enginetest.FreeAddr(t)}, append(args[1:], "-s", "http.listen=off")...)
			s.stdout.Wait(t, 0, `"flechtwerk.error.code":"mqtt.invalid"`)
			s.stdout.Wait(t, 0, `"value":{"temperature":21.50,"unit":"K","at":`)
			s.stdout.Wait(t, 0, `"value":{"temperature":310,"unit":"C","at":`)
			if status := s.stop(); status != 0 {
				t.Errorf("exit status %d:\n%s", status, s.stderr.String())
			}
		}
	}
	if pipelines < 5 || commands != 1 {
		t.Errorf("%d pipelines, %d commands", pipelines, commands)
	}
}
