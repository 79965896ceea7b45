package main

import (
	"github.com/spf13/cobra"

	"github.com/flechtwerk/flechtwerk/engine/wording"
)

// group is a verb that has verbs of its own. later are those that are documented and not in this version.
func group(cmd *cobra.Command, later []string, verbs ...*cobra.Command) *cobra.Command {
	var names []string
	for _, v := range verbs {
		names = append(names, v.Name())
	}
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usageError("%s needs %s", cmd.Name(), wording.List(names, "or"))
		}
		if near := wording.Nearest(args[0], names); near != "" {
			return usageError("%s has no verb %q; did you mean %q?", cmd.Name(), args[0], near)
		}
		return usageError("%s has no verb %q; it has %s", cmd.Name(), args[0], wording.List(names, "and"))
	}
	cmd.AddCommand(verbs...)
	for _, verb := range later {
		cmd.AddCommand(&cobra.Command{
			Use: verb, Hidden: true, DisableFlagParsing: true,
			RunE: func(*cobra.Command, []string) error {
				return usageError("%s %s is not supported yet", cmd.Name(), verb)
			},
		})
	}
	return cmd
}
