package pipeline

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/flechtwerk/flechtwerk/engine/decode"
	"github.com/flechtwerk/flechtwerk/engine/expr"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// build makes the Pipeline of a file and checks its stages.
func (d *draft) build() {
	spec := &d.spec
	d.pipe = &Pipeline{Name: spec.Pipeline.Value, Description: spec.Description.Value, File: d.src.file, Vars: spec.Vars.JSON}
	d.set.Pipelines = append(d.set.Pipelines, d.pipe)
	if name := &spec.Pipeline; name.given() && !name.missing {
		d.checkName(name.node, name.Value, "the pipeline name", "name.invalid", maxApplicationName)
	}
	if d.pipe.Vars == nil {
		d.pipe.Vars = []byte("{}")
	}
	d.pipe.Functions = spec.Functions.Texts
	d.protobuf()
	d.pipe.Fetch = d.fetch()
	for i := range spec.Topics.Items {
		if t := d.topics[spec.Topics.Items[i].Name]; t != nil {
			d.use(t)
		}
	}
	for _, kind := range []string{"extractors", "transformers"} {
		if n := d.root.find(kind); n != nil && n.kind == mapping && len(n.entries) == 0 {
			d.report(n, "field.empty", fmt.Sprintf("`%s` has no stage", kind), "describe one, or remove the key")
		}
	}
	if d.root.kind == mapping && !slices.ContainsFunc([]string{"topics", "extractors", "transformers"}, d.root.has) {
		d.report(d.root, "stage.none", "the pipeline has no stage", "describe one under `extractors:` or `transformers:`")
	}
	for i := range spec.Extractors.Items {
		if item := &spec.Extractors.Items[i]; !item.broken && d.stageName(item.key) {
			d.extractor(item)
		}
	}
	for i := range spec.Transformers.Items {
		if item := &spec.Transformers.Items[i]; !item.broken && d.stageName(item.key) {
			d.transformer(item)
		}
	}
	d.near()
}

// protobuf reads the message types that scripts decode.
func (d *draft) protobuf() {
	names := &d.spec.Protobuf
	if !names.given() {
		return
	}
	if key := d.root.key("protobuf"); key != nil {
		d.pipe.protobuf = Place{d.src.file, key.line, key.column}
	}
	var files []string
	for i := range names.Items {
		name := &names.Items[i]
		if !name.given() || name.missing {
			return
		}
		files = append(files, name.Value)
	}
	schema, err := decode.ReadSchemas(files, func(name string) ([]byte, error) { return d.ReadFile(d.beside(name)) })
	if err != nil {
		d.report(names.node, "protobuf.file", fmt.Sprintf("`protobuf`: %v", err), "name .proto files, or a descriptor set of protoc, relative to the pipeline file")
		return
	}
	d.pipe.Protobuf = schema
}

func (d *draft) stageName(key *node) bool {
	if strings.Contains(key.text, "${") {
		return false // reported when the key was read
	}
	return d.checkName(key, key.text, "the stage name", "name.invalid", maxApplicationName)
}

// applicationID is the name of a stage in Kafka.
func (d *draft) applicationID(given *Text, key *node) string {
	if given.given() {
		if !given.missing {
			d.checkName(given.node, given.Value, "the application id", "name.invalid", maxApplicationName)
		}
		return given.Value
	}
	id := d.pipe.Name + "-" + key.text
	if d.pipe.Name != "" && !d.spec.Pipeline.missing && len(id) > maxApplicationName {
		d.report(key, "name.invalid", fmt.Sprintf("the application id %q is longer than %d characters", id, maxApplicationName), "write a shorter `application_id:`")
	}
	return id
}

// topicsOf are the topics of a list.
func (d *draft) topicsOf(names *Names) []*Topic {
	var topics []*Topic
	for i := range names.Items {
		t := d.topic(&names.Items[i])
		switch {
		case t == nil:
		case slices.Contains(topics, t):
			d.report(names.Items[i].node, "topic.duplicate", "the topic is already in this list", "remove it")
		default:
			topics = append(topics, t)
		}
	}
	return topics
}

func (d *draft) transformer(item *Item[TransformerSpec]) {
	spec, stage, what := &item.Value, item.value, "transformers."+item.Name
	t := &Transformer{
		Name: item.Name, ApplicationID: d.applicationID(&spec.ApplicationID, item.key), HasState: spec.State.given(),
		Initial: spec.State.JSON, Transform: spec.Transform.Body, Concurrency: DefaultConcurrency, OnInvalid: spec.OnInvalid.Value,
		OnError: spec.OnError.Value, Retry: spec.OnError.Retry, Timeout: TransformTimeout, Place: Place{d.src.file, item.key.line, item.key.column}, item: item,
	}
	d.pipe.Transformers = append(d.pipe.Transformers, t)
	if spec.Timeout.given() {
		t.Timeout = spec.Timeout.Value
	}
	if spec.Concurrency.given() {
		t.Concurrency = spec.Concurrency.Value
	}
	t.ConfigTopics = d.configTopics(&spec.ConfigTopics)
	d.inputs(t, item)
	t.OutputTopics = d.topicsOf(&spec.OutputTopics)

	scope := d.scope(expr.Record)
	t.Filter = d.compile(&t.expressions, &spec.Filter, scope, expr.Condition)
	t.StateKey = d.compile(&t.expressions, &spec.StateKey, scope, expr.Any)
	if t.Message = d.message(&t.expressions, stage, spec.Message, what, scope); t.Message != nil {
		d.destination(what, item.key, stage, &spec.OutputTopics, &t.OutputTopics, t.Message, spec.Message)
	}
	d.body(item, what)
	if t.StateKey != nil {
		d.splitState(t, spec)
	}
	d.textsInScript(&spec.Transform, map[string][]envText{"vars": d.spec.Vars.texts, "state": spec.State.texts})
	d.textsInExpressions(&t.expressions, scope, map[string][]envText{"vars": d.spec.Vars.texts})
	if stage.find("message") != nil && stage.find("transform") == nil {
		for _, key := range []string{"state", "state_key", "timeout", "config_topics", "concurrency"} {
			if k := stage.key(key); k != nil {
				d.report(k, "field.no_effect", fmt.Sprintf("`%s` has no effect in a stage without a script", key), "remove it, or write a `transform:`")
			}
		}
		if t.OnError == Retry {
			d.report(spec.OnError.node, "field.no_effect", "`retry` has no effect in a stage without a script: what has failed fails again", "use fail or skip")
		}
	}
}

// body checks that a transformer has exactly one way to say what a record becomes.
func (d *draft) body(item *Item[TransformerSpec], what string) {
	stage := item.value
	transform, message := stage.key("transform"), stage.key("message")
	switch {
	case transform != nil && message != nil:
		d.report(second(transform, message), "stage.two_bodies", what+" has a `transform` and a `message`", "write the Message in the script, or leave the script out")
	case !slices.ContainsFunc([]string{"transform", "message", "aggregate", "sink", "on_timer"}, stage.has):
		d.report(item.key, "stage.no_body", what+" has neither `transform:` nor `message:`, so nothing becomes of a record", "write one of them")
	}
}

func (d *draft) inputs(t *Transformer, item *Item[TransformerSpec]) {
	spec, what := &item.Value, "transformers."+item.Name
	if !item.value.has("input_topics") {
		d.report(item.key, "stage.no_input", what+" has no `input_topics:`, so there is nothing to transform", "name the topics that it reads")
	}
	for i := range spec.InputTopics.Topics {
		name := &spec.InputTopics.Topics[i]
		topic := d.topic(name)
		if topic == nil {
			continue
		}
		if slices.Contains(t.InputTopics, topic) {
			d.report(name.node, "topic.duplicate", "the topic is already an input of this stage", "remove it")
			continue
		}
		input := &stream.Input{Name: topic.Name, Topic: topic.Topic}
		if len(spec.InputTopics.Names) > 0 {
			input.Name = spec.InputTopics.Names[i]
		}
		t.Inputs, t.InputTopics = append(t.Inputs, input), append(t.InputTopics, topic)
	}
	for i := range spec.ConfigTopics.Items {
		if name := &spec.ConfigTopics.Items[i]; slices.ContainsFunc(t.InputTopics, func(in *Topic) bool { return in.Name == name.Value }) {
			d.report(name.node, "topic.input_and_config", fmt.Sprintf("%s has %s as an input and as a config topic", what, name.node.text), "it can be one of them")
		}
	}
	d.samePartitions(t, item)
}

// samePartitions reports inputs whose declared partition counts differ (D3, as far as the file tells).
func (d *draft) samePartitions(t *Transformer, item *Item[TransformerSpec]) {
	var first *Topic
	for i, topic := range t.InputTopics {
		switch {
		case topic.Partitions == 0:
		case first == nil:
			first = topic
		case first.Partitions != topic.Partitions:
			n := item.value.key("input_topics")
			if len(item.Value.InputTopics.Topics) == len(t.InputTopics) {
				n = item.Value.InputTopics.Topics[i].node
			}
			d.report(n, "topic.partitions", fmt.Sprintf("this input has %d partitions and the first one %d, and one task reads the same partition of both",
				topic.Partitions, first.Partitions), "give all inputs of a stage the same partition count")
		}
	}
}

// scope is base with the vars of the pipeline.
func (d *draft) scope(base expr.Scope) expr.Scope {
	if d.root.find("vars") != nil && !d.spec.Vars.given() {
		return base // what is wrong with the vars is reported
	}
	kinds := map[string]expr.VarKind{}
	if d.spec.Vars.given() {
		for _, e := range d.spec.Vars.node.entries {
			kinds[e.key.text] = expr.VarValue
		}
	}
	for _, t := range d.spec.Vars.texts {
		if len(t.path) == 1 && t.numeric {
			kinds[t.path[0]] = expr.VarText
		}
	}
	return base.WithVars(kinds)
}

func (d *draft) compile(of *expressions, x *Expression, scope expr.Scope, want expr.Want) *expr.Expr {
	if !x.given() {
		return nil
	}
	text := &leafText{x.node, x.text}
	of.texts = append(of.texts, text)
	e, err := expr.Compile(x.text.Text, scope, want)
	var wrong *expr.Error
	if errors.As(err, &wrong) {
		d.expressionError(text, wrong)
		return nil
	}
	of.read(x.node, e.Reads())
	return e
}

// message compiles the `message:` of a stage.
func (d *draft) message(of *expressions, at *node, spec *MessageSpec, what string, scope expr.Scope) *expr.Message {
	inner := at.find("message")
	if spec == nil || inner == nil || inner.kind != mapping {
		return nil
	}
	tree, broken := d.messageTree(spec, inner)
	if !inner.has("value") {
		hint := "`value: value` passes the input's on, and `value: null` is a tombstone"
		if slices.Contains(scope.Names(), "item") {
			hint = "`value: item` is the record as it came, and `value: null` is a tombstone"
		}
		d.report(at.key("message"), "field.missing", what+".message has no `value:`", hint)
		broken = true
	}
	message, errs := expr.CompileMessage(tree, scope)
	for i := range errs {
		d.expressionError(errs[i].Tree.Ref.(*leafText), errs[i].Err)
	}
	of.texts = append(of.texts, leavesOf(tree)...)
	if broken || message == nil {
		return nil
	}
	of.read(at.key("message"), message.Reads())
	return message
}

func (d *draft) messageTree(spec *MessageSpec, stage *node) (tree *expr.Tree, broken bool) {
	tree = &expr.Tree{Kind: expr.Map, Ref: &leafText{node: stage}}
	add := func(name string, item *expr.Tree) {
		tree.Names, tree.Items = append(tree.Names, name), append(tree.Items, item)
	}
	if spec.Topic.given() {
		text := textOf(d.decoder, spec.Topic.node, spec.Topic.Value)
		add("topic", &expr.Tree{Text: spec.Topic.Value, Ref: &leafText{spec.Topic.node, text}})
	}
	for _, part := range []struct {
		name   string
		leaves *Leaves
	}{{"key", &spec.Key}, {"value", &spec.Value}, {"headers", &spec.Headers}} {
		broken = broken || part.leaves.broken
		if part.leaves.given() {
			add(part.name, part.leaves.tree)
		}
	}
	for _, part := range []struct {
		name string
		x    *Expression
	}{{"timestamp", &spec.Timestamp}, {"partition", &spec.Partition}} {
		if part.x.given() {
			add(part.name, &expr.Tree{Text: part.x.text.Text, Ref: &leafText{part.x.node, part.x.text}})
		}
	}
	return tree, broken
}

// leavesOf are the texts of a tree.
func leavesOf(tree *expr.Tree) []*leafText {
	if tree.Kind == expr.Leaf {
		return []*leafText{tree.Ref.(*leafText)}
	}
	var leaves []*leafText
	for _, item := range tree.Items {
		leaves = append(leaves, leavesOf(item)...)
	}
	return leaves
}

// destination checks the topic of a `message:` against the outputs of its stage. A topic without holes that the stage names
// nowhere else becomes its output.
func (d *draft) destination(what string, key, stage *node, outputs *Names, topics *[]*Topic, message *expr.Message, spec *MessageSpec) {
	named := stage.has("output_topics")
	static, isStatic := message.StaticTopic()
	switch {
	case !spec.Topic.given():
		if stage.find("message").has("topic") {
			return
		}
		if !named {
			d.noOutput(key, what, "its message goes nowhere")
		} else if len(*topics) > 1 {
			d.report(stage.key("message"), "message.topic", what+" has several output topics, and its message names none of them", "write `topic: …` in the message")
		}
	case isStatic && named:
		if static != "" && !spec.Topic.missing && len(*topics) > 0 && !slices.ContainsFunc(*topics, func(o *Topic) bool { return o.Name == static }) {
			var names []string
			for i := range outputs.Items {
				names = append(names, outputs.Items[i].node.text)
			}
			hint := didYouMean(spec.Topic.node.text, names)
			if bare := bareExpression(spec.Topic.Value); hint == "" && bare {
				hint = asTemplate(spec.Topic.Value)
			} else if hint == "" {
				hint = "add it to `output_topics:`"
			}
			d.report(spec.Topic.node, "message.topic", fmt.Sprintf("the topic of the message is not among the `output_topics` of %s", what), hint)
		}
	case isStatic && !spec.Topic.missing && bareExpression(static) && d.topics[static] == nil:
		d.report(spec.Topic.node, "message.topic", "the topic of a message is a name, and this reads like an expression", asTemplate(static))
	case isStatic:
		if topic := d.topic(&spec.Topic); topic != nil {
			*topics = append(*topics, topic)
		}
	case !named:
		d.noOutput(key, what, "the topic of its message is known only when it runs")
	}
}

// bareExpression tells whether a topic is what somebody writes who takes it for an expression.
func bareExpression(topic string) bool { return topicExpression.MatchString(topic) }

var topicExpression = regexp.MustCompile(`^(?:(?:key|topic|partition|offset|timestamp|now)|(?:value|headers|vars|key)(?:\??\.|\[).*|.*(?:\?\?| \+ |["'(]).*)$`)

func asTemplate(topic string) string {
	return fmt.Sprintf("write `topic: \"{{ %s }}\"`, or declare a topic of that name", topic)
}

func (d *draft) noOutput(key *node, what, why string) {
	d.report(key, "stage.no_output", fmt.Sprintf("%s has no `output_topics:`, and %s", what, why), "name the topics that it writes to")
}

// splitState warns about a state key that is not the record's (T5b): records of one such key may lie in several partitions,
// and each partition has a state of its own.
func (d *draft) splitState(t *Transformer, spec *TransformerSpec) {
	text := strings.TrimSpace(spec.StateKey.text.Text)
	if text == "key" || text == "partition" {
		return
	}
	several := len(t.InputTopics) == 0
	for _, topic := range t.InputTopics {
		several = several || topic.Partitions != 1
	}
	if !several {
		return
	}
	if isConstant(text) {
		d.report(spec.StateKey.node, "state_key.constant", "a constant `state_key` has one state per partition, not one for all records",
			"read a topic with one partition, or leave `state_key` out (`group_by` is not supported yet)")
		return
	}
	d.report(spec.StateKey.node, "state_key.split", "records with the same `state_key` may lie in different partitions, and each partition has a state of its own",
		"let the input's records have this key (`group_by` is not supported yet)")
}
