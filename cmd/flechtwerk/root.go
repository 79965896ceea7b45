package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/flechtwerk/flechtwerk/engine"
	"github.com/flechtwerk/flechtwerk/engine/pipeline"
	"github.com/flechtwerk/flechtwerk/engine/wording"
)

// Exit statuses. A second signal ends with 128 plus its number.
const (
	exitOK           = 0
	exitFailed       = 1 // it failed while running
	exitWrong        = 2 // the pipeline, the settings or the command line are wrong
	exitSurroundings = 3 // broker unreachable, topic missing, no permission, port taken
)

// errUsage marks a command line that cannot be understood.
var errUsage = errors.New("usage")

// shown is an end with this exit status whose reasons a verb has printed already.
type shown int

func (s shown) Error() string { return fmt.Sprintf("ended with exit status %d", int(s)) }

// program is one start of flechtwerk.
type program struct {
	env            []string
	stdin          io.Reader // may be nil
	stdout, stderr io.Writer

	flags struct {
		config, envFile, logLevel, logFormat string
		set                                  []string
		json, quiet, noColor                 bool
	}
	json *slog.Logger  // set once a verb logs JSON: then the last error is a line of it
	set  *pipeline.Set // what was loaded, for the lines that errors show
}

// start runs the command line and answers the exit status. The first signal ends ctx.
func (p *program) start(ctx context.Context, args []string) int {
	root := p.root()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	status := exitStatus(err)
	var silent shown
	switch {
	case err == nil || errors.As(err, &silent):
	default:
		p.showFailure(err)
		if errors.Is(err, errUsage) {
			fmt.Fprintf(p.stderr, "\n%s\nMore with: %s --help\n", strings.TrimSpace("Usage: "+cmd.UseLine()), cmd.CommandPath())
		}
	}
	return status
}

func exitStatus(err error) int {
	var said shown
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &said):
		return int(said)
	case errors.Is(err, errUsage), errors.Is(err, engine.ErrPipeline):
		return exitWrong
	case errors.Is(err, engine.ErrSurroundings):
		return exitSurroundings
	default:
		return exitFailed
	}
}

// message is an error without the words that only mark its kind.
func message(err error) string {
	text := err.Error()
	for _, mark := range []error{errUsage, engine.ErrPipeline, engine.ErrSurroundings} {
		text = strings.ReplaceAll(text, mark.Error()+": ", "")
		text = strings.ReplaceAll(text, mark.Error()+":\n", "")
		text = strings.ReplaceAll(text, ": "+mark.Error(), "")
	}
	return text
}

func usageError(format string, args ...any) error {
	return fmt.Errorf("%w: %w", errUsage, fmt.Errorf(format, args...))
}

// laterVerbs and laterFlags are in the language's documentation and not in this version.
var (
	laterVerbs = []string{"test", "init", "graph", "dlq", "reset", "mirror", "secrets", "types", "doctor", "convert"}
	laterFlags = map[string][]string{"validate": {"--online"}, "run": {"--from"}}
)

func (p *program) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "flechtwerk",
		Short: "Pipelines on Kafka in YAML and JavaScript, exactly once",
		Long: `Flechtwerk runs pipelines on Kafka: YAML for what, JavaScript or one-line expressions for how, exactly once.

  flechtwerk validate pipelines/
  flechtwerk run pipelines/sensor-means.yaml --dev --print sensor-alerts

Exit status: 0 ok; 1 it failed while running; 2 the pipeline, the settings or the command line are wrong;
3 the surroundings are wrong (broker unreachable, topic missing, no permission); 130 or 143 a second signal.`,
		Args:          cobra.ArbitraryArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			var verbs []string
			for _, c := range cmd.Commands() {
				verbs = append(append(verbs, c.Name()), c.Aliases...)
			}
			if near := wording.Nearest(args[0], verbs); near != "" {
				return usageError("unknown verb %q; did you mean %q?", args[0], near)
			}
			return usageError("unknown verb %q", args[0])
		},
	}
	f := root.PersistentFlags()
	f.StringVarP(&p.flags.config, "config", "c", "", "settings `file` (default "+settingsFile+" in the working folder, if it is there)")
	f.StringArrayVarP(&p.flags.set, "set", "s", nil, "one setting, as `key=value`; may be repeated")
	f.StringVarP(&p.flags.envFile, "env-file", "e", "", "`file` of NAME=value lines that add to the environment and win over it")
	f.StringVar(&p.flags.logLevel, "log-level", "", "debug, info, warn or error")
	f.StringVar(&p.flags.logFormat, "log-format", "", "logfmt or json")
	f.BoolVar(&p.flags.json, "json", false, "print results as one JSON object")
	f.BoolVarP(&p.flags.quiet, "quiet", "q", false, "print errors only")
	f.BoolVar(&p.flags.noColor, "no-color", false, "no colours; so does NO_COLOR in the environment")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		for _, flag := range laterFlags[cmd.Name()] {
			if strings.HasSuffix(err.Error(), "unknown flag: "+flag) {
				return usageError("%s of %s is not supported yet", flag, cmd.Name())
			}
		}
		return usageError("%w", err)
	})
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	root.CompletionOptions.HiddenDefaultCmd = true

	root.AddCommand(p.validateCommand(), p.runCommand(), p.topicsCommand(), p.configCommand(), p.stateCommand(), p.replayCommand(), p.schemaCommand(), p.explainCommand(), p.versionCommand())
	for _, verb := range laterVerbs {
		root.AddCommand(&cobra.Command{
			Use: verb, Hidden: true, DisableFlagParsing: true,
			RunE: func(*cobra.Command, []string) error { return usageError("%s is not supported yet", verb) },
		})
	}
	return root
}

// atLeastOne is the check of verbs that take files and folders.
func atLeastOne(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usageError("%s needs at least one pipeline file or folder", cmd.CommandPath())
	}
	return nil
}

// exactly is the check of verbs that take n arguments.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return usageError("%s takes %s", cmd.CommandPath(), what)
		}
		return nil
	}
}

// environment is the process's, with the file of -e over it.
func (p *program) environment() ([]string, error) {
	if p.flags.envFile == "" {
		return p.env, nil
	}
	more, err := readDotenv(p.flags.envFile)
	if err != nil {
		return nil, usageError("%w", err)
	}
	return overlay(p.env, more), nil
}

// settings are those of all layers.
func (p *program) settings() (*Settings, error) {
	environ, err := p.environment()
	if err != nil {
		return nil, err
	}
	flags := slices.Clone(p.flags.set)
	if p.flags.logLevel != "" {
		flags = append(flags, "log.level="+p.flags.logLevel)
	} else if p.flags.quiet {
		flags = append(flags, "log.level=error")
	}
	if p.flags.logFormat != "" {
		flags = append(flags, "log.format="+p.flags.logFormat)
	}
	s, err := LoadSettings(settingsSources{file: p.flags.config, env: environ, flags: flags})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", engine.ErrPipeline, err)
	}
	return s, nil
}

// colour tells whether what goes to w may be coloured.
func (p *program) colour(w io.Writer) bool {
	for _, pair := range p.env {
		if name, value, _ := strings.Cut(pair, "="); name == "NO_COLOR" && value != "" {
			return false
		}
	}
	return !p.flags.noColor && isTerminal(w)
}

func (p *program) paint(w io.Writer, style, text string) string {
	if !p.colour(w) {
		return text
	}
	return style + text + plainT
}
