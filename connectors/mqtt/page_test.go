package mqtt_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"

	"github.com/flechtwerk/flechtwerk/connectors/connectortest/mqtttest"
	"github.com/flechtwerk/flechtwerk/connectors/mqtt"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

var letters = &stream.Topic{Name: "letters"}

// record is what the test keeps of a message.
type record struct {
	topic, key, value string
	headers           []string
}

// records collects what is committed, with all that a record has.
func (b *bench) records() func(n int) []record {
	got := make(chan record, 1000)
	b.setGate(func(_ context.Context, page *stream.Page) error {
		for _, m := range page.Messages {
			r := record{topic: m.Topic.Name, key: string(m.Key), value: string(m.Value)}
			for _, h := range m.Headers {
				r.headers = append(r.headers, h.Key+"="+string(h.Value))
			}
			got <- r
		}
		return nil
	})
	return func(n int) []record {
		b.t.Helper()
		var all []record
		for range n {
			all = append(all, await(b.t, got, "a record"))
		}
		return all
	}
}

type codedError struct{ code, text string }

func (e codedError) Error() string { return e.text }
func (e codedError) Code() string  { return e.code }
func (e codedError) Line() int     { return 17 }

func TestM4InvalidPayloads(t *testing.T) {
	for name, test := range map[string]struct {
		format  stream.Format
		require []mqtt.Member
		payload string
		want    string // of the error; empty is valid
	}{
		"json":                 {stream.JSON, nil, `{"a":1}`, ""},
		"json scalar":          {stream.JSON, nil, `7`, ""},
		"json that is none":    {stream.JSON, nil, `{"secret":`, "the payload is not JSON"},
		"json in bad UTF-8":    {stream.JSON, nil, "\"\xff\"", "the payload is not JSON"},
		"json of nothing":      {stream.JSON, nil, "", ""},
		"string":               {stream.String, nil, "ä", ""},
		"string in bad UTF-8":  {stream.String, nil, "secret\xff", "invalid UTF-8"},
		"bytes":                {stream.Bytes, nil, "\xff\x00", ""},
		"a member":             {stream.JSON, []mqtt.Member{{"a", mqtt.Any}}, `{"a":false}`, ""},
		"no member":            {stream.JSON, []mqtt.Member{{"a", mqtt.Any}}, `{"b":"secret"}`, `no member "a"`},
		"a null":               {stream.JSON, []mqtt.Member{{"a", mqtt.Any}}, `{"a":null}`, `member "a" is not a value`},
		"no object":            {stream.JSON, []mqtt.Member{{"a", mqtt.Any}}, `["secret"]`, `no member "a": it is no object`},
		"nothing and a member": {stream.JSON, []mqtt.Member{{"a", mqtt.Any}}, ``, `no member "a"`},
		"a string":             {stream.JSON, []mqtt.Member{{"a", mqtt.Text}}, `{"a":"x"}`, ""},
		"no string":            {stream.JSON, []mqtt.Member{{"a", mqtt.Text}}, `{"a":5}`, `member "a" is not a string`},
		"a number":             {stream.JSON, []mqtt.Member{{"a", mqtt.Number}}, `{"a":1.5}`, ""},
		"no number":            {stream.JSON, []mqtt.Member{{"a", mqtt.Number}}, `{"a":"1"}`, `member "a" is not a number`},
		"an integer":           {stream.JSON, []mqtt.Member{{"a", mqtt.Integer}}, `{"a":-15}`, ""},
		"no integer":           {stream.JSON, []mqtt.Member{{"a", mqtt.Integer}}, `{"a":1.5}`, `member "a" is not an integer`},
		"a boolean":            {stream.JSON, []mqtt.Member{{"a", mqtt.Bool}}, `{"a":true}`, ""},
		"no boolean":           {stream.JSON, []mqtt.Member{{"a", mqtt.Bool}}, `{"a":0}`, `member "a" is not a boolean`},
		"an object":            {stream.JSON, []mqtt.Member{{"a", mqtt.Object}}, `{"a":{}}`, ""},
		"no object in it":      {stream.JSON, []mqtt.Member{{"a", mqtt.Object}}, `{"a":[]}`, `member "a" is not an object`},
		"an array":             {stream.JSON, []mqtt.Member{{"a", mqtt.Array}}, `{"a":[]}`, ""},
		"no array":             {stream.JSON, []mqtt.Member{{"a", mqtt.Array}}, `{"a":{}}`, `member "a" is not an array`},
		"the second":           {stream.JSON, []mqtt.Member{{"a", mqtt.Any}, {"b", mqtt.Any}}, `{"a":1}`, `no member "b"`},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, mqtttest.Embedded(t))
			b.config.Format, b.config.Require = test.format, test.require
			_, ended := b.startAs(b.config)
			b.subscribed(1)
			b.publish.Publish(t, "tanks/a/level", test.payload)
			if test.want == "" {
				want := test.payload
				if test.format == stream.JSON && want == "" {
					want = "{}"
				}
				if got := b.wait(1)[0]; got != want {
					t.Errorf("%q became %q", test.payload, got)
				}
				return
			}
			err := b.mustEnd(ended)
			var coded *mqtt.Error
			if !errors.As(err, &coded) || coded.Code != mqtt.CodeInvalid || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), `"tanks/a/level"`) {
				t.Error(err)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("the payload is in the error: %v", err)
			}
			if n := b.count(mqtttest.Is(packets.PUBACK, true)); n != 0 {
				t.Errorf("%d acknowledgements", n)
			}
		})
	}
}

func TestM4PoliciesOfInvalidAndFailing(t *testing.T) {
	b := newBench(t, mqtttest.Embedded(t))
	failing := b.config.Message
	b.config.Message = func(c stream.Config, a *stream.Arrival, arena *stream.Arena) (stream.Message, error) {
		if string(a.Value) == `"bad"` {
			return stream.Message{}, codedError{"script.error", "it threw"}
		}
		return failing(c, a, arena)
	}
	b.config.Format = stream.JSON
	send := func(b *bench) {
		for _, payload := range []string{`1`, `no json`, `"bad"`, `2`} {
			b.publish.Send(t, &paho.Publish{Topic: "tanks/a/level", QoS: 1, Payload: []byte(payload), Properties: &paho.PublishProperties{
				User: paho.UserProperties{{Key: "site", Value: "north"}},
			}})
		}
	}

	b.config.OnInvalid, b.config.OnError = mqtt.Policy{Kind: mqtt.Skip}, mqtt.Policy{Kind: mqtt.Skip}
	invalid, failed := make(chan mqtt.MessageInfo, 10), make(chan mqtt.MessageInfo, 10)
	b.config.Events.MessageInvalid = func(i mqtt.MessageInfo) { invalid <- i }
	b.config.Events.MessageFailed = func(i mqtt.MessageInfo) { failed <- i }
	stop := b.start()
	b.subscribed(1)
	send(b)
	b.acks(4)
	if got := b.all(); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("skip: committed %v", got)
	}
	if i := await(t, invalid, "an event"); i.Topic != "tanks/a/level" || i.Config != "default" || i.Err == nil || i.DeadLetter {
		t.Errorf("%+v", i)
	}
	if i := await(t, failed, "an event"); i.Err.Error() != "it threw" {
		t.Errorf("%+v", i)
	}
	b.mustStop(stop)
	b.order(1)

	b.config.Stage = "tank-monitor/bridge"
	b.config.OnInvalid, b.config.OnError = mqtt.Policy{Kind: mqtt.DeadLetter, Topic: letters}, mqtt.Policy{Kind: mqtt.DeadLetter, Topic: letters}
	got := b.records()
	stop = b.start()
	b.subscribed(2)
	send(b)
	b.acks(8)
	byValue := map[string]record{}
	for _, r := range got(4) {
		byValue[r.value] = r
	}
	for value, want := range map[string]string{"no json": "mqtt.invalid", `"bad"`: "script.error"} {
		r := byValue[value]
		if r.topic != "letters" || r.key != "tanks/a/level" {
			t.Errorf("the letter of %q: %+v", value, r)
		}
		for _, h := range []string{"site=north", "flechtwerk.error.code=" + want, "flechtwerk.error.stage=tank-monitor/bridge", "flechtwerk.error.topic=tanks/a/level"} {
			if !slices.Contains(r.headers, h) {
				t.Errorf("the letter of %q has no header %s: %v", value, h, r.headers)
			}
		}
		if line := slices.Contains(r.headers, "flechtwerk.error.line=17"); line != (want == "script.error") {
			t.Errorf("the line of %q: %v", value, r.headers)
		}
	}
	if byValue["1"].topic != "levels" || byValue["2"].topic != "levels" {
		t.Errorf("%v", byValue)
	}
	b.mustStop(stop)

	b.config.OnError = mqtt.Policy{}
	_, ended := b.startAs(b.config)
	b.subscribed(3)
	send(b)
	err := b.mustEnd(ended)
	var coded *mqtt.Error
	if !errors.As(err, &coded) || coded.Code != "script.error" || coded.Topic != "tanks/a/level" {
		t.Error(err)
	}
}

// relay yields each arrival's value twice, fails on "bad", and on "half" after the first.
type relay struct{ closed int }

func (r *relay) Run(_ context.Context, in *stream.Relaying, page *stream.Page) error {
	for i, a := range in.Arrivals {
		add := func(n int) {
			page.Messages = append(page.Messages, stream.Message{Topic: output, Key: a.Key, Value: in.Arena.Copy(fmt.Appendf(nil, "%s %s %d", in.Config.Key, a.Value, n)), From: i})
		}
		if string(a.Value) == "bad" {
			if err := in.Fail(i, errors.New("bad")); err != nil {
				return err
			}
			continue
		}
		add(1)
		add(2)
	}
	return nil
}

func (r *relay) Close() { r.closed++ }

func TestRelayOfSeveralConfigs(t *testing.T) {
	b := newBench(t, mqtttest.Embedded(t))
	r := &relay{}
	b.config.Relay, b.config.Message, b.config.Filters = r, nil, byConfig
	b.config.OnError = mqtt.Policy{Kind: mqtt.Skip}
	b.setConfigs(config("a"), config("b"))
	entered, release := b.block()
	stop := b.start()
	b.subscribed(1)
	b.publish.Publish(t, "a/1", "0")
	await(t, entered, "a commit")
	for _, m := range []string{"a 1", "b 2", "a bad", "b 3", "a 4"} {
		b.publish.Publish(t, m[:1]+"/x", m[2:])
	}
	b.deliveries(6)
	release()
	got := b.wait(10)[2:]
	var ofA, ofB []string
	for _, v := range got {
		if v[0] == 'a' {
			ofA = append(ofA, v)
		} else {
			ofB = append(ofB, v)
		}
	}
	if !slices.Equal(ofA, []string{"a 1 1", "a 1 2", "a 4 1", "a 4 2"}) || !slices.Equal(ofB, []string{"b 2 1", "b 2 2", "b 3 1", "b 3 2"}) {
		t.Errorf("%v", got)
	}
	b.acks(6)
	b.order(1)
	b.mustStop(stop)
	if r.closed != 1 {
		t.Errorf("the relay was closed %d times", r.closed)
	}
}

func TestMessageThatKafkaRefuses(t *testing.T) {
	b := newBench(t, mqtttest.Embedded(t))
	tooLarge := errors.New("too large")
	refuse := func(topic string) func(context.Context, *stream.Page) error {
		return func(_ context.Context, page *stream.Page) error {
			for i, m := range page.Messages {
				if strings.Contains(string(m.Value), "large") && (m.Topic.Name == "levels" || m.Topic.Name == topic) {
					return &stream.RefusedError{Message: i, Err: tooLarge}
				}
			}
			return nil
		}
	}
	send := func() {
		for _, payload := range []string{"1", "large a", "2", "large b", "3"} {
			b.publish.Publish(t, "tanks/a/level", payload)
		}
	}

	told := make(chan string, 10)
	b.config.Filter = func(_ stream.Config, a *stream.Arrival) (bool, error) {
		if string(a.Value) == "odd" {
			return false, errors.New("odd")
		}
		return true, nil
	}
	b.config.Events.MessageFailed = func(i mqtt.MessageInfo) { told <- i.Err.Error() }
	b.config.OnError = mqtt.Policy{Kind: mqtt.Skip}
	b.setGate(refuse("levels"))
	stop := b.start()
	b.subscribed(1)
	b.publish.Publish(t, "tanks/a/level", "odd")
	send()
	b.acks(6)
	var events []string
	for range 3 {
		events = append(events, await(t, told, "an event"))
	}
	slices.Sort(events)
	if len(told) != 0 || events[2] != "odd" || !strings.Contains(events[0], "too large") || !strings.Contains(events[1], "too large") {
		t.Errorf("events: %v", events)
	}
	if got := b.all(); !slices.Equal(got, []string{"1", "2", "3"}) {
		t.Errorf("skip: committed %v", got)
	}
	b.order(1)
	b.mustStop(stop)

	b.config.OnError = mqtt.Policy{Kind: mqtt.DeadLetter, Topic: letters}
	stop = b.start()
	b.subscribed(2)
	send()
	b.acks(11)
	if got := b.all()[3:]; len(got) != 5 || !slices.Contains(got, "large a") || !slices.Contains(got, "large b") {
		t.Errorf("dlq: committed %v", got)
	}
	b.mustStop(stop)

	for name, policy := range map[string]mqtt.Policy{"fail": {}, "a letter that is refused, too": {Kind: mqtt.DeadLetter, Topic: letters}} {
		b.config.OnError = policy
		b.setGate(refuse("letters"))
		_, ended := b.startAs(b.config)
		b.publish.Publish(t, "tanks/a/level", "large")
		if err := b.mustEnd(ended); !errors.Is(err, tooLarge) || !strings.Contains(err.Error(), "tanks/a/level") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOverlappingConfigs(t *testing.T) {
	b := newBench(t, mqtttest.Embedded(t))
	b.config.Filters = func(c stream.Config) ([]string, error) {
		if c.Key == "broken" {
			return nil, errors.New("no member filter")
		}
		return strings.Fields(string(c.Value)), nil
	}
	of := func(key, filters string) stream.Config { return stream.Config{Key: key, Value: []byte(filters)} }
	b.setConfigs(of("a", "x/+ y"), of("b", "z x/1"), of("c", "v"))
	_, ended := b.startAs(b.config)
	err := b.mustEnd(ended)
	var coded *mqtt.Error
	if !errors.As(err, &coded) || coded.Code != mqtt.CodeOverlap || coded.Config != "b" {
		t.Error(err)
	}
	for _, part := range []string{`"x/1" of config "b"`, `"x/+" of config "a"`, "twice"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not say %s", err, part)
		}
	}

	refused := make(chan mqtt.MessageInfo, 10)
	b.config.Events.ConfigRefused = func(i mqtt.MessageInfo) { refused <- i }
	b.config.OnError = mqtt.Policy{Kind: mqtt.Skip}
	stop := b.start()
	b.subscribed(1)
	if i := await(t, refused, "a refused config"); i.Config != "b" {
		t.Errorf("%+v", i)
	}
	subscribe := b.tap.Wait(t, 1, "SUBSCRIBE", mqtttest.Is(packets.SUBSCRIBE, true))[0].Content.(*packets.Subscribe)
	var filters []string
	for _, s := range subscribe.Subscriptions {
		filters = append(filters, s.Topic)
	}
	if !slices.Equal(filters, []string{"v", "x/+", "y"}) { // and not z
		t.Errorf("subscribed to %v", filters)
	}
	// It is said once, whatever else changes, and another error is another one.
	b.setConfigs(of("a", "x/+ y"), of("b", "z x/1"), of("broken", ""), of("c", "v w"))
	b.subscribed(2)
	if i := await(t, refused, "a refused config"); i.Config != "broken" || !strings.Contains(i.Err.Error(), "no member filter") {
		t.Errorf("%+v", i)
	}
	// Without the other it is served.
	b.setConfigs(of("b", "z x/1"))
	b.subscribed(3)
	b.publish.Publish(t, "x/1", "1")
	b.wait(1)
	b.mustStop(stop)
	if len(refused) != 0 {
		t.Errorf("said again: %+v", <-refused)
	}
}
