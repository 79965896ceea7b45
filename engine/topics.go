package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flechtwerk/flechtwerk/engine/pipeline"
	"github.com/flechtwerk/flechtwerk/engine/wording"
)

// What pipelines need of a cluster's topics, what the cluster has, and how the one becomes the other.
//
// Invariants:
//
//  1. A plan changes nothing. Apply creates topics and fills them; it never alters or deletes what exists.
//  2. A seed fills a topic once: it is written if the topic was created by this plan or has never held a committed record,
//     as far as its log tells. A log whose first offset is not 0 has held some.
//  3. A seed is one transaction under a transactional id of its topic's own, and whether the topic is empty is asked after
//     the fence. So a crash half-way leaves nothing, and of two that seed at once one finds the work of the other.

// PlanOptions say what a plan is made for. The zero value is that of `topics plan`.
type PlanOptions struct {
	// Undeclared also creates topics that no pipeline declares, as `run --dev` does.
	Undeclared bool
}

// TopicAction is what a plan has for a topic.
type TopicAction string

// The actions.
const (
	TopicOK      TopicAction = "ok"      // exists as it is wanted
	TopicCreate  TopicAction = "create"  // Apply creates it
	TopicSeed    TopicAction = "seed"    // Apply fills it
	TopicDiffers TopicAction = "differs" // exists otherwise than it is wanted; Diff says how
	TopicMissing TopicAction = "missing" // neither exists nor is declared; Diff says what to do
	TopicByRun   TopicAction = "run"     // a changelog, which run creates
)

// TopicStep is one topic of a plan. A topic that is created and filled has two.
type TopicStep struct {
	Topic      string            `json:"topic"`
	Action     TopicAction       `json:"action"`
	Partitions int               `json:"partitions,omitempty"` // wanted
	Have       int               `json:"have,omitempty"`       // there
	Config     map[string]string `json:"config,omitempty"`     // wanted
	Diff       []string          `json:"diff,omitempty"`       // lines for a person
	topic      *pipeline.Topic
}

func (s TopicStep) String() string {
	mark := map[TopicAction]string{TopicOK: " ", TopicCreate: "+", TopicSeed: "+", TopicDiffers: "~", TopicMissing: "!", TopicByRun: " "}[s.Action]
	var b strings.Builder
	fmt.Fprintf(&b, "%s %-8s %s", mark, s.Action, s.Topic)
	switch s.Action {
	case TopicSeed, TopicDiffers, TopicMissing, TopicByRun:
	case TopicCreate:
		fmt.Fprintf(&b, " (%s", wording.Count(s.Partitions, "partition"))
		for _, key := range slices.Sorted(maps.Keys(s.Config)) {
			fmt.Fprintf(&b, ", %s=%s", key, s.Config[key])
		}
		b.WriteString(")")
	case TopicOK:
		fmt.Fprintf(&b, " (%s)", wording.Count(s.Have, "partition"))
	}
	for _, line := range s.Diff {
		b.WriteString("\n             " + line)
	}
	return b.String()
}

// TopicPlan is what pipelines need against what a cluster has.
type TopicPlan struct {
	Steps []TopicStep

	kafka *kafka
}

// Changes is how many steps Apply would do.
func (p *TopicPlan) Changes() int { return p.count(TopicCreate, TopicSeed) }

// Unmet is how many steps need a person: topics that differ, and missing ones that no pipeline declares.
func (p *TopicPlan) Unmet() int { return p.count(TopicDiffers, TopicMissing) }

func (p *TopicPlan) count(actions ...TopicAction) int {
	n := 0
	for _, s := range p.Steps {
		if slices.Contains(actions, s.Action) {
			n++
		}
	}
	return n
}

// PlanTopics looks at the cluster and answers what the topics of pipelines need there.
func PlanTopics(ctx context.Context, settings Kafka, pipelines []*pipeline.Pipeline, o PlanOptions) (*TopicPlan, error) {
	k, admin, err := connect(ctx, settings)
	if err != nil {
		return nil, err
	}
	admin.Close()
	return planTopics(ctx, k, pipelines, o)
}

// planTopics is PlanTopics for a cluster that is known already. It asks with a client of its own, since one that has just
// heard that a topic does not exist goes on to say so for a moment.
func planTopics(ctx context.Context, k *kafka, pipelines []*pipeline.Pipeline, o PlanOptions) (*TopicPlan, error) {
	admin, err := k.client()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPipeline, err)
	}
	defer admin.Close()
	plan := &TopicPlan{kafka: k}
	topics := topicsOf(pipelines)
	adm := kadm.NewClient(admin)
	have, err := partitionCounts(ctx, adm, topics)
	if err != nil {
		return nil, err
	}
	config, err := topicConfigs(ctx, adm, topics, have)
	if err != nil {
		return nil, err
	}
	wanted := wantedPartitions(pipelines, topics, have)
	for _, t := range topics {
		step := TopicStep{Topic: t.Name, Partitions: wanted[t.Name], Have: have[t.Name], Config: t.Config, topic: t}
		switch {
		case step.Have == 0 && (t.Declared || o.Undeclared):
			step.Action = TopicCreate
		case step.Have == 0:
			step.Action, step.Diff = TopicMissing, []string{missingHint(t)}
		default:
			step.Diff = differences(t, step.Have, config[t.Name])
			if step.Action = TopicOK; len(step.Diff) > 0 {
				step.Action = TopicDiffers
			}
		}
		plan.Steps = append(plan.Steps, step)
		if t.Seed == nil || step.Action == TopicMissing {
			continue
		}
		empty := step.Have == 0
		if !empty {
			if empty, err = neverHeldRecords(ctx, k, adm, t.Name); err != nil {
				return nil, err
			}
		}
		if empty {
			plan.Steps = append(plan.Steps, TopicStep{Topic: t.Name, Action: TopicSeed, Diff: []string{"from " + seedSource(t.Seed)}, topic: t})
		}
	}
	for _, p := range pipelines {
		for _, name := range changelogsOf(p) {
			plan.Steps = append(plan.Steps, TopicStep{Topic: name, Action: TopicByRun, Diff: []string{"changelog; run creates it, compacted, with as many partitions as the stage has tasks"}})
		}
	}
	return plan, nil
}

// Apply creates what is missing and writes the seeds. Steps that need a person are passed over. It may be repeated, also
// after it failed half-way. Of events it tells TopicCreated and TopicSeeded.
func (p *TopicPlan) Apply(ctx context.Context, events Events) error {
	if p.Changes() == 0 {
		return nil
	}
	events.fill()
	admin, err := p.kafka.client()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrPipeline, err)
	}
	defer admin.Close()
	if err := p.create(ctx, admin, &events); err != nil {
		return err
	}
	for _, s := range p.Steps {
		if s.Action != TopicSeed {
			continue
		}
		n, err := seedTopic(ctx, p.kafka, kadm.NewClient(admin), s.topic)
		if err != nil {
			return fmt.Errorf("seed topic %s: %w", s.Topic, err)
		}
		if n > 0 {
			events.TopicSeeded(TopicInfo{Topic: s.Topic, Records: n})
		}
	}
	return nil
}

// create makes the topics of the plan and waits until the cluster shows them. One that somebody else made meanwhile is fine.
func (p *TopicPlan) create(ctx context.Context, admin *kgo.Client, events *Events) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = int32(connectTimeout / time.Millisecond)
	partitions := map[string]int{}
	for _, s := range p.Steps {
		if s.Action != TopicCreate {
			continue
		}
		partitions[s.Topic] = s.Partitions
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = s.Topic, int32(s.Partitions), -1
		for _, key := range slices.Sorted(maps.Keys(s.Config)) {
			c := kmsg.NewCreateTopicsRequestTopicConfig()
			c.Name, c.Value = key, kmsg.StringPtr(s.Config[key])
			t.Configs = append(t.Configs, c)
		}
		req.Topics = append(req.Topics, t)
	}
	if len(req.Topics) == 0 {
		return nil
	}
	resp, err := req.RequestWith(ctx, admin)
	if err != nil {
		return fmt.Errorf("%w: create topics: %w", ErrSurroundings, err)
	}
	var failed []error
	for _, t := range resp.Topics {
		err := kerr.ErrorForCode(t.ErrorCode)
		if err == nil || errors.Is(err, kerr.TopicAlreadyExists) {
			continue
		}
		if t.ErrorMessage != nil {
			err = fmt.Errorf("%w (%s)", err, *t.ErrorMessage)
		}
		failed = append(failed, fmt.Errorf("%w: create topic %s: %w", ErrSurroundings, t.Topic, err))
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	if err := awaitTopics(ctx, kadm.NewClient(admin), slices.Sorted(maps.Keys(partitions))); err != nil {
		return err
	}
	for _, t := range resp.Topics {
		if t.ErrorCode == 0 {
			events.TopicCreated(TopicInfo{Topic: t.Topic, Partitions: partitions[t.Topic]})
		}
	}
	return nil
}

// awaitTopics returns when every topic has a leader for every partition: a new topic takes a moment to be known everywhere.
func awaitTopics(ctx context.Context, adm *kadm.Client, topics []string) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	for attempt := 0; ; attempt++ {
		details, err := listTopics(ctx, adm, topics...)
		ready := err == nil
		for _, d := range details {
			ready = ready && d.Err == nil && len(d.Partitions) > 0
			for _, part := range d.Partitions {
				ready = ready && part.Err == nil && part.Leader >= 0
			}
		}
		if ready {
			return nil
		}
		if !pause(ctx, backoff(attempt)) {
			return fmt.Errorf("%w: topics %s were created, but the cluster does not show them yet; try again", ErrSurroundings, strings.Join(topics, ", "))
		}
	}
}

// topicsOf are the topics of all pipelines, each once.
func topicsOf(pipelines []*pipeline.Pipeline) []*pipeline.Topic {
	var out []*pipeline.Topic
	seen := map[string]bool{}
	for _, p := range pipelines {
		for _, t := range p.Topics {
			if !seen[t.Name] {
				seen[t.Name] = true
				out = append(out, t)
			}
		}
	}
	return out
}

// changelogsOf are the changelogs of a pipeline's stages.
func changelogsOf(p *pipeline.Pipeline) []string {
	var out []string
	for _, x := range p.Extractors {
		out = append(out, changelogTopic(x.ApplicationID))
	}
	for _, t := range p.Transformers {
		if t.HasState || t.Stateful {
			out = append(out, changelogTopic(t.ApplicationID))
		}
	}
	return out
}

// partitionCounts answers how many partitions each topic has; 0 is a topic that does not exist.
func partitionCounts(ctx context.Context, adm *kadm.Client, topics []*pipeline.Topic) (map[string]int, error) {
	if len(topics) == 0 {
		return nil, nil
	}
	names := make([]string, len(topics))
	for i, t := range topics {
		names[i] = t.Name
	}
	details, err := listTopics(ctx, adm, names...)
	if err != nil {
		return nil, fmt.Errorf("%w: list topics: %w", ErrSurroundings, err)
	}
	out := map[string]int{}
	for _, name := range names {
		d, ok := details[name]
		switch {
		case !ok, errors.Is(d.Err, kerr.UnknownTopicOrPartition):
			out[name] = 0
		case d.Err != nil:
			return nil, fmt.Errorf("%w: look at topic %s: %w", ErrSurroundings, name, d.Err)
		default:
			out[name] = len(d.Partitions)
		}
	}
	return out, nil
}

// topicConfigs answers the broker's settings of those declared topics that exist and list some.
func topicConfigs(ctx context.Context, adm *kadm.Client, topics []*pipeline.Topic, have map[string]int) (map[string]map[string]string, error) {
	var names []string
	for _, t := range topics {
		if len(t.Config) > 0 && have[t.Name] > 0 {
			names = append(names, t.Name)
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	described, err := describeConfigs(ctx, adm, names...)
	if err != nil {
		return nil, fmt.Errorf("%w: describe topics: %w", ErrSurroundings, err)
	}
	out := map[string]map[string]string{}
	for _, d := range described {
		if d.Err != nil {
			return nil, fmt.Errorf("%w: describe topic %s: %w", ErrSurroundings, d.Name, d.Err)
		}
		values := map[string]string{}
		for _, c := range d.Configs {
			values[c.Key] = c.MaybeValue()
		}
		out[d.Name] = values
	}
	return out, nil
}

// differences are what a topic has otherwise than its declaration wants.
func differences(t *pipeline.Topic, have int, config map[string]string) []string {
	var out []string
	if t.Partitions > 0 && t.Partitions != have {
		out = append(out, fmt.Sprintf("partitions: %d wanted, %d there", t.Partitions, have))
	}
	for _, key := range slices.Sorted(maps.Keys(t.Config)) {
		want, got := t.Config[key], config[key]
		if _, known := config[key]; !known {
			out = append(out, fmt.Sprintf("%s: %s wanted, the broker does not know this setting", key, want))
		} else if !sameSetting(want, got) {
			out = append(out, fmt.Sprintf("%s: %s wanted, %s there", key, want, got))
		}
	}
	return out
}

// verifyTopics answers how declared topics that exist have other settings than their declarations list. Partitions are
// another matter: they are looked at stage by stage.
func verifyTopics(ctx context.Context, adm *kadm.Client, pipelines []*pipeline.Pipeline) error {
	topics := topicsOf(pipelines)
	have, err := partitionCounts(ctx, adm, topics)
	if err != nil {
		return err
	}
	config, err := topicConfigs(ctx, adm, topics, have)
	if err != nil {
		return err
	}
	var wrong []error
	for _, t := range topics {
		if have[t.Name] == 0 {
			continue
		}
		settings := *t
		settings.Partitions = 0
		for _, line := range differences(&settings, have[t.Name], config[t.Name]) {
			wrong = append(wrong, fmt.Errorf("topic %s: %s; change the topic with Kafka's own tools, or what %s declares", t.Name, line, t.Place.File))
		}
	}
	return errors.Join(wrong...)
}

// sameSetting compares two values of a broker's setting; in a list the order says nothing.
func sameSetting(a, b string) bool {
	if a == b {
		return true
	}
	split := func(s string) []string {
		parts := strings.Split(s, ",")
		for i := range parts {
			parts[i] = strings.TrimSpace(parts[i])
		}
		slices.Sort(parts)
		return parts
	}
	return slices.Equal(split(a), split(b))
}

// defaultPartitions is how many partitions a topic gets where nothing says otherwise.
const defaultPartitions = 4

// wantedPartitions answers how many partitions each topic should have: what is declared, what is there, or, since all inputs
// of a transformer must agree (D3), and all config topics of an extractor (D4), what the others have; else
// defaultPartitions.
func wantedPartitions(pipelines []*pipeline.Pipeline, topics []*pipeline.Topic, have map[string]int) map[string]int {
	out := map[string]int{}
	for _, t := range topics {
		if out[t.Name] = t.Partitions; t.Partitions == 0 {
			out[t.Name] = have[t.Name]
		}
	}
	var alike [][]*pipeline.Topic
	for _, p := range pipelines {
		for _, t := range p.Transformers {
			alike = append(alike, t.InputTopics)
		}
		for _, x := range p.Extractors {
			alike = append(alike, x.ConfigTopics)
		}
	}
	for changed := true; changed; {
		changed = false
		for _, group := range alike {
			known := 0
			for _, t := range group {
				known = cmp.Or(known, out[t.Name])
			}
			for _, t := range group {
				if known > 0 && out[t.Name] == 0 {
					out[t.Name], changed = known, true
				}
			}
		}
	}
	for name, n := range out {
		if n == 0 {
			out[name] = defaultPartitions
		}
	}
	return out
}

// missingHint says how a topic comes to be.
func missingHint(t *pipeline.Topic) string {
	file := t.Place.File
	if file == "" {
		file = "FILE"
	}
	if t.Declared {
		return "create it with: flechtwerk topics apply " + file
	}
	return fmt.Sprintf("declare it under `topics:` in %s and create it with: flechtwerk topics apply %s", file, file)
}

func seedSource(s *pipeline.Seed) string {
	source := "the pipeline file"
	if s.File != "" {
		source = filepath.Base(s.File)
	}
	if s.Key != "" {
		source += ", key " + s.Key
	}
	return source
}

// seedTimeout is how long the transaction of a seed may take.
const seedTimeout = 5 * time.Minute

// seedTopic writes a topic's seed, if the topic is still without records once older writers of it are fenced off.
func seedTopic(ctx context.Context, k *kafka, adm *kadm.Client, t *pipeline.Topic) (records int, err error) {
	cl, err := k.client(
		kgo.TransactionalID(seedID(t.Name)),
		kgo.TransactionTimeout(seedTimeout),
		kgo.RecordPartitioner(newPartitioner(nil)),
		kgo.ManualFlushing(),
		kgo.MaxBufferedRecords(2*writeFlush),
		kgo.ConcurrentTransactionsBackoff(5*time.Millisecond),
	)
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	if _, _, err := cl.ProducerID(ctx); err != nil {
		return 0, fmt.Errorf("%w: fence %s: %w", ErrSurroundings, seedID(t.Name), err)
	}
	empty, err := neverHeldRecords(ctx, k, adm, t.Name)
	if err != nil || !empty {
		return 0, err
	}
	return writeAll(ctx, cl, seedRecords(t))
}

// seedRecords are the records of a topic's seed.
func seedRecords(t *pipeline.Topic) iter.Seq2[*kgo.Record, error] {
	return func(yield func(*kgo.Record, error) bool) {
		now := time.Now()
		for r, err := range t.Seed.Records() {
			if err != nil {
				yield(nil, fmt.Errorf("%w: %w", ErrPipeline, err))
				return
			}
			if !yield(&kgo.Record{Topic: t.Name, Partition: -1, Key: r.Key, Value: r.Value, Timestamp: now}, nil) {
				return
			}
		}
	}
}

// neverHeldRecords tells whether no committed record was ever in a topic, as far as its log tells. What an aborted
// transaction left does not count, and neither does an open one.
func neverHeldRecords(ctx context.Context, k *kafka, adm *kadm.Client, topic string) (bool, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, connectTimeout, fmt.Errorf("cannot tell within %v whether topic %s holds records", connectTimeout, topic))
	defer cancel()
	starts, err := adm.ListStartOffsets(ctx, topic)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return false, fmt.Errorf("%w: list offsets of %s: %w", ErrSurroundings, topic, err)
	}
	ends, err := adm.ListCommittedOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return false, fmt.Errorf("%w: list offsets of %s: %w", ErrSurroundings, topic, err)
	}
	look, end := map[int32]kgo.Offset{}, map[int32]int64{}
	for p, start := range starts[topic] {
		if start.Offset > 0 {
			return false, nil
		}
		if stable := ends[topic][p].Offset; stable > 0 {
			look[p], end[p] = kgo.NewOffset().At(0), stable
		}
	}
	if len(look) == 0 {
		return true, nil
	}
	// What stands before the stable end is either a committed record, or an aborted one with the marker of its abort after
	// it. Read as committed, with markers, each partition shows one or the other.
	cl, err := k.client(
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: look}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(),
	)
	if err != nil {
		return false, err
	}
	defer cl.Close()
	for len(end) > 0 {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			return false, fmt.Errorf("%w: %w", ErrSurroundings, context.Cause(ctx))
		}
		if err := fetches.Err(); err != nil {
			return false, fmt.Errorf("%w: read topic %s: %w", ErrSurroundings, topic, err)
		}
		for r := range fetches.RecordsAll() {
			if !r.Attrs.IsControl() {
				return false, nil
			}
			if r.Offset >= end[r.Partition]-1 {
				delete(end, r.Partition)
			}
		}
	}
	return true, nil
}
