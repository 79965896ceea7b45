package pipeline

import (
	"fmt"
	"slices"
)

// Facts are what a compiled body tells about itself.
type Facts struct {
	// YieldsMessage says that the body or the functions of its pipeline name `Message`.
	YieldsMessage bool
	// NamesState says that the body or the functions of its pipeline name `state` or `State`.
	NamesState bool
	// NamesConfigs says that the body or the functions of its pipeline name `configs`.
	NamesConfigs bool
	// NamesProtobuf says that the body or the functions of its pipeline name `protobuf`.
	NamesProtobuf bool
}

// Stage is one body of a stage of a Set: of an Extractor or of a Transformer.
type Stage struct {
	Pipeline    *Pipeline
	Extractor   *Extractor
	Transformer *Transformer
	// Key is the body's in the file: transform, poll, relay or enrich.
	Key string
}

// Body is the script.
func (s Stage) Body() *Body {
	switch s.Key {
	case "poll":
		return &s.Extractor.Poll
	case "relay":
		return &s.Extractor.Relay
	case "enrich":
		return &s.Extractor.Enrich
	default:
		return &s.Transformer.Transform
	}
}

// Outputs are the names of the topics that the stage may write to, or nil where not all of them are known.
func (s Stage) Outputs() []string {
	var topics []*Topic
	var given *Names
	if s.Extractor != nil {
		topics, given = s.Extractor.OutputTopics, &s.Extractor.item.Value.OutputTopics
	} else {
		topics, given = s.Transformer.OutputTopics, &s.Transformer.item.Value.OutputTopics
	}
	if len(topics) == 0 || len(topics) != len(given.Items) || slices.ContainsFunc(given.Items, func(t Text) bool { return t.missing }) {
		return nil
	}
	names := make([]string, len(topics))
	for i, t := range topics {
		names[i] = t.Name
	}
	return names
}

// Scripted lists the bodies of all stages, in the order of the files. A stage may have several.
func (s *Set) Scripted() []Stage {
	var stages []Stage
	for _, p := range s.Pipelines {
		for _, e := range p.Extractors {
			if e.Enrich.Present() {
				stages = append(stages, Stage{Pipeline: p, Extractor: e, Key: "enrich"})
			}
			switch {
			case e.Relay.Present():
				stages = append(stages, Stage{Pipeline: p, Extractor: e, Key: "relay"})
			case e.Poll.Present():
				stages = append(stages, Stage{Pipeline: p, Extractor: e, Key: "poll"})
			}
		}
		for _, t := range p.Transformers {
			if t.Transform.Present() {
				stages = append(stages, Stage{Pipeline: p, Transformer: t, Key: "transform"})
			}
		}
	}
	return stages
}

// CheckScripts finds what is wrong between a stage and what its body does. facts is asked once for each body; it answers false
// for one that did not compile, which is then passed over. The Problems are sorted. What is learnt of transformers is kept in
// them (Stateful).
func (s *Set) CheckScripts(facts func(Stage) (Facts, bool)) Problems {
	var problems Problems
	read := map[*Pipeline]bool{} // whether a script reads protobuf, or may do so
	for _, stage := range s.Scripted() {
		f, ok := facts(stage)
		read[stage.Pipeline] = read[stage.Pipeline] || f.NamesProtobuf || !ok
		if ok && stage.Key != "enrich" { // which has no outputs, state and configs of others to be wrong about
			if t := stage.Transformer; t != nil {
				t.Stateful = t.HasState || f.NamesState
			}
			problems = append(problems, stage.check(f)...)
		}
	}
	for _, p := range s.Pipelines {
		if at := p.protobuf; at.File != "" && !read[p] {
			problems = append(problems, Problem{at.File, at.Line, at.Column, severityOf("protobuf.unread"), "protobuf.unread", "the pipeline has `protobuf:`, but no script of it names `protobuf`",
				"write `protobuf(name).decode(bytes)`, or remove the key; the `decode:` of an HTTP request names its own file"})
		}
	}
	problems.Sort()
	return problems
}

func (s Stage) check(f Facts) Problems {
	var problems Problems
	report := func(file string, line, column int, code, message, hint string) {
		problems = append(problems, Problem{file, line, column, severityOf(code), code, message, hint})
	}
	var (
		what  string
		place Place
		stage *node
	)
	if e := s.Extractor; e != nil {
		what, place, stage = "extractors."+e.Name, e.Place, e.item.value
	} else {
		what, place, stage = "transformers."+s.Transformer.Name, s.Transformer.Place, s.Transformer.item.value
	}
	outputs := stage.key("output_topics")
	switch {
	case f.YieldsMessage && !stage.has("output_topics"):
		report(place.File, place.Line, place.Column, "stage.no_output", fmt.Sprintf("%s has no `output_topics:`, and its script yields Messages", what), "name the topics that it writes to")
	case !f.YieldsMessage && outputs != nil:
		report(place.File, outputs.line, outputs.column, "stage.idle_output", fmt.Sprintf("%s has `output_topics:`, but its script never yields a Message", what), "write `yield Message({…})`, or remove the key")
	}
	if !f.NamesState && (s.Extractor == nil || !s.Extractor.readsState) {
		for _, name := range []string{"state", "state_key", "cursor"} {
			if key := stage.key(name); key != nil {
				report(place.File, key.line, key.column, "state.unused", fmt.Sprintf("%s has `%s:`, but its script never names `state`", what, name), "remove the key")
			}
		}
	}
	return append(problems, s.configs(f, what, place, stage)...)
}

// configs finds what is wrong between what a script reads and the configs that its stage has. Functions belong to all
// stages of a pipeline, so that a stage without configs need not be the one that reads them.
func (s Stage) configs(f Facts, what string, place Place, stage *node) Problems {
	problem := func(line, column int, code, message, hint string) Problems {
		return Problems{{place.File, line, column, severityOf(code), code, message, hint}}
	}
	topics := stage.key("config_topics")
	switch {
	case f.NamesConfigs && !stage.has("config_topics") && !stage.has("configs"):
		hint := "name the topics that hold them in `config_topics:`"
		if s.Extractor != nil {
			hint = "write `configs:`, or name the topics that hold them in `config_topics:`"
		}
		return problem(place.Line, place.Column, "config.none", fmt.Sprintf("%s has no configs, and its script or the functions name them", what), hint)
	case !f.NamesConfigs && topics != nil && s.Transformer != nil:
		return problem(topics.line, topics.column, "config.unread", fmt.Sprintf("%s has `config_topics:`, but its script never names `configs`", what),
			"write `configs.get(key)`, or remove the key")
	}
	return nil
}
