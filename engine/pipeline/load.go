package pipeline

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
)

// Options are how a file is read. The zero Options read the process's environment and the file system.
type Options struct {
	// NoEnv looks up neither environment nor secret files. What would come from there is left unchecked, so that a Set
	// loaded with it can be looked at but not run.
	NoEnv bool
	// LookupEnv answers an environment variable. Nil is os.LookupEnv.
	LookupEnv func(name string) (string, bool)
	// ReadFile reads a whole file: pipelines, scripts and secrets. Nil is os.ReadFile.
	ReadFile func(name string) ([]byte, error)
	// Open opens a seed file. Nil is os.Open.
	Open func(name string) (io.ReadCloser, error)
}

// SettingsFile is the name of the settings file, which is passed over in folders.
const SettingsFile = "flechtwerk.yaml"

// loader reads files into a Set and collects what is wrong with them.
type loader struct {
	Options
	set      *Set
	problems Problems
	topics   map[string]*Topic
	drafts   []*draft
}

// draft is a file on its way to a Pipeline.
type draft struct {
	*decoder
	root *node
	spec Spec
	pipe *Pipeline
}

// Load reads files, and of folders every *.yaml and *.yml that is neither *.test.yaml nor the settings file. Its problems are
// sorted. The Set is never nil; unless the problems hold an error, it can be run.
func Load(paths []string, o Options) (*Set, Problems) {
	if o.LookupEnv == nil {
		o.LookupEnv = os.LookupEnv
	}
	if o.ReadFile == nil {
		o.ReadFile = os.ReadFile
	}
	if o.Open == nil {
		o.Open = func(name string) (io.ReadCloser, error) { return os.Open(name) }
	}
	l := &loader{Options: o, set: &Set{readFile: o.ReadFile, lines: map[string][]string{}}, topics: map[string]*Topic{}}
	l.set.Files = l.files(paths)
	for _, file := range l.set.Files {
		l.draft(file)
	}
	for _, d := range l.drafts {
		d.declare()
	}
	for _, d := range l.drafts {
		d.build()
	}
	l.across()
	l.problems.Sort()
	return l.set, l.problems
}

// problem adds a problem; its severity follows from its code.
func (l *loader) problem(file string, line, column int, code, message, hint string) {
	l.problems = append(l.problems, Problem{file, line, column, severityOf(code), code, message, hint})
}

// files lists the files behind paths, each once, sorted.
func (l *loader) files(paths []string) []string {
	var files []string
	for _, path := range paths {
		path = filepath.Clean(path)
		if strings.HasSuffix(path, ".test.yaml") || strings.HasSuffix(path, ".test.yml") {
			l.problem(path, 0, 0, "file.test", "this is a test of a pipeline, not a pipeline", "name the pipeline, or run `flechtwerk test`")
			continue
		}
		entries, err := os.ReadDir(path)
		if err != nil {
			files = append(files, path) // a file; reading it says what is wrong otherwise
			continue
		}
		found := false
		for _, entry := range entries {
			if name := entry.Name(); !entry.IsDir() && isPipelineFile(name) {
				files, found = append(files, filepath.Join(path, name)), true
			}
		}
		if !found {
			l.problem(path, 0, 0, "file.none", "the folder holds no pipeline", "a pipeline is a file that ends in .yaml or .yml")
		}
	}
	slices.Sort(files)
	return slices.Compact(files)
}

func isPipelineFile(name string) bool {
	ext := filepath.Ext(name)
	base := strings.TrimSuffix(name, ext)
	return (ext == ".yaml" || ext == ".yml") && !strings.HasSuffix(base, ".test") && name != SettingsFile && !strings.HasPrefix(name, ".")
}

// draft reads one file up to its Spec.
func (l *loader) draft(file string) {
	text, err := l.ReadFile(file)
	if err != nil {
		hint := ""
		if errors.Is(err, fs.ErrNotExist) {
			hint = "check the path"
		}
		l.problem(file, 0, 0, "file.unreadable", fmt.Sprintf("the file cannot be read: %v", reason(err)), hint)
		return
	}
	src, root := l.parse(file, text)
	if root == nil {
		return
	}
	d := &draft{decoder: &decoder{loader: l, src: src}, root: root}
	d.into(root, reflect.ValueOf(&d.spec), "")
	l.drafts = append(l.drafts, d)
}

// beside is a path that is relative to the file that is being read.
func (d *decoder) beside(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(d.src.file), path)
}
