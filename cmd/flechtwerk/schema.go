package main

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/spf13/cobra"

	"github.com/flechtwerk/flechtwerk/schemas"
)

func (p *program) schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of pipeline files, for editors",
		Args:  exactly(0, "no argument"),
		RunE: func(*cobra.Command, []string) error {
			_, err := p.stdout.Write(schemas.Pipeline)
			return err
		},
	}
}

// schemaVersion names the language that this binary reads: the beginning of the SHA-256 of its schema.
func schemaVersion() string {
	sum := sha256.Sum256(schemas.Pipeline)
	return hex.EncodeToString(sum[:6])
}
