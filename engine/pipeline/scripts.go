package pipeline

// Facts are what a compiled body tells about itself.
type Facts struct {
	// NamesMessage says that the body or the functions of its pipeline name `Message`.
	NamesMessage bool
	// NamesState says that the body or the functions of its pipeline name `state` or `State`.
	NamesState bool
}

// Stage names one stage of a Set that has a body.
type Stage struct {
	Pipeline    *Pipeline
	Extractor   *Extractor   // or nil
	Transformer *Transformer // or nil
}

// CheckScripts finds what is wrong between a stage and what its body does. facts is asked once for each stage with a body;
// it answers false for one that did not compile, which is then passed over.
func (s *Set) CheckScripts(facts func(Stage) (Facts, bool)) Problems {
	return nil
}
