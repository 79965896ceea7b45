package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/flechtwerk/flechtwerk/engine"
)

func (p *program) stateCommand() *cobra.Command {
	var prefix string
	list := &cobra.Command{
		Use:   "list FILE|DIR STAGE",
		Short: "Show the committed state of a stage by state key",
		Long: `List shows the committed state of a stage, as its changelog has it: of a transformer by state key, of an extractor the
cursor of each config. It reads the whole changelog and holds what it shows in memory; --prefix makes that less.`,
		Args: exactly(2, "a pipeline file or folder, and a stage"),
		RunE: func(cmd *cobra.Command, args []string) error {
			states, stage, err := p.states(cmd, args[0], args[1], prefix)
			if err != nil {
				return err
			}
			return p.showStates(states, stage, func(r *engine.KeyRecord) string { return fmt.Sprintf("%s\t%s", oneLine(r.Key), r.Value) })
		},
	}
	list.Flags().StringVar(&prefix, "prefix", "", "only state keys that begin with this `TEXT`")
	get := &cobra.Command{
		Use:   "get FILE|DIR STAGE KEY",
		Short: "Show the committed state of one state key",
		Args:  exactly(3, "a pipeline file or folder, a stage, and a state key"),
		RunE: func(cmd *cobra.Command, args []string) error {
			states, stage, err := p.states(cmd, args[0], args[1], args[2])
			if err != nil {
				return err
			}
			states = slices.DeleteFunc(states, func(r engine.KeyRecord) bool { return r.Key != args[2] })
			if len(states) == 0 {
				return fmt.Errorf("stage %s has no state for the key %q", stage, args[2])
			}
			return p.showStates(states, stage, func(r *engine.KeyRecord) string { return string(r.Value) })
		},
	}
	return group(&cobra.Command{Use: "state", Short: "The committed state of a stage"}, []string{"export"}, list, get)
}

// states are those of a stage whose keys begin with prefix; stage is its full name.
func (p *program) states(cmd *cobra.Command, path, name, prefix string) (states []engine.KeyRecord, stage string, err error) {
	settings, err := p.settings()
	if err != nil {
		return nil, "", err
	}
	set, compiled, err := p.load([]string{path}, false, p.stderr, sayProblems)
	if err != nil {
		return nil, "", err
	}
	pipelines, err := chosen(set.Pipelines, []string{name}, "STAGE")
	if err != nil {
		return nil, "", err
	}
	var ids []string
	for _, one := range pipelines {
		for _, x := range one.Extractors {
			stage, ids = one.Name+"/"+x.Name, append(ids, x.ApplicationID)
		}
		for _, t := range one.Transformers {
			stage, ids = one.Name+"/"+t.Name, append(ids, t.ApplicationID)
			program := compiled.programs[&t.Transform]
			if !t.HasState && (program == nil || !program.NamesState()) {
				return nil, "", usageError("stage %s keeps no state", stage)
			}
		}
	}
	if len(ids) > 1 {
		return nil, "", usageError("several pipelines have a stage %q; name it as PIPELINE/%s", name, name)
	}
	states, err = engine.ReadState(cmd.Context(), settings.Kafka, ids[0], prefix)
	return states, stage, err
}

func (p *program) showStates(states []engine.KeyRecord, stage string, line func(*engine.KeyRecord) string) error {
	if p.flags.json {
		shown := make([]keyRecord, len(states))
		for i := range states {
			shown[i] = keyRecordOf(&states[i])
		}
		return json.NewEncoder(p.stdout).Encode(struct {
			Stage  string      `json:"stage"`
			States []keyRecord `json:"states"`
		}{stage, shown})
	}
	var b strings.Builder
	for i := range states {
		b.WriteString(line(&states[i]))
		b.WriteByte('\n')
	}
	_, err := fmt.Fprint(p.stdout, b.String())
	return err
}
