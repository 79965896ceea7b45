package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/flechtwerk/flechtwerk/engine"
)

func (p *program) topicsCommand() *cobra.Command {
	return group(&cobra.Command{Use: "topics", Short: "What pipelines need of the topics of a cluster"}, nil, &cobra.Command{
		Use:   "plan FILE|DIR...",
		Short: "Show what pipelines need and what the cluster has",
		Args:  atLeastOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			plan, err := p.planTopics(cmd, args)
			if err != nil {
				return err
			}
			return p.showPlan(plan, fmt.Sprintf("%d to do, %d for you to look at", plan.Changes(), plan.Unmet()))
		},
	}, &cobra.Command{
		Use:   "apply FILE|DIR...",
		Short: "Create the declared topics that are missing, and write their seeds",
		Args:  atLeastOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			plan, err := p.planTopics(cmd, args)
			if err != nil {
				return err
			}
			if err := plan.Apply(cmd.Context(), engine.Events{}); err != nil {
				return err
			}
			if err := p.showPlan(plan, fmt.Sprintf("%d done, %d for you to look at", plan.Changes(), plan.Unmet())); err != nil {
				return err
			}
			if plan.Unmet() > 0 {
				return shown(exitSurroundings)
			}
			return nil
		},
	})
}

func (p *program) planTopics(cmd *cobra.Command, paths []string) (*engine.TopicPlan, error) {
	settings, err := p.settings()
	if err != nil {
		return nil, err
	}
	set, _, err := p.load(paths, false, p.stderr, sayProblems)
	if err != nil {
		return nil, err
	}
	return engine.PlanTopics(cmd.Context(), settings.Kafka, set.Pipelines, engine.PlanOptions{})
}

func (p *program) showPlan(plan *engine.TopicPlan, sum string) error {
	if p.flags.json {
		return json.NewEncoder(p.stdout).Encode(struct {
			Steps   []engine.TopicStep `json:"steps"`
			Changes int                `json:"changes"`
			Unmet   int                `json:"unmet"`
		}{plan.Steps, plan.Changes(), plan.Unmet()})
	}
	for _, s := range plan.Steps {
		if p.flags.quiet && (s.Action == engine.TopicOK || s.Action == engine.TopicByRun) {
			continue
		}
		fmt.Fprintln(p.stdout, s)
	}
	if p.flags.quiet {
		return nil
	}
	_, err := fmt.Fprintf(p.stdout, "\n%s\n", sum)
	return err
}
