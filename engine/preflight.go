package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/flechtwerk/flechtwerk/engine/pipeline"
)

// preflight finds out, before any group is joined, whether the cluster has what the stages need, and creates changelogs.
// Everything that is missing is told at once.
func (e *Engine) preflight(ctx context.Context) error {
	if e.kafka.transactionVersion < 1 {
		e.o.Events.Warning(WarningInfo{Code: "kafka.transaction_version", Text: "the cluster reports no transaction.version; transactions of version 1 are assumed"})
		e.kafka.transactionVersion = 1
	}
	if e.o.CreateTopics {
		plan, err := planTopics(ctx, e.kafka, e.pipelines, PlanOptions{Undeclared: true})
		if err != nil {
			return err
		}
		if err := plan.Apply(ctx, e.o.Events); err != nil {
			return err
		}
	}
	adm := kadm.NewClient(e.admin)
	topics, err := e.topics(ctx, adm)
	if err != nil {
		return err
	}
	var wrong []error
	for _, s := range e.stages {
		if err := s.check(topics); err != nil {
			wrong = append(wrong, err)
		}
	}
	if err := verifyTopics(ctx, adm, e.pipelines); err != nil {
		wrong = append(wrong, err)
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%w:\n%w", ErrSurroundings, errors.Join(wrong...))
	}
	for _, s := range e.stages {
		if s.changelog == "" {
			continue
		}
		if err := s.ensureChangelog(ctx, adm, topics); err != nil {
			return fmt.Errorf("%w: %s/%s: %w", ErrSurroundings, s.pipeline.Name, s.name, err)
		}
	}
	return e.limits(ctx, adm)
}

// topics asks for all topics that stages name, changelogs included.
func (e *Engine) topics(ctx context.Context, adm *kadm.Client) (kadm.TopicDetails, error) {
	var names []string
	for _, s := range e.stages {
		names = append(names, s.topics...)
		for _, t := range s.configTopics {
			names = append(names, t.Name)
		}
		for _, out := range s.outputs {
			names = append(names, out.Name)
		}
		if s.changelog != "" {
			names = append(names, s.changelog)
		}
	}
	slices.Sort(names)
	found, err := listTopics(ctx, adm, slices.Compact(names)...)
	if err != nil {
		return nil, fmt.Errorf("%w: list topics: %w", ErrSurroundings, err)
	}
	for _, t := range found {
		if t.Err != nil && !errors.Is(t.Err, kerr.UnknownTopicOrPartition) {
			return nil, fmt.Errorf("%w: topic %s: %w", ErrSurroundings, t.Topic, t.Err)
		}
	}
	return found, nil
}

// check judges one stage's topics (D2, D3).
func (s *stage) check(topics kadm.TopicDetails) error {
	var wrong []error
	s.topicIDs = map[string][16]byte{}
	where := s.pipeline.Name + "/" + s.name
	counts := map[string]int{}
	declared := slices.Concat(inputTopics(s), s.configTopics, s.outputs)
	for i, need := range declared {
		if slices.Contains(declared[:i], need) {
			continue
		}
		t, ok := topics[need.Name]
		if !ok || t.Err != nil {
			wrong = append(wrong, fmt.Errorf("%s: topic %s does not exist; %s", where, need.Name, missingHint(need)))
			continue
		}
		s.topicIDs[need.Name] = t.ID
		counts[need.Name] = len(t.Partitions)
	}
	switch {
	case s.push != nil: // every instance reads all configs, however they are spread
	case s.kind == "transformer":
		for _, name := range s.topics {
			n, ok := counts[name]
			if !ok {
				continue
			}
			if s.partitions == 0 {
				s.partitions = int32(n)
			}
			if int(s.partitions) != n {
				wrong = append(wrong, fmt.Errorf("%s: input topics differ in their partitions: %s; give all of them the same count", where, printCounts(s.topics, counts)))
				break
			}
		}
	default:
		s.partitions = int32(s.tokens)
		if len(s.configTopics) > 0 {
			s.partitions = 0
		}
		for _, t := range s.configTopics {
			n, ok := counts[t.Name]
			if !ok {
				continue
			}
			if s.partitions == 0 {
				s.partitions = int32(n)
			}
			if int(s.partitions) != n {
				wrong = append(wrong, fmt.Errorf("%s: config topics differ in their partitions: %s; give all of them the same count, which is the number of tokens", where, printCounts(s.topics, counts)))
				break
			}
		}
	}
	for _, t := range declared {
		if n, ok := counts[t.Name]; ok && t.Partitions > 0 && t.Partitions != n {
			wrong = append(wrong, fmt.Errorf("%s: topic %s has %d partitions, and %s declares %d", where, t.Name, n, s.pipeline.File, t.Partitions))
		}
	}
	if t, ok := topics[s.changelog]; ok && s.changelog != "" && t.Err == nil && s.partitions > 0 && len(t.Partitions) != int(s.partitions) {
		of := "the inputs have"
		switch {
		case len(s.configTopics) > 0 && s.kind == "extractor":
			of = "the config topics have"
		case s.kind == "extractor":
			of = "tokens is"
		}
		wrong = append(wrong, fmt.Errorf("%s: changelog %s has %d partitions, and %s %d; state cannot be moved between partitions: use another application_id, or delete the changelog with its state",
			where, s.changelog, len(t.Partitions), of, s.partitions))
	}
	return errors.Join(wrong...)
}

func inputTopics(s *stage) []*pipeline.Topic {
	for _, t := range s.pipeline.Transformers {
		if t.ApplicationID == s.app {
			return slices.Clone(t.InputTopics)
		}
	}
	return nil
}

func printCounts(names []string, counts map[string]int) string {
	var parts []string
	for _, name := range names {
		if n, ok := counts[name]; ok {
			parts = append(parts, fmt.Sprintf("%s has %d", name, n))
		}
	}
	return strings.Join(parts, ", ")
}

// ensureChangelog creates the stage's changelog where it is missing and looks at how it is cleaned (D6).
func (s *stage) ensureChangelog(ctx context.Context, adm *kadm.Client, topics kadm.TopicDetails) error {
	if t, ok := topics[s.changelog]; !ok || t.Err != nil {
		compact := "compact"
		_, err := adm.CreateTopic(ctx, s.partitions, -1, map[string]*string{"cleanup.policy": &compact}, s.changelog)
		if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
			return fmt.Errorf("create changelog %s: %w", s.changelog, err)
		}
		if err == nil {
			s.engine.o.Events.TopicCreated(TopicInfo{Topic: s.changelog, Partitions: int(s.partitions)})
		}
	}
	// Several instances may start at once, and a new topic takes a moment to be known everywhere.
	for attempt := 0; ; attempt++ {
		found, err := listTopics(ctx, adm, s.changelog)
		if err != nil {
			return fmt.Errorf("changelog %s: %w", s.changelog, err)
		}
		t := found[s.changelog]
		if t.Err == nil && len(t.Partitions) == int(s.partitions) {
			s.topicIDs[s.changelog] = t.ID
			break
		}
		if t.Err == nil {
			return fmt.Errorf("changelog %s has %d partitions where %d are needed", s.changelog, len(t.Partitions), s.partitions)
		}
		if attempt == 20 {
			return fmt.Errorf("changelog %s: %w", s.changelog, t.Err)
		}
		if !pause(ctx, backoff(attempt+3)) {
			return context.Cause(ctx)
		}
	}
	configs, err := describeConfigs(ctx, adm, s.changelog)
	if err != nil {
		return fmt.Errorf("describe changelog %s: %w", s.changelog, err)
	}
	config, err := configs.On(s.changelog, nil)
	if err != nil {
		return fmt.Errorf("describe changelog %s: %w", s.changelog, err)
	}
	for _, c := range config.Configs {
		switch c.Key {
		case "cleanup.policy":
			if policy := c.MaybeValue(); policy != "compact" {
				return fmt.Errorf("changelog %s has cleanup.policy %s, which would lose state; set it to compact", s.changelog, policy)
			}
		case "delete.retention.ms":
			if s.deleteRetention, err = strconv.ParseInt(c.MaybeValue(), 10, 64); err != nil {
				return fmt.Errorf("changelog %s: delete.retention.ms: %w", s.changelog, err)
			}
		case "max.message.bytes":
			if s.maxState, err = strconv.Atoi(c.MaybeValue()); err != nil {
				return fmt.Errorf("changelog %s: max.message.bytes: %w", s.changelog, err)
			}
		}
	}
	return nil
}

// limits learns how large the records of output topics may be.
func (e *Engine) limits(ctx context.Context, adm *kadm.Client) error {
	byName := map[string][]*pipeline.Topic{}
	var names []string
	for _, s := range e.stages {
		for _, out := range s.outputs {
			if byName[out.Name] == nil {
				names = append(names, out.Name)
			}
			byName[out.Name] = append(byName[out.Name], out)
		}
	}
	if len(names) == 0 {
		return nil
	}
	configs, err := describeConfigs(ctx, adm, names...)
	if err != nil {
		return fmt.Errorf("%w: describe topics: %w", ErrSurroundings, err)
	}
	for _, rc := range configs {
		for _, c := range rc.Configs {
			if c.Key != "max.message.bytes" {
				continue
			}
			n, err := strconv.Atoi(c.MaybeValue())
			if err != nil {
				continue
			}
			for _, t := range byName[rc.Name] {
				t.MaxMessage = n
			}
		}
	}
	return nil
}
