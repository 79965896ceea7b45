package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version and commit are set by the linker where a release is built: -X main.version=v1.2.3 -X main.commit=….
var version, commit string

// Version is what is running.
type Version struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Go      string `json:"go"`
	Goja    string `json:"goja"`
	Schema  string `json:"schema"`
}

// CurrentVersion reads what the linker and the Go toolchain left in the binary.
func CurrentVersion() Version {
	v := Version{Version: version, Commit: commit, Go: runtime.Version(), Goja: "unknown", Schema: schemaVersion()}
	info, ok := debug.ReadBuildInfo()
	if ok {
		for _, d := range info.Deps {
			if d.Path == "github.com/dop251/goja" {
				v.Goja = d.Version
			}
		}
		if v.Version == "" {
			v.Version = info.Main.Version
		}
		dirty := ""
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision" && v.Commit == "":
				v.Commit = s.Value
			case s.Key == "vcs.modified" && s.Value == "true" && commit == "":
				dirty = " (modified)"
			}
		}
		if v.Commit != "" {
			v.Commit += dirty
		}
	}
	if v.Version == "" {
		v.Version = "(devel)"
	}
	if v.Commit == "" {
		v.Commit = "unknown"
	}
	return v
}

func (p *program) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this binary and of what is in it",
		Args:  exactly(0, "no argument"),
		RunE: func(*cobra.Command, []string) error {
			v := CurrentVersion()
			if p.flags.json {
				return json.NewEncoder(p.stdout).Encode(v)
			}
			_, err := fmt.Fprintf(p.stdout, "flechtwerk %s\ncommit     %s\ngo         %s\ngoja       %s\nschema     %s\n", v.Version, v.Commit, v.Go, v.Goja, v.Schema)
			return err
		},
	}
}
