package script

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// arrived makes an arrival of a JSON value. One with a topic came from MQTT.
func arrived(t testing.TB, topic, value string) stream.Arrival {
	a := stream.Arrival{Topic: topic, Timestamp: 1000, Value: []byte(value)}
	var err error
	if a.Kind, a.Members, err = rawjson.Check(a.Value, nil); err != nil {
		t.Fatal(err)
	}
	if topic != "" {
		properties := []stream.Header{{Key: "unit", Value: []byte("C")}, {Key: "unit", Value: []byte("K")}}
		a.Key, a.Headers = []byte(topic), properties
		a.Delivery = &stream.Delivery{Levels: strings.Split(topic, "/"), QoS: 1, Retained: true, Properties: properties, ContentType: "application/json"}
	}
	return a
}

type relayCase struct {
	pull     bool
	module   bool
	body     string
	arrivals [][2]string // topic and value
	cursor   string
	env      Env
	skip     bool
	want     string
	err      string
}

func (c relayCase) run(t *testing.T) (string, error) {
	p := mustCompile(t, Source{Kind: Relay, Push: !c.pull, Module: c.module, Body: stream.Text{File: "f.yaml", Line: 1, Column: 1, Text: c.body}})
	env := c.env
	env.Outputs = out
	r, err := p.NewRelay(env)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var arena stream.Arena
	in := &stream.Relaying{
		Config: stream.Config{Key: "de", Value: []byte(`{"region":"DE","list":[]}`)}, Configs: configMap{"de": `{"limit":85}`},
		Arena: &arena, Fail: func(_ int, err error) error { return err },
	}
	var s strings.Builder
	if c.skip {
		in.Fail = func(i int, err error) error {
			fmt.Fprintf(&s, "failed %d: %v\n", i, err)
			return nil
		}
	}
	if c.pull {
		in.Response = &stream.Response{Status: 200, URL: "http://x/y", Headers: []stream.Header{{Key: "etag", Value: []byte("7")}}, Elapsed: 12, Body: []byte(`{"next":3}`)}
		if c.cursor != "" {
			in.Cursor = []byte(c.cursor)
		}
	}
	for _, a := range c.arrivals {
		in.Arrivals = append(in.Arrivals, arrived(t, a[0], a[1]))
	}
	page := &stream.Page{Messages: []stream.Message{{Topic: out[0], Value: []byte("before")}}}
	if err = r.Run(t.Context(), in, page); err == nil && string(page.Messages[0].Value) != "before" {
		t.Error("what stood in the page before is gone")
	}
	for _, m := range page.Messages[1:] {
		fmt.Fprintf(&s, "%d %s=%s@%d", m.From, m.Key, m.Value, m.Timestamp)
		for _, h := range m.Headers {
			fmt.Fprintf(&s, " %s:%s", h.Key, h.Value)
		}
		s.WriteString("\n")
	}
	if page.Moved {
		fmt.Fprintf(&s, "cursor %s\n", page.Cursor)
	}
	return strings.TrimSuffix(s.String(), "\n"), err
}

func TestRelays(t *testing.T) {
	for name, c := range map[string]relayCase{
		"one message of MQTT in, any number out": {
			body:     "yield Message({ key: msg.levels[1], value: { ...msg.value, at: msg.timestamp } }); if (msg.value.a > 1) yield Message({ value: msg.topic, timestamp: 5 })",
			arrivals: [][2]string{{"tanks/t1/level", `{"a":1.50}`}, {"tanks/t2/level", `{"a":0}`}},
			want:     "0 t1={\"a\":1.50,\"at\":1000}@1000\n0 tanks/t1/level=\"tanks/t1/level\"@5\n1 t2={\"a\":0,\"at\":1000}@1000",
		},
		"the key is that of the message": {
			body: "yield Message({ value: msg.value })", arrivals: [][2]string{{"a/b", `1`}}, want: "0 a/b=1@1000",
		},
		"value and key alone": {
			body: "yield Message({ key: msg.key, value: { k: msg.key, ...msg.value, r: config.region } })", arrivals: [][2]string{{"a/b", `{"v":1e-06}`}},
			want: `0 a/b={"k":"a/b","v":1e-06,"r":"DE"}@1000`,
		},
		"without a key it is that of the config": {
			pull: true, body: "yield Message({ value: msg.value })", arrivals: [][2]string{{"", `{"a":1}`}}, want: `0 de={"a":1}@1000`,
		},
		"what MQTT says": {
			body:     "yield Message({ headers: msg.headers, value: [msg.qos, msg.retained, msg.properties.unit, msg.contentType, msg.levels, Object.keys(msg), 'offset' in msg, msg.offset === undefined] })",
			arrivals: [][2]string{{"a/b", `1`}},
			want:     `0 a/b=[1,true,"K","application/json",["a","b"],["key","value","topic","timestamp","headers","levels","qos","retained","properties","contentType"],false,true]@1000 unit:C unit:K`,
		},
		"config is each call's own": {
			body:     "config.list.push(1); yield Message({ value: [config.$key, config.list.length, configs.get('de').limit] })",
			arrivals: [][2]string{{"a", `1`}, {"a", `1`}},
			want:     "0 a=[\"de\",1,85]@1000\n1 a=[\"de\",1,85]@1000",
		},
		"what a failing one yielded is taken back": {
			body:     "yield Message({ value: msg.value }); if (msg.value === 2) throw new Error('two')",
			arrivals: [][2]string{{"a", `1`}, {"a", `2`}, {"a", `3`}}, skip: true,
			want: "failed 1: Error: two (f.yaml:1:65)\n0 a=1@1000\n2 a=3@1000",
		},
		"a failing one ends the run": {
			body:     "yield Message({ value: msg.value }); throw new Error('no')",
			arrivals: [][2]string{{"a", `1`}}, err: "Error: no (f.yaml:1:44)",
		},
		"it may wait": {
			body:     "await null; yield Message({ value: msg.value.a + 1, key: config.region })",
			arrivals: [][2]string{{"a", `{"a":1}`}, {"b", `{"a":2}`}}, want: "0 DE=2@1000\n1 DE=3@1000",
		},
		"a module": {
			module: true, body: "export function* relay(msg, config) { yield Message({ value: [msg.value, config.region] }) }",
			arrivals: [][2]string{{"a", `1`}}, want: `0 a=[1,"DE"]@1000`,
		},
		"a response": {
			pull: true, body: "yield Message({ value: [response.status, response.headers.get('ETag'), response.url, response.elapsed, msg.value] })",
			arrivals: [][2]string{{"", `7`}}, want: `0 de=[200,"7","http://x/y",12,7]@1000`,
		},
		"the body of a response": {
			pull: true, body: "yield Message({ value: (await response.json()).next })",
			arrivals: [][2]string{{"", `7`}}, want: `0 de=3@1000`,
		},
		"the last State of a run becomes the cursor": {
			pull: true, body: "yield State({ since: msg.value })", cursor: `{"since":1}`,
			arrivals: [][2]string{{"", `7`}, {"", `8`}}, want: `cursor {"since":8}`,
		},
		"a State is seen by what arrives later": {
			pull: true, body: "state.n = (state.n ?? 0) + 1; yield State(state); yield Message({ value: state.n })", cursor: `{"n":4}`,
			arrivals: [][2]string{{"", `7`}, {"", `8`}}, want: "0 de=5@1000\n1 de=6@1000\ncursor {\"n\":6}",
		},
		"a State of one that failed is none": {
			pull: true, body: "yield State({ since: msg.value }); if (msg.value > 7) throw 1", cursor: `{"since":1}`, skip: true,
			arrivals: [][2]string{{"", `7`}, {"", `8`}}, want: "failed 1: thrown: 1 (f.yaml:1:55)\ncursor {\"since\":7}",
		},
		"an unchanged State moves nothing": {
			pull: true, body: "yield State(state)", cursor: `{"since":1}`, arrivals: [][2]string{{"", `7`}}, want: "",
		},
		"the initial state": {
			pull: true, body: "yield Message({ value: state.since })", env: Env{Initial: []byte(`{"since":9}`)}, arrivals: [][2]string{{"", `7`}}, want: "0 de=9@1000",
		},
		"a module that was asked for": {
			pull: true, module: true, body: "export function* relay(msg, config, response, state) { yield Message({ value: [msg.value, response.status, state.since] }) }",
			cursor: `{"since":1}`, arrivals: [][2]string{{"", `7`}}, want: "0 de=[7,200,1]@1000",
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, plain := range []bool{false, true} {
				plainValues = plain
				got, err := c.run(t)
				plainValues = false
				if got != c.want || c.err == "" && err != nil || c.err != "" && (err == nil || err.Error() != c.err) {
					t.Errorf("plain %t: got\n%s\n%v\nwant\n%s\n%s", plain, got, err, c.want, c.err)
				}
			}
		})
	}
}

func TestARelayRunsAgain(t *testing.T) {
	p := mustCompile(t, Source{Kind: Relay, Body: bodyText("yield State({ n: (state.n ?? 0) + 1 }); yield Message({ value: [state.n ?? null, config.$key] });")})
	r, err := p.NewRelay(Env{Outputs: out})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{`de [null,"de"] {"n":1}`, `fr [4,"fr"] {"n":5}`, `de [null,"de"] {"n":1}`} {
		var arena stream.Arena
		in := &stream.Relaying{Config: stream.Config{Key: want[:2]}, Arena: &arena, Response: &stream.Response{}, Arrivals: []stream.Arrival{arrived(t, "", `1`)}}
		if want[:2] == "fr" {
			in.Cursor = []byte(`{"n":4}`)
		}
		page := &stream.Page{}
		if err := r.Run(context.Background(), in, page); err != nil {
			t.Fatal(err)
		}
		m := page.Messages[0]
		if got := fmt.Sprintf("%s %s %s", m.Key, m.Value, page.Cursor); got != want {
			t.Errorf("run %d: got %s, want %s", i, got, want)
		}
	}
}

func TestArrivalsOfOneKeyDoNotOverlap(t *testing.T) {
	var sent atomic.Int32
	both := make(chan struct{})
	env := Env{Outputs: out, Fetch: func(ctx context.Context, r *FetchRequest) (*FetchResponse, error) {
		if strings.HasSuffix(r.URL, "/second") {
			return nil, &FetchError{Code: "connect", Message: fmt.Sprint(sent.Load())}
		}
		if sent.Add(1) == 2 {
			close(both)
		}
		select {
		case <-both:
		case <-ctx.Done():
		}
		return nil, &FetchError{Code: "connect", Message: "first"}
	}}
	p := mustCompile(t, Source{Kind: Relay, Push: true, Body: bodyText("let said; try { await fetch('http://x/' + msg.value) } catch (e) { said = e.message }\nyield Message({ value: said });")})
	r, err := p.NewRelay(env)
	if err != nil {
		t.Fatal(err)
	}
	var arena stream.Arena
	in := &stream.Relaying{Config: stream.Config{Key: "default"}, Arena: &arena, Arrivals: []stream.Arrival{arrived(t, "a", `"first"`), arrived(t, "a", `"second"`), arrived(t, "b", `"first"`)}}
	page := &stream.Page{}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := r.Run(ctx, in, page); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range page.Messages {
		got = append(got, fmt.Sprintf("%s %s", m.Key, m.Value))
	}
	if text := strings.Join(got, ", "); text != `a "first", a "second", b "first"` && text != `a "first", a "2", b "first"` {
		t.Error(text)
	}
}

func TestARelayStopsAtItsTimeout(t *testing.T) {
	for _, body := range []string{"for (;;) {}", "await null; for (;;) {}"} {
		c := relayCase{body: "if (msg.value === 1) { " + body + " }; yield Message({ value: msg.value })", arrivals: [][2]string{{"a", `1`}, {"b", `2`}}, skip: true, env: Env{Timeout: 50 * time.Millisecond}}
		got, err := c.run(t)
		if err != nil || !strings.HasPrefix(got, "failed 0: the script ran longer than 50ms") || !strings.HasSuffix(got, "\n1 b=2@1000") {
			t.Errorf("%s: %s %v", body, got, err)
		}
	}
}

func TestRelaysThatAreRefused(t *testing.T) {
	for body, want := range map[string]string{
		"yield State({ a: 1 });":                 "tanks.yaml:31:7: script.no_state",
		"state.a = 1;":                           "tanks.yaml:31:7: script.no_state",
		"yield Message({ value: response });":    "tanks.yaml:31:30: script.unknown_name",
		"const config = 1;":                      "tanks.yaml:31:13: script.declared_twice",
		"yield Message({ value: msg.value })); ": "tanks.yaml:31:42: script.syntax",
	} {
		_, err := Compile(Source{Kind: Relay, Push: true, Body: bodyText(body)})
		var problems Problems
		if !errors.As(err, &problems) || len(problems) != 1 || !strings.HasPrefix(problems[0].Error(), want) {
			t.Errorf("%s: %v", body, err)
		}
	}
	if _, err := Compile(Source{Kind: Relay, Push: true, Module: true, Body: bodyText("export function* poll(config) {}")}); err == nil || !strings.Contains(err.Error(), "function* relay") {
		t.Error(err)
	}
	transform := mustCompile(t, Source{Body: bodyText("")})
	if _, err := transform.NewRelay(Env{}); err == nil {
		t.Error("a transform relays")
	}
}
