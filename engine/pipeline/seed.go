package pipeline

import (
	"iter"
)

// Seed is what a topic is filled with once.
type Seed struct {
	// File is a .ndjson, .jsonl, .json or .csv file; empty for an inline seed.
	File string
	// Key is the member of each record whose value is the record's key; empty for records without key.
	Key string
}

// SeedRecord is one record of a seed, encoded as its topic wants it.
type SeedRecord struct {
	Key   []byte // nil without Seed.Key
	Value []byte
	Line  int // of the file, or of the pipeline file for an inline seed
}

// Records reads the seed from its begin. An error is the last thing that it answers and names file and line.
func (s *Seed) Records() iter.Seq2[SeedRecord, error] {
	return func(func(SeedRecord, error) bool) {}
}
