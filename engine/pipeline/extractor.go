package pipeline

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/flechtwerk/flechtwerk/engine/expr"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

func (d *draft) extractor(item *Item[ExtractorSpec]) {
	spec, stage, what := &item.Value, item.value, "extractors."+item.Name
	e := &Extractor{
		Name: item.Name, ApplicationID: d.applicationID(&spec.ApplicationID, item.key), Every: spec.Every.Duration, Schedule: spec.Cron.Schedule,
		Tokens: 1, Workers: DefaultWorkers, Enrich: spec.Enrich.Body, Poll: spec.Poll.Body, Relay: spec.Relay.Body, OutputTopics: d.topicsOf(&spec.OutputTopics),
		Initial: spec.State.JSON, Timeout: PollTimeout, OnInvalid: spec.OnInvalid.Value, OnError: spec.OnError.Value, Retry: spec.OnError.Retry,
		Place: Place{d.src.file, item.key.line, item.key.column}, item: item,
	}
	d.pipe.Extractors = append(d.pipe.Extractors, e)
	if spec.Timeout.given() {
		e.Timeout = spec.Timeout.Value
	}
	if spec.Workers.given() {
		e.Workers = spec.Workers.Value
	}
	if spec.Tokens.given() {
		e.Tokens = spec.Tokens.Value
	}
	e.ConfigTopics = d.configTopics(&spec.ConfigTopics)
	if stage.has("config_topics") {
		e.Tokens = 0
		if k := stage.key("tokens"); k != nil {
			d.report(k, "field.no_effect", "`tokens` has no effect beside `config_topics`, whose partition count decides", "remove it")
		}
		if spec.MQTT == nil {
			d.sameTokens(e, spec)
		}
	} else if k := stage.key("on_invalid"); k != nil && spec.MQTT == nil {
		d.report(k, "field.no_effect", "`on_invalid` has no effect without `config_topics`; the configs of the file are checked before anything runs", "remove it")
	}
	d.source(stage, what)
	if every, cron := stage.key("every"), stage.key("cron"); every != nil && cron != nil {
		d.report(second(every, cron), "stage.two_schedules", what+" has an `every` and a `cron`", "one of them says when to poll")
	}
	scope := d.scope(expr.Config)
	e.EveryExpr = d.every(e, scope)
	d.mqtt(e, item, what)
	e.Where = d.compile(&e.expressions, &spec.Where, d.scope(expr.Choice), expr.Condition)
	d.http(e, item)
	d.configs(e, what)
	texts := map[string][]envText{"vars": d.spec.Vars.texts, "state": spec.State.texts, "config": configTexts(spec)}
	d.textsInExpressions(&e.expressions, scope, texts)
	d.textsInScript(&spec.Poll, texts)
	d.textsInScript(&spec.Enrich, texts)
}

// source checks that an extractor has exactly one way to read, and no keys that belong to another one.
func (d *draft) source(stage *node, what string) {
	given := presentOf(stage, "poll", "http", "mqtt")
	switch {
	case len(given) > 1:
		d.report(given[1], "stage.two_sources", fmt.Sprintf("%s has `%s` and `%s`", what, given[0].text, given[1].text), "write one stage for each")
	case !slices.ContainsFunc([]string{"poll", "http", "mqtt"}, stage.has):
		d.report(stage.head, "stage.no_source", fmt.Sprintf("%s has neither `poll:` nor `http:` nor `mqtt:`, so it reads nothing", what), "write the script that reads after `poll: |`, or a request under `http:`")
	case stage.has("poll"):
		for _, key := range []string{"records", "message", "relay", "cursor"} {
			if k := stage.key(key); k != nil {
				d.report(k, "field.no_effect", fmt.Sprintf("`%s` has no effect with a `poll`", key), "the script says it: `yield Message({…})` and `yield State({…})`")
			}
		}
	}
}

// configTopics are the topics that a stage reads configs from. What a topic does not say itself is decided here.
func (d *draft) configTopics(names *Names) []*Topic {
	topics := d.topicsOf(names)
	for i := range names.Items {
		name := &names.Items[i]
		n := slices.IndexFunc(topics, func(t *Topic) bool { return t.Name == name.Value })
		if n < 0 {
			continue
		}
		t := topics[n]
		if t.Key != stream.String || t.Value != stream.JSON {
			d.report(name.node, "config.format", fmt.Sprintf("the topic has keys of %s and values of %s, and configs have keys of string and values of json", t.Key, t.Value),
				"leave `key` and `value` of the topic out")
		}
		if t.Seed != nil && t.Seed.Key == "" {
			d.report(name.node, "config.no_key", "the seed of the topic has no `key:`, so that all of its configs have the same key and the last one counts", "write `key:` in the seed")
		}
		if _, said := t.Config["cleanup.policy"]; !said {
			t.Config = maps.Clone(t.Config)
			if t.Config == nil {
				t.Config = map[string]string{}
			}
			t.Config["cleanup.policy"] = "compact"
		}
	}
	return topics
}

// sameTokens reports config topics whose declared partition counts differ (D4, as far as the file tells).
func (d *draft) sameTokens(e *Extractor, spec *ExtractorSpec) {
	first := 0
	for i := range spec.ConfigTopics.Items {
		name := &spec.ConfigTopics.Items[i]
		n := slices.IndexFunc(e.ConfigTopics, func(t *Topic) bool { return t.Name == name.Value })
		switch {
		case n < 0 || e.ConfigTopics[n].Partitions == 0:
		case first == 0:
			first = e.ConfigTopics[n].Partitions
		case first != e.ConfigTopics[n].Partitions:
			d.report(name.node, "topic.partitions", fmt.Sprintf("this config topic has %d partitions and the first one %d, and their count is into how many units of work the configs are spread",
				e.ConfigTopics[n].Partitions, first), "give all config topics of an extractor the same partition count")
		}
	}
}

// every compiles an `every` that is an expression.
func (d *draft) every(e *Extractor, scope expr.Scope) *expr.Expr {
	x := &e.item.Value.Every.x
	out := d.compile(&e.expressions, x, scope, expr.Any)
	if out == nil {
		return nil
	}
	_, notText := expr.Compile(x.text.Text, scope, expr.AText)
	_, notNumber := expr.Compile(x.text.Text, scope, expr.ANumber)
	var wrong *expr.Error
	if notText != nil && errors.As(notNumber, &wrong) {
		d.expressionError(e.texts[len(e.texts)-1], &expr.Error{Line: wrong.Line, Column: wrong.Column, Code: expr.CodeType,
			Message: "`every` is a duration such as 30s, or a number of milliseconds, and this can never be one", Hint: `as in config.every ?? "10s"`})
		return nil
	}
	return out
}

// configs collects the inline configs and looks whether they are what the stage wants.
func (d *draft) configs(e *Extractor, what string) {
	spec, stage := &e.item.Value, e.item.value
	if rules := spec.Config; rules != nil {
		e.Config = &ConfigSpec{Defaults: rules.Defaults.JSON, schema: rules.Schema.schema}
		if n := stage.find("config"); n.kind == mapping && len(n.entries) == 0 {
			d.report(n, "field.empty", what+".config says nothing", "write `schema:` or `defaults:`, or remove the key")
		}
		d.defaults(rules)
	}
	check := &configCheck{draft: d, e: e, what: what}
	for i := range spec.ConfigTopics.Items {
		name := &spec.ConfigTopics.Items[i]
		if n := slices.IndexFunc(e.ConfigTopics, func(t *Topic) bool { return t.Name == name.Value }); n >= 0 {
			check.seed(e.ConfigTopics[n], name.node)
		}
	}
	if !stage.has("configs") {
		if !stage.has("config_topics") {
			check.one("default", []byte("{}"), nil, nil)
			if k := stage.key("where"); k != nil && check.looked && len(e.Configs) == 0 {
				d.report(k, "field.no_effect", "`where` leaves the only config out, so that nothing is polled", "write `configs:` or `config_topics:`, or remove the key")
			}
		}
		return
	}
	if spec.Configs.given() && len(spec.Configs.Items) == 0 {
		d.report(spec.Configs.node, "field.empty", what+".configs has no config, so that nothing is polled", "write one, or remove the key")
	}
	for i := range spec.Configs.Items {
		if item := &spec.Configs.Items[i]; !item.broken {
			check.one(item.Name, item.Value.JSON, item.key, &item.Value)
		}
	}
	if k := stage.key("where"); k != nil && check.looked && len(e.Configs) == 0 && !stage.has("config_topics") {
		d.report(k, "field.no_effect", "`where` leaves every config out, so that nothing is polled", "correct it, or remove the key")
	}
}

// defaults reports defaults that no config with them could make right.
func (d *draft) defaults(rules *ConfigRulesSpec) {
	if !rules.Defaults.given() || rules.Defaults.missing || rules.Schema.schema == nil {
		return
	}
	var wrong *SchemaError
	if !errors.As(rules.Schema.schema.check(rules.Defaults.JSON), &wrong) {
		return
	}
	for i := range wrong.Misfits {
		m := &wrong.Misfits[i]
		if at := rules.Defaults.node.inside(m.Path); m.Certain {
			d.report(at, "config.invalid", "the default "+m.String(), d.typeHint(at, m))
		}
	}
}

// typeHint is for a text of the environment where a number or boolean is wanted.
func (d *draft) typeHint(n *node, m *Misfit) string {
	if m.wrongType && n.kind == scalar && d.expand(n).env {
		return "what comes from the environment is a text; write `${NAME|number}`, `${NAME|int}` or `${NAME|bool}` for another type"
	}
	return ""
}

// configCheck looks at the configs of a stage that are known before anything runs.
type configCheck struct {
	*draft
	e    *Extractor
	what string
	// looked says that an inline config could be looked at.
	looked bool
}

// one checks an inline config, and adds it to the stage's if it is one. at and object are nil for that of a stage without
// configs.
func (c *configCheck) one(key string, text []byte, at *node, object *Object) {
	full, err := c.e.Config.Fill(text)
	if err != nil {
		return // an Object is one
	}
	if !c.known() || object != nil && object.missing {
		c.e.Configs = append(c.e.Configs, stream.Config{Key: key, Value: full})
		return
	}
	c.looked = true
	var wrong *SchemaError
	own, name, err := c.judge(key, full)
	if own {
		c.e.Configs = append(c.e.Configs, stream.Config{Key: key, Value: full})
	}
	switch {
	case err == nil:
	case name == "http":
		var f *expr.Failure
		if !errors.As(err, &f) {
			return
		}
		if place, ok := c.e.At(f); ok {
			c.problem(place.File, place.Line, place.Column, "http.hole", fmt.Sprintf("the request fails for the config %s, when it is polled for the first time: %s", key, f.Message), "")
		}
	case !errors.As(err, &wrong):
		if at == nil {
			at = c.e.item.value.key(name)
		}
		c.report(at, "config.invalid", fmt.Sprintf("`%s` fails for the config %s: %s", name, key, failure(err)), "")
	case object == nil:
		for i := range wrong.Misfits {
			c.report(c.e.item.key, "config.invalid", fmt.Sprintf("%s has neither `configs:` nor `config_topics:`, and without them its only config is {}, with its defaults: %s", c.what, wrong.Misfits[i].String()), "")
		}
	default:
		for i := range wrong.Misfits {
			place := object.node.inside(wrong.Misfits[i].Path)
			if place == object.node {
				place = at
			}
			c.report(place, "config.invalid", fmt.Sprintf("the config %s is not what %s wants: %s", key, c.what, wrong.Misfits[i].String()), c.typeHint(place, &wrong.Misfits[i]))
		}
	}
}

// known tells whether all that configs are judged by is there.
func (c *configCheck) known() bool {
	stage := c.e.item.value
	return !c.NoEnv && !c.spec.Vars.missing && (c.e.Where != nil || !stage.has("where")) && (c.root.find("vars") == nil || c.spec.Vars.given())
}

// judge tells whether a config with its defaults is the stage's own, and if so, what is wrong with it: a *SchemaError, or the
// failure of the expression with that name.
func (c *configCheck) judge(key string, full []byte) (own bool, name string, err error) {
	env := expr.Env{ConfigKey: key}
	if env.Config, err = expr.NewDoc(full); err != nil {
		return true, "config", err
	}
	if env.Vars, err = expr.NewDoc(c.pipe.Vars); err != nil {
		return true, "vars", err
	}
	if c.e.Where != nil {
		if own, err = c.e.Where.Bool(&env); err != nil || !own {
			return err != nil, "where", err
		}
	}
	if err := c.e.Config.Check(full); err != nil {
		return true, "config", err
	}
	if c.e.EveryExpr == nil && c.e.HTTP == nil || c.e.Enrich.Present() { // which may give what they read
		return true, "", nil
	}
	initial := c.e.Initial
	if initial == nil {
		initial = []byte("{}")
	}
	if env.State, err = expr.NewDoc(initial); err != nil {
		return true, "state", err
	}
	if _, err = c.e.Period(&env); err != nil {
		return true, "every", err
	}
	return true, "http", c.e.HTTP.try(&env)
}

func failure(err error) string {
	var f *expr.Failure
	if errors.As(err, &f) {
		return f.Message
	}
	return err.Error()
}

// seed reports the first record of the seed of a config topic that is no config of the stage. n is where the stage names the
// topic.
func (c *configCheck) seed(t *Topic, n *node) {
	if t.Seed == nil || !c.known() || t.Value != stream.JSON {
		return
	}
	seen := 0
	for r, err := range t.Seed.Records() {
		if seen++; err != nil || seen > seedSample {
			return // what cannot be read is reported where the seed stands
		}
		full, err := c.e.Config.Fill(r.Value)
		name := ""
		if err == nil {
			_, name, err = c.judge(string(r.Key), full)
		}
		if err == nil {
			continue
		}
		where := fmt.Sprintf("line %d", r.Line)
		if t.Seed.File != "" {
			where += " of its file"
		}
		var wrong *SchemaError
		trouble := failure(err)
		if !errors.As(err, &wrong) && name != "" {
			trouble = fmt.Sprintf("`%s` fails: %s", name, trouble)
		}
		c.report(n, "config.invalid", fmt.Sprintf("a config of this topic's seed, at %s, is not what %s wants: %s", where, c.what, trouble), "")
		return
	}
}

func configTexts(spec *ExtractorSpec) []envText {
	var texts []envText
	if spec.Config != nil {
		texts = append(texts, spec.Config.Defaults.texts...)
	}
	for i := range spec.Configs.Items {
		texts = append(texts, spec.Configs.Items[i].Value.texts...)
	}
	return texts
}
