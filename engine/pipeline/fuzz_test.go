package pipeline

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzLoad demands of any text that it is read without a panic, and that what is said about it lies in it.
func FuzzLoad(f *testing.F) {
	files, err := filepath.Glob("testdata/*/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		o := corpusOptions()
		o.ReadFile = func(name string) ([]byte, error) {
			if name == "x.yaml" {
				return []byte(text), nil
			}
			return nil, fs.ErrNotExist
		}
		set, problems := loadAll([]string{"x.yaml"}, o)
		for _, p := range problems {
			if _, ok := Explain(p.Code); !ok {
				t.Errorf("code %s is not explained", p.Code)
			}
			if p.File == "x.yaml" {
				checkPlace(t, set, p)
			}
		}
		if !problems.Failed() {
			for _, s := range set.Scripted() {
				body := s.Body()
				for i, line := range strings.Split(body.Text.Text, "\n") {
					at, column := body.Position(i+1, 1)
					whole, ok := set.Line(body.File, at)
					if !ok && line != "" || ok && strings.TrimSpace(line) != "" && column > characters(whole) {
						t.Errorf("line %d of the body of %q is not in the file", i+1, text)
					}
				}
			}
		}
	})
}
