package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/flechtwerk/flechtwerk/engine/pipeline"
	"github.com/flechtwerk/flechtwerk/engine/wording"
)

func (p *program) explainCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "explain [CODE]",
		Short: "Say more about the code of a problem, or list all codes",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				for _, code := range allCodes() {
					fmt.Fprintln(p.stdout, code)
				}
				return nil
			}
			e, ok := explanation(args[0])
			if !ok {
				if near := wording.Nearest(args[0], allCodes()); near != "" {
					return usageError("there is no code %q; did you mean %q?", args[0], near)
				}
				return usageError("there is no code %q; explain without a code lists all", args[0])
			}
			if p.flags.json {
				return json.NewEncoder(p.stdout).Encode(struct {
					Code     string            `json:"code"`
					Severity pipeline.Severity `json:"severity"`
					Text     string            `json:"text"`
				}{args[0], e.Severity, e.Text})
			}
			_, err := fmt.Fprintf(p.stdout, "%s (%s)\n\n%s\n", args[0], e.Severity, e.Text)
			return err
		},
	}
}
