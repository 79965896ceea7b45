package pipeline

import (
	"fmt"
	"maps"
	"regexp"
	"strings"

	"github.com/flechtwerk/flechtwerk/engine/stream"
)

const (
	maxTopicName       = 249 // of Kafka
	maxApplicationName = 200 // leaves room for what the names of changelogs and transactions append
)

var kafkaName = regexp.MustCompile(`^[a-zA-Z0-9._-]+$`)

// nameTrouble is what keeps a name from being one in Kafka, or nothing.
func nameTrouble(name string, most int) string {
	switch {
	case name == "":
		return "is empty"
	case !kafkaName.MatchString(name):
		return "has a character that Kafka does not take"
	case name == "." || name == "..":
		return "is no name in Kafka"
	case len(name) > most:
		return fmt.Sprintf("is longer than %d characters", most)
	}
	return ""
}

const nameHint = "letters, digits, `.`, `_` and `-` may stand in it"

// checkName reports a text that cannot be a name in Kafka. A text that comes from the environment is not shown.
func (d *decoder) checkName(n *node, value, what string, code string, most int) bool {
	trouble := nameTrouble(value, most)
	if trouble == "" {
		return true
	}
	hint := ""
	if strings.Contains(trouble, "a character") {
		hint = nameHint
	}
	d.report(n, code, fmt.Sprintf("%s %q %s", what, n.text, trouble), hint)
	return false
}

// declare makes the topics that the file declares.
func (d *draft) declare() {
	defaults := d.spec.TopicDefaults
	if defaults == nil {
		defaults = &DefaultsSpec{}
	} else if key := d.root.key("topic_defaults"); key != nil && len(d.spec.Topics.Items) == 0 {
		d.report(key, "field.no_effect", "`topic_defaults` has no effect without `topics:`", "declare the topics, or remove it")
	}
	for i := range d.spec.Topics.Items {
		item := &d.spec.Topics.Items[i]
		missing := strings.Contains(item.Name, "${") && strings.Contains(item.key.text, "${")
		if !missing && !d.checkName(item.key, item.Name, "the topic name", "topic.name", maxTopicName) {
			continue
		}
		t := &Topic{Topic: stream.Topic{Name: item.Name, Key: stream.String}, Declared: true, Place: Place{d.src.file, item.key.line, item.key.column}}
		overlay(t, &TopicSpec{Partitions: defaults.Partitions, Config: defaults.Config, Key: defaults.Key, Value: defaults.Value})
		overlay(t, &item.Value)
		if seed := item.Value.Seed; seed != nil && !item.broken {
			t.Seed = d.seed(t, seed, item.value.find("seed"))
		}
		if known := d.topics[t.Name]; known != nil {
			d.again(item.key, known, t)
			continue
		}
		d.topics[t.Name] = t
		d.set.Topics = append(d.set.Topics, t)
	}
}

// overlay puts on t what spec says.
func overlay(t *Topic, spec *TopicSpec) {
	if spec.Partitions.given() {
		t.Partitions = spec.Partitions.Value
	}
	if spec.Key.given() {
		t.Key = spec.Key.Value
	}
	if spec.Value.given() {
		t.Value = spec.Value.Value
	}
	for _, s := range spec.Config.Values {
		if t.Config == nil {
			t.Config = map[string]string{}
		}
		t.Config[s.Name] = s.Value
	}
}

// again reports a topic that is declared a second time: in one file always, in two where they do not agree.
func (d *draft) again(key *node, known, t *Topic) {
	where := fmt.Sprintf("%s:%d", known.Place.File, known.Place.Line)
	if known.Place.File == t.Place.File {
		d.report(key, "topic.duplicate", fmt.Sprintf("the topic is already declared on line %d", known.Place.Line), "remove one of them")
		return
	}
	differ := ""
	switch {
	case known.Partitions != t.Partitions:
		differ = "partitions"
	case known.Key != t.Key:
		differ = "key"
	case known.Value != t.Value:
		differ = "value"
	case !maps.Equal(known.Config, t.Config):
		differ = "config"
	case known.Seed != nil && t.Seed != nil:
		d.report(key, "topic.conflict", fmt.Sprintf("the topic has a seed here and in %s", where), "leave one of them")
		return
	}
	if differ != "" {
		d.report(key, "topic.conflict", fmt.Sprintf("the topic is declared with another `%s` in %s", differ, where), "declare it once, or alike")
	}
	if known.Seed == nil {
		known.Seed = t.Seed
	}
}

// topic is the topic that a stage names, or nil if the name cannot be one.
func (d *draft) topic(name *Text) *Topic {
	if !name.missing && !d.checkName(name.node, name.Value, "the topic name", "topic.name", maxTopicName) {
		return nil
	}
	t := d.topics[name.Value]
	if t == nil {
		t = &Topic{Topic: stream.Topic{Name: name.Value, Key: stream.String}, Place: Place{d.src.file, name.node.line, name.node.column}}
		d.topics[t.Name] = t
		d.set.Topics = append(d.set.Topics, t)
	}
	d.use(t)
	return t
}

// use notes that the pipeline names a topic.
func (d *draft) use(t *Topic) {
	for _, known := range d.pipe.Topics {
		if known == t {
			return
		}
	}
	d.pipe.Topics = append(d.pipe.Topics, t)
}
