package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/flechtwerk/flechtwerk/connectors/mqtt"
	"github.com/flechtwerk/flechtwerk/engine/pipeline"
)

func (p *program) validateCommand() *cobra.Command {
	var noEnv bool
	cmd := &cobra.Command{
		Use:     "validate FILE|DIR...",
		Aliases: []string{"lint"},
		Short:   "Find everything that is wrong with pipelines, without a broker",
		Args:    atLeastOne,
		RunE: func(_ *cobra.Command, args []string) error {
			_, wrong := p.settings()
			set, _, err := p.load(args, noEnv, p.stdout, sayAll)
			switch {
			case wrong != nil:
				return wrong
			case err != nil || p.flags.quiet || p.flags.json:
				return err
			}
			return p.noteInstance(set)
		},
	}
	cmd.Flags().BoolVar(&noEnv, "no-env", false, "look up neither environment variables nor secret files")
	return cmd
}

// noteInstance says whose sessions an MQTT broker keeps, where no setting does.
func (p *program) noteInstance(set *pipeline.Set) error {
	settings, err := p.settings()
	if err != nil || settings.InstanceID != "" {
		return nil //nolint:nilerr // validate judges pipelines, not settings
	}
	for _, one := range set.Pipelines {
		for _, x := range one.Extractors {
			if x.MQTT != nil && x.MQTT.ClientID == "" {
				_, err := fmt.Fprintf(p.stdout, "note: an MQTT broker keeps what arrives for the session %s-HOST while its process is away, and instance.id is not set: set it where the name of the host changes\n", x.ApplicationID)
				return err
			}
		}
	}
	return nil
}

// saying is what load prints.
type saying int

const (
	sayAll      saying = iota // problems and their sum, also when there are none
	sayProblems               // nothing when there are none
)

// load reads pipelines and compiles their bodies. It prints what is wrong to w; after an error of a pipeline the answer is
// an error with exit status 2 that is shown already.
func (p *program) load(paths []string, noEnv bool, w io.Writer, say saying) (*pipeline.Set, *bodies, error) {
	environ, err := p.environment()
	if err != nil {
		return nil, nil, err
	}
	set, problems := pipeline.Load(paths, pipeline.Options{NoEnv: noEnv, LookupEnv: lookup(environ)})
	p.set = set
	compiled, more := compile(set)
	problems = append(problems, more...)
	problems = append(problems, set.CheckScripts(compiled.facts)...)
	problems = append(problems, set.CheckSessions(pipeline.SessionRules{Filter: mqtt.CheckFilter, Overlap: mqtt.Overlap})...)
	problems.Sort()
	failed := problems.Failed()
	if p.flags.quiet {
		problems = onlyErrors(problems)
	}
	if err := p.show(set, problems, w, say); err != nil {
		return nil, nil, err
	}
	if failed {
		return nil, nil, shown(exitWrong)
	}
	return set, compiled, nil
}

func (p *program) show(set *pipeline.Set, problems pipeline.Problems, w io.Writer, say saying) error {
	if len(problems) == 0 && (say == sayProblems || p.flags.quiet && !p.flags.json) {
		return nil
	}
	if p.flags.json && say == sayAll {
		text, err := problems.JSON(len(set.Files))
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	}
	if p.json != nil {
		for _, one := range problems {
			level := slog.LevelError
			if one.Severity == pipeline.Warning {
				level = slog.LevelWarn
			}
			p.json.Log(context.Background(), level, one.Message, "code", one.Code, "file", one.File, "line", one.Line, "column", one.Column, "hint", one.Hint)
		}
		return nil
	}
	printer := pipeline.Printer{Source: set.Line, Color: p.colour(w)}
	return printer.Print(w, problems, len(set.Files))
}

func onlyErrors(problems pipeline.Problems) pipeline.Problems {
	var out pipeline.Problems
	for _, one := range problems {
		if one.Severity == pipeline.Error {
			out = append(out, one)
		}
	}
	return out
}
