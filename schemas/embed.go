// Package schemas holds the JSON Schema of the pipeline language, for editors and for `flechtwerk schema`. It is made from
// the Spec types of engine/pipeline; a test there keeps them equal.
package schemas

import _ "embed"

// Pipeline is the JSON Schema (draft 7) of a pipeline file.
//
//go:embed pipeline.schema.json
var Pipeline []byte
