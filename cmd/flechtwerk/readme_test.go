package main_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/flechtwerk/flechtwerk/engine/pipeline"
)

// block is a fenced block of a document.
var block = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")

// documents are the texts whose examples must hold.
var documents = []string{"README.md", "DESIGN.md", "CHANGELOG.md", "docs/extractors.md", "docs/http.md", "docs/mqtt.md"}

// TestDocumentsPipelinesAreValid loads every pipeline that a document shows.
func TestDocumentsPipelinesAreValid(t *testing.T) {
	found := 0
	for _, name := range documents {
		text, err := os.ReadFile(filepath.Join("..", "..", name))
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range block.FindAllStringSubmatch(string(text), -1) {
			if b[1] != "yaml" || !strings.HasPrefix(b[2], "pipeline:") {
				continue
			}
			found++
			file := filepath.Join(t.TempDir(), "example.yaml")
			if err := os.WriteFile(file, []byte(b[2]), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, problems := pipeline.Load([]string{file}, pipeline.Options{}); len(problems) > 0 {
				t.Errorf("%s: %v", name, problems)
			}
		}
	}
	if found == 0 {
		t.Error("no document shows a pipeline")
	}
}

// TestDocumentsLinksLead looks at every relative link.
func TestDocumentsLinksLead(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)\)`)
	for _, name := range documents {
		text, err := os.ReadFile(filepath.Join("..", "..", name))
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range link.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join("..", "..", filepath.Dir(name), l[1])); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		anchors := map[string]bool{}
		for _, h := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(text), -1) {
			anchor := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(h[1]), "")
			anchors[strings.ReplaceAll(anchor, " ", "-")] = true
		}
		for _, l := range regexp.MustCompile(`\]\(#([^)]+)\)`).FindAllStringSubmatch(string(text), -1) {
			if !anchors[l[1]] {
				t.Errorf("%s has no heading for #%s", name, l[1])
			}
		}
	}
}
