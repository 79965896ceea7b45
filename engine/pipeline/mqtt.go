package pipeline

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/flechtwerk/flechtwerk/engine/expr"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// MQTT is a session with a broker of MQTT 5.
type MQTT struct {
	Broker         string // mqtt:// or mqtts://
	User, Password string
	ClientID       string // empty is the application id, a hyphen and the instance
	TLS            *TLS   // nil is what the system has
	// Topics are the filters of each config, in scope expr.Forms.
	Topics []*expr.Template
	QoS    int // 0, 1 or 2
	Shared bool
	Format stream.Format
	// The following are 0 where the pipeline does not say.
	KeepAlive, SessionExpiry time.Duration
	ReceiveMaximum           int
	InboxMessages            int
	InboxBytes               int64
	// Leave says that the session ends for good with the process.
	Leave bool

	// topics are where the filters stand.
	topics []Text
}

// TLS is how a connection is encrypted. Files are relative to the pipeline's folder already.
type TLS struct {
	CA, Cert, Key string // files in PEM; empty where the pipeline does not say
	ServerName    string
	Insecure      bool
}

// Required is a member that a payload must have. Its Kind is any, string, number, integer, boolean, object or array.
type Required struct{ Name, Kind string }

// QoS is a quality of service: 0, 1 or 2.
type QoS struct {
	leaf
	Value int
}

func (q *QoS) decode(d *decoder, n *node, what string) bool {
	var l Limit
	if !l.decode(d, n, what) {
		return false
	}
	if l.Value > 2 {
		d.report(n, "field.value", fmt.Sprintf("%s is 0, 1 or 2, and %s is none of them", what, n.text), "")
		return false
	}
	q.node, q.Value = n, l.Value
	return true
}

// Require are members by name with their type, or a list of names.
type Require struct {
	leaf
	Members []Required
}

var requiredKinds = []string{"any", "string", "number", "integer", "boolean", "object", "array"}

func (r *Require) decode(d *decoder, n *node, what string) bool {
	switch {
	case n.kind == mapping && len(n.entries) == 0 || n.kind == list && len(n.items) == 0:
		d.report(n, "field.empty", what+" names no member", "write `name: number`, or remove the key")
		return false
	case n.kind == mapping:
		for _, e := range n.entries {
			d.keyWithoutEnv(e.key)
			if kind, ok := d.word(e.value, what+"."+e.key.text, requiredKinds, nil); ok {
				r.Members = append(r.Members, Required{e.key.text, kind})
			}
		}
	default:
		var names Names
		if !names.decode(d, n, what) {
			return false
		}
		for _, t := range names.Items {
			if slices.ContainsFunc(r.Members, func(m Required) bool { return m.Name == t.Value }) {
				d.report(t.node, "field.value", fmt.Sprintf("%s is already in this list", t.node.text), "remove it")
			}
			r.Members = append(r.Members, Required{t.Value, "any"})
		}
	}
	r.node = n
	return true
}

// mqtt makes the MQTT of a stage and checks what stands beside it.
func (d *draft) mqtt(e *Extractor, item *Item[ExtractorSpec], what string) {
	spec, stage := &item.Value, item.value
	if spec.MQTT == nil {
		for _, key := range []string{"require", "filter"} {
			if k := stage.key(key); k != nil && stage.has("http") {
				d.report(k, "not_supported", fmt.Sprintf("`%s` is not supported yet for what polls", key), "")
			} else if k != nil {
				d.report(k, "field.no_effect", fmt.Sprintf("`%s` has no effect without `mqtt`", key), "remove it")
			}
		}
		if e.OnError == DeadLetter {
			d.report(spec.OnError.node, "not_supported", "`dlq` is not supported yet for what polls", "use fail, skip or retry")
		}
		return
	}
	d.session(e, spec.MQTT, what+".mqtt")
	for key, why := range map[string]string{
		"records": "a message is the record", "cursor": "the broker knows what is acknowledged", "every": "the messages come by themselves", "cron": "the messages come by themselves",
		"state":  "what arrives may be spread over several instances; a transformer that reads the output keeps state",
		"tokens": "every instance has the whole session", "workers": "an instance has one session",
	} {
		if k := stage.key(key); k != nil {
			d.report(k, "field.no_effect", fmt.Sprintf("`%s` has no effect beside `mqtt`", key), why)
		}
	}
	if k := stage.key("enrich"); k != nil {
		d.report(k, "not_supported", "`enrich` is not supported yet beside `mqtt`", "write configs that say all")
	}
	e.Tokens = 1
	if k := stage.key("timeout"); k != nil && !stage.has("relay") {
		d.report(k, "field.no_effect", "`timeout` has no effect in a stage without a script", "remove it, or write a `relay:`")
	} else if k == nil {
		e.Timeout = RelayTimeout
	}
	if e.OnError == Retry {
		d.report(spec.OnError.node, "field.no_effect", "`retry` has no effect beside `mqtt`: nothing is acknowledged that was not committed, so that it would hold up all that comes behind", "use fail, skip or { dlq: topic }")
	}
	if e.Require = spec.Require.Members; spec.Require.given() && e.MQTT.Format != stream.JSON {
		d.report(stage.key("require"), "field.no_effect", fmt.Sprintf("`require` has no effect on payloads of %s", e.MQTT.Format), "remove it, or leave `format` out")
	}
	scope := d.scope(expr.Delivery)
	before := len(e.texts)
	e.Filter = d.compile(&e.expressions, &spec.Filter, scope, expr.Condition)
	switch message, relay := stage.key("message"), stage.key("relay"); {
	case message != nil && relay != nil:
		d.report(second(message, relay), "stage.two_bodies", what+" has a `message` and a `relay`", "write the Message in the script, or leave the script out")
	case message == nil && relay == nil:
		d.report(item.key, "stage.no_body", what+" has neither `message:` nor `relay:`, so nothing becomes of a message", "write one of them")
	}
	if e.Message = d.message(&e.expressions, stage, spec.Message, what, scope); e.Message != nil {
		d.destination(what, item.key, stage, &spec.OutputTopics, &e.OutputTopics, e.Message, spec.Message)
	}
	own := expressions{texts: e.texts[before:]}
	texts := map[string][]envText{"vars": d.spec.Vars.texts, "config": configTexts(spec)}
	d.textsInExpressions(&own, scope, texts)
	d.textsInScript(&spec.Relay, texts)
	e.InvalidTo, e.ErrorTo = d.deadLetters(&spec.OnInvalid.To), d.deadLetters(&spec.OnError.To)
}

// deadLetters is the topic of a policy. What it holds is whatever came.
func (d *draft) deadLetters(name *Text) *Topic {
	if !name.given() {
		return nil
	}
	t := d.topic(name)
	if t != nil && (t.Value != stream.Bytes && t.Declared || t.Key == stream.JSON) {
		d.report(name.node, "topic.dead_letters", fmt.Sprintf("a dead letter has the bytes that came, whatever they are, and the topic has values of %s", t.Value), "declare the topic with `value: bytes`")
	}
	return t
}

// session makes an MQTT of what stands under `mqtt:`.
func (d *draft) session(e *Extractor, spec *MQTTSpec, what string) {
	m := &MQTT{
		Broker: spec.Broker.Value, User: spec.User.Value, Password: spec.Password.Value, ClientID: spec.ClientID.Value, QoS: 1, Shared: true,
		Format: spec.Format.Value, KeepAlive: spec.KeepAlive.Value, SessionExpiry: spec.SessionExpiry.Value, ReceiveMaximum: spec.ReceiveMaximum.Value,
		Leave: spec.OnStop.Value == "leave",
	}
	e.MQTT = m
	if spec.QoS.given() {
		m.QoS = spec.QoS.Value
	}
	if spec.Shared.given() {
		m.Shared = spec.Shared.Value
	}
	if spec.Inbox != nil {
		m.InboxMessages, m.InboxBytes = spec.Inbox.Messages.Value, spec.Inbox.Bytes.Value
	}
	if r := &spec.ReceiveMaximum; r.given() && r.Value > 65535 {
		d.report(r.node, "field.value", fmt.Sprintf("%s.receive_maximum is at most 65535, and %s is more", what, r.node.text), "")
	}
	for _, t := range []*Duration{&spec.KeepAlive, &spec.SessionExpiry} {
		if t.given() && t.Value%time.Second != 0 {
			d.report(t.node, "duration.invalid", "MQTT counts this in whole seconds", "write "+strconv.Itoa(int(t.Value/time.Second)+1)+"s")
		}
	}
	secure := d.brokerURL(&spec.Broker, spec, what)
	if spec.TLS != nil {
		m.TLS = d.tls(spec.TLS, what+".tls")
		if spec.Broker.given() && !spec.Broker.missing && !secure {
			d.report(spec.TLS.at(d, spec.Broker.node), "field.no_effect", "`tls` has no effect on an unencrypted connection", "write the broker as mqtts://…")
		}
	}
	scope := d.scope(expr.Forms)
	for i := range spec.Topics.Items {
		t := &spec.Topics.Items[i]
		text := &leafText{t.node, textOf(d.decoder, t.node, t.Value)}
		e.texts = append(e.texts, text)
		filter, err := expr.CompileTemplate(t.Value, scope)
		if wrong, ok := err.(*expr.Error); ok { //nolint:errorlint // it is never wrapped
			d.expressionError(text, wrong)
			continue
		}
		m.Topics, m.topics = append(m.Topics, filter), append(m.topics, *t)
	}
}

// at is a place to report something about a TLSSpec at.
func (s *TLSSpec) at(_ *draft, otherwise *node) *node {
	for _, t := range []*Text{&s.CA, &s.Cert, &s.Key, &s.ServerName} {
		if t.given() {
			return t.node
		}
	}
	if s.Insecure.given() {
		return s.Insecure.node
	}
	return otherwise
}

func (d *draft) tls(spec *TLSSpec, what string) *TLS {
	t := &TLS{ServerName: spec.ServerName.Value, Insecure: spec.Insecure.Value}
	for _, f := range []struct {
		from *Text
		to   *string
	}{{&spec.CA, &t.CA}, {&spec.Cert, &t.Cert}, {&spec.Key, &t.Key}} {
		if f.from.given() && !f.from.missing {
			*f.to = d.beside(f.from.Value)
		}
	}
	if spec.Cert.given() != spec.Key.given() {
		given := &spec.Cert
		if spec.Key.given() {
			given = &spec.Key
		}
		d.report(given.node, "field.missing", what+" has `cert` or `key` alone", "a certificate and its key belong together")
	}
	return t
}

// brokerURL checks the address of a broker, and tells whether it is an encrypted one.
func (d *draft) brokerURL(broker *Text, spec *MQTTSpec, what string) (secure bool) {
	if !broker.given() || broker.missing {
		return false
	}
	const hint = "write mqtt://host:1883, or mqtts://host:8883"
	u, err := url.Parse(broker.Value)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "":
		d.report(broker.node, "mqtt.broker", what+".broker is the URL of a broker, and this is none", hint)
		return false
	case u.Scheme != "mqtt" && u.Scheme != "mqtts":
		d.report(broker.node, "mqtt.broker", fmt.Sprintf("%s.broker begins with mqtt:// or mqtts://, and not with %s://", what, u.Scheme), hint)
		return false
	case u.Path != "" && u.Path != "/" || u.RawQuery != "":
		d.report(broker.node, "mqtt.broker", what+".broker has more than a host and a port", hint)
	case u.User != nil && spec.User.given():
		d.report(spec.User.node, "field.no_effect", "`user` has no effect beside the one in the broker's URL", "remove one of them")
	}
	return u.Scheme == "mqtts"
}

// SessionRules are what only whoever speaks to a broker knows.
type SessionRules struct {
	// Filter tells what is wrong with a topic filter.
	Filter func(filter string) error
	// Overlap tells which two of several filters could match the same topic.
	Overlap func(filters []string) error
}

// CheckSessions finds what is wrong with topic filters that are known before anything runs.
func (s *Set) CheckSessions(rules SessionRules) Problems {
	var problems Problems
	for _, p := range s.Pipelines {
		for _, e := range p.Extractors {
			if e.MQTT != nil {
				problems = append(problems, e.filters(p, rules)...)
			}
		}
	}
	problems.Sort()
	return problems
}

// filters checks the filters of a stage: those without holes where they stand, and those of all inline configs together.
func (e *Extractor) filters(p *Pipeline, rules SessionRules) (problems Problems) {
	m := e.MQTT
	report := func(n *node, message, hint string) {
		problems = append(problems, Problem{p.File, n.line, n.column, Error, "mqtt.filter", message, hint})
	}
	static := true
	for i := range m.topics {
		text, ok := m.Topics[i].Static()
		if !ok || m.topics[i].missing || strings.Contains(text, "${") {
			static = false
			continue
		}
		if err := rules.Filter(text); err != nil {
			report(m.topics[i].node, err.Error(), "")
			static = false
		}
	}
	if len(problems) > 0 || len(m.Topics) == 0 {
		return problems
	}
	if static && (len(e.Configs) > 1 || len(e.ConfigTopics) > 0) {
		report(m.topics[0].node, "every config would subscribe to the same topics", "let them differ by the config, as in `{{ config.topic }}`, or leave the configs out")
		return problems
	}
	var all []string
	for i := range e.Configs {
		filters, err := e.TopicsOf(p, &e.Configs[i], time.Now())
		if err != nil {
			if !static && m.known() {
				report(m.topics[0].node, fmt.Sprintf("the topics of the config %s cannot be told: %s", e.Configs[i].Key, failure(err)), "")
			}
			return problems
		}
		for _, f := range filters {
			if err := rules.Filter(f); err != nil && !static && m.known() {
				report(m.topics[0].node, fmt.Sprintf("the config %s: %v", e.Configs[i].Key, err), "")
				return problems
			}
		}
		all = append(all, filters...)
	}
	if err := rules.Overlap(all); err != nil && m.known() {
		report(m.topics[len(m.topics)-1].node, err.Error(), "each message would come twice; let no two filters match the same topic")
	}
	return problems
}

func (m *MQTT) known() bool {
	return !slices.ContainsFunc(m.topics, func(t Text) bool { return t.missing })
}

// TopicsOf are the topic filters of a config.
func (e *Extractor) TopicsOf(p *Pipeline, config *stream.Config, now time.Time) ([]string, error) {
	env := expr.Env{ConfigKey: config.Key, Now: now.UnixMilli()}
	var err error
	if env.Config, err = expr.NewDoc(config.Value); err != nil {
		return nil, err
	}
	if env.Vars, err = expr.NewDoc(p.Vars); err != nil {
		return nil, err
	}
	var filters []string
	for _, t := range e.MQTT.Topics {
		text, err := t.Append(nil, &env)
		if err != nil {
			return nil, err
		}
		filters = append(filters, string(text))
	}
	return filters, nil
}
