package main

import (
	"strings"
	"testing"

	"github.com/flechtwerk/flechtwerk/connectors/mqtt/devbroker"
)

// A broker that does not let us in is a matter of the surroundings. Neither password is shown.
func TestMQTTBrokerThatRefuses(t *testing.T) {
	broker, err := devbroker.Start(devbroker.Config{Address: "127.0.0.1:0", User: "bridge", Password: "right"})
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	t.Chdir(t.TempDir())
	write(t, ".", "p.yaml", `pipeline: p
extractors:
  bridge:
    mqtt: { broker: "mqtt://`+broker.Addr()+`", topics: a, user: bridge, password: wr0ng }
    output_topics: out
    message: { value: value }
`)
	got := flechtwerk(t, nil, "run", "p.yaml", "--dev", "-s", "http.listen=off")
	if got.status != exitSurroundings || !strings.Contains(got.stderr, "p/bridge") || strings.Contains(got.stderr, "wr0ng") {
		t.Errorf("%+v", got)
	}
}

func TestPublishedMessagesAreChecked(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, ".", "p.yaml", "pipeline: p\nextractors:\n  bridge:\n    mqtt: { broker: mqtt://broker.example, topics: a }\n    output_topics: out\n    message: { value: value }\n")
	for text, want := range map[string]string{
		"":                                   "holds no message",
		"{}":                                 "m.ndjson:1: it has no topic",
		`{"topic":"a"}` + "\n\n" + `{"a":1}`: `m.ndjson:3: json: unknown field "a"`,
		`{"topic":"a/#","value":1}`:          "no + and no #",
		`{"topic":"a","value":1,"text":""}`:  "a value and a text",
		`{"topic":"a","qos":3}`:              "qos is 0, 1 or 2",
		`{"topic":"a","wait":"2"}`:           "wait: a duration",
		`{"topic":"a"} 1`:                    "more behind the object",
		`{"topic":"a"}`:                      "there is no MQTT broker inside the process",
	} {
		write(t, ".", "m.ndjson", text)
		if got := flechtwerk(t, nil, "run", "p.yaml", "--dev", "--publish", "m.ndjson", "-s", "http.listen=off"); got.status != exitWrong || !strings.Contains(got.stderr, want) {
			t.Errorf("%s: %+v, want %q", text, got, want)
		}
	}
	if got := flechtwerk(t, nil, "run", "p.yaml", "--publish", "m.ndjson"); got.status != exitWrong || !strings.Contains(got.stderr, "without --dev") {
		t.Errorf("%+v", got)
	}
}
