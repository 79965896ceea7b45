// Package pipeline is the YAML language: what a pipeline file may say, and what is wrong with one that says something else.
//
// The way of a file:
//
//  1. parse (yaml.go) makes a tree of nodes of the text. A node knows where it stands and how it was written; aliases and
//     merge keys are gone after it. A syntax error ends the file here, because nothing after it can be read.
//  2. decode (decode.go) lays the tree into a Spec (spec.go). The types of the Spec are the language: their fields are its
//     keys, their comments its documentation, and the JSON Schema is made from them.
//  3. build (build.go, stages.go, topics.go) turns Specs into Pipelines and checks what one field alone cannot know: the
//     roles of topics, expressions, names in Kafka.
//  4. check (set.go, scripts.go) looks across files, and at what the bodies do.
//
// Invariants:
//
//  1. No step stops at its first problem; only a syntax error keeps a file from the next step. A part that is broken is
//     left out of the Spec, and whoever needs it does not report its absence a second time.
//  2. Every position is that of the user's own text, from 1, in characters.
//  3. What a key is accepted for, it does. A key of the language that nothing here acts on is refused as not supported.
//  4. No problem shows a value that came from the environment: it may be a secret. Texts are quoted as they stand in the file.
//
// Nothing here talks to a broker or runs a script. Bodies leave as stream.Text; who compiles them adds his own Problems.
package pipeline
