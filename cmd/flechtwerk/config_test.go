package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flechtwerk/flechtwerk/engine"
)

const feedsPipeline = `
pipeline: feeds
topics:
  feeds: { partitions: 4 }
  items: { partitions: 4 }
extractors:
  news:
    every: config.every ?? "5s"
    config_topics: feeds
    where: config.kind == "news"
    config:
      schema:
        type: object
        required: [url]
        properties: { url: { type: string }, every: { type: string } }
      defaults: { kind: news }
    output_topics: items
    state: { n: 0 }
    poll: |
      yield Message({ value: { n: state.n } });
      yield State({ n: state.n + 1 });
transformers:
  copy:
    input_topics: items
    output_topics: copies
    message: { value: value }
`

// verbs runs command lines against one broker.
type verbs struct {
	t     *testing.T
	kafka string
	stdin string
}

func (v *verbs) run(line ...string) outcome {
	v.t.Helper()
	var stdout, stderr safeBuffer
	p := &program{stdin: strings.NewReader(v.stdin), stdout: &stdout, stderr: &stderr}
	if v.kafka != "" {
		line = append(line, "-s", "kafka.brokers="+v.kafka)
	}
	status := p.start(v.t.Context(), line)
	return outcome{status, stdout.String(), stderr.String()}
}

// want runs a command line and compares all that it leaves.
func (v *verbs) want(status int, stdout, stderr string, line ...string) {
	v.t.Helper()
	if diff := cmp.Diff(outcome{status, stdout, stderr}, v.run(line...), cmp.AllowUnexported(outcome{})); diff != "" {
		v.t.Errorf("flechtwerk %s: %s", strings.Join(line, " "), diff)
	}
}

func TestConfigVerbs(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, ".", "feeds.yaml", feedsPipeline)
	v := &verbs{t: t, kafka: broker(t)}

	v.want(exitSurroundings, "", "flechtwerk: topic feeds does not exist; create it with: flechtwerk topics apply feeds.yaml\n", "config", "list", "feeds.yaml")
	v.want(exitSurroundings, "", "flechtwerk: topic feeds does not exist; create it with: flechtwerk topics apply feeds.yaml\n", "config", "put", "feeds.yaml", "a", `{"url":"u"}`)
	if got := v.run("topics", "apply", "feeds.yaml"); !strings.Contains(got.stdout, "+ create   feeds (4 partitions, cleanup.policy=compact)") {
		t.Fatalf("%+v", got)
	}
	v.want(0, "", "", "config", "list", "feeds.yaml")
	v.want(0, "put abc (feeds/3 at offset 0)\n", "", "config", "put", "feeds.yaml", "abc", `{ "url": "u" }`)
	v.stdin = "{\n  \"url\": \"w\"\n}\n"
	v.want(0, "put ab (feeds/2 at offset 0)\n", "", "config", "put", ".", "ab", "-")
	v.want(0, "ab\t{\"url\":\"w\"}\nabc\t{\"url\":\"u\"}\n", "", "config", "list", "feeds.yaml")
	v.want(0, `{"url":"w"}`+"\n", "", "config", "get", "feeds.yaml", "ab")
	v.want(0, "", "", "config", "put", "-q", "feeds.yaml", "ab", `{"url":"x"}`)

	// What the stage refuses, and what is no config at all, is not written.
	v.want(exitWrong, "", `flechtwerk: nothing was written:
  the config "abc" is not what feeds/news wants: url is missing
`, "config", "put", "feeds.yaml", "abc", `{"every":"1s"}`)
	v.want(exitWrong, "", `flechtwerk: nothing was written:
  the config "abc" is not what feeds/news wants: `+"`every`"+` fails: it gives a text that is no duration, and a duration such as 30s or a number of milliseconds is wanted
`, "config", "put", "feeds.yaml", "abc", `{"url":"u","every":"never"}`)
	v.want(exitWrong, "", "flechtwerk: the config is not JSON: the object is not closed at byte 1\n", "config", "put", "feeds.yaml", "abc", `{`)
	v.want(exitWrong, "", "flechtwerk: nothing was written:\n  the config \"abc\" is not what feeds/news wants: a config is a JSON object\n", "config", "put", "feeds.yaml", "abc", `[]`)
	// Several kinds may share a topic, so this is only told.
	v.want(0, "put w (feeds/2 at offset 2)\n", "warning: the config \"w\" is no stage's own: `where` leaves it out everywhere\n", "config", "put", "feeds.yaml", "w", `{"kind":"weather"}`)
	v.want(0, "delete w (feeds/2 at offset 3)\n", "", "config", "delete", "feeds.yaml", "w")

	v.want(exitFailed, "", "flechtwerk: topic feeds has no config \"abcd\"; did you mean \"abc\"?\n", "config", "get", "feeds.yaml", "abcd")
	v.want(exitFailed, "", "flechtwerk: nothing was deleted: topic feeds has no config \"other\"\n", "config", "delete", "feeds.yaml", "ab", "other")
	v.want(0, "{\"url\":\"x\"}\n", "", "config", "get", "feeds.yaml", "ab")

	got := v.run("config", "delete", "--json", "feeds.yaml", "ab", "abc", "ab")
	var deleted struct {
		Topic   string
		Deleted []struct {
			Key       string
			Partition int
		}
	}
	if err := json.Unmarshal([]byte(got.stdout), &deleted); err != nil || deleted.Topic != "feeds" || len(deleted.Deleted) != 2 || deleted.Deleted[1].Partition != 3 {
		t.Errorf("%v: %+v", err, got)
	}
	v.want(0, "", "", "config", "list", "feeds.yaml")
}

func TestConfigPutFile(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, ".", "feeds.yaml", feedsPipeline)
	v := &verbs{t: t, kafka: broker(t)}
	v.run("topics", "apply", "feeds.yaml")
	for _, c := range []struct {
		name, text string
		want       outcome
	}{
		{"good.csv", "id,url\na,u\nabc,\"v\nw\"\n", outcome{0, "put a (feeds/0 at offset 0)\nput abc (feeds/3 at offset 0)\n", ""}},
		{"good.ndjson", "{\"id\":\"ab\",\"url\":\"u\"}\n{\"id\":7,\"url\":\"u\"}\n", outcome{0, "put ab (feeds/2 at offset 0)\nput 7 (feeds/3 at offset 2)\n", ""}},
		{"good.json", `[{"id":"abcd","url":"u"}]`, outcome{0, "put abcd (feeds/0 at offset 2)\n", ""}},
		{"bad.csv", "id,link\nx,u\ny,v\n", outcome{exitWrong, "", `flechtwerk: nothing was written:
  bad.csv:2: the config "x" is not what feeds/news wants: url is missing
  bad.csv:3: the config "y" is not what feeds/news wants: url is missing
`}},
		{"twice.csv", "id,url\nx,u\ny,v\nx,w\n", outcome{exitWrong, "", "flechtwerk: --file twice.csv:4: the key \"x\" is on line 2 already; nothing was written\n"}},
		{"keyless.csv", "name,url\nx,u\n", outcome{exitWrong, "", "flechtwerk: --file keyless.csv:2: the record has no \"id\" for its key; nothing was written\n"}},
		{"empty.csv", "id,url\n", outcome{exitWrong, "", "flechtwerk: --file empty.csv holds no record\n"}},
		{"other.txt", "", outcome{exitWrong, "", "flechtwerk: --file other.txt: a .csv, .json, .jsonl or .ndjson file is expected\n"}},
		{"", "", outcome{exitWrong, "", "flechtwerk: --file none.csv: no such file or directory; nothing was written\n"}},
	} {
		if c.name != "" {
			write(t, ".", c.name, c.text)
		} else {
			c.name = "none.csv"
		}
		v.want(c.want.status, c.want.stdout, c.want.stderr, "config", "put", "feeds.yaml", "--file", c.name, "--key", "id")
	}
	want := "7\t{\"id\":7,\"url\":\"u\"}\na\t{\"id\":\"a\",\"url\":\"u\"}\nab\t{\"id\":\"ab\",\"url\":\"u\"}\nabc\t{\"id\":\"abc\",\"url\":\"v\\nw\"}\nabcd\t{\"id\":\"abcd\",\"url\":\"u\"}\n"
	v.want(0, want, "", "config", "list", "feeds.yaml")
}

// What somebody else has written is shown with what the stages have against it.
func TestConfigListJudges(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, ".", "feeds.yaml", feedsPipeline)
	v := &verbs{t: t, kafka: broker(t)}
	v.run("topics", "apply", "feeds.yaml")
	set, _, err := (&program{stdout: &safeBuffer{}, stderr: &safeBuffer{}}).load([]string{"feeds.yaml"}, false, &safeBuffer{}, sayProblems)
	if err != nil {
		t.Fatal(err)
	}
	err = engine.WriteKeys(t.Context(), engine.Kafka{Brokers: []string{v.kafka}}, set.Pipelines[0].Extractors[0].ConfigTopics[0], []engine.KeyRecord{
		{Key: "a", Value: []byte(`{"url":1}`)}, {Key: "b\tc", Value: []byte("no JSON")}, {Key: "d", Value: []byte(`{"url":"u"}`)},
	})
	if err != nil {
		t.Fatal(err)
	}
	v.want(0, "a\t{\"url\":1}\n\"b\\tc\"\t\"no JSON\"\nd\t{\"url\":\"u\"}\n", `warning: the config "a" is not what feeds/news wants: url is a number, and the schema wants a text
warning: the config "b\tc" is not what feeds/news wants: no JSON value where one is expected at byte 0
`, "config", "list", "feeds.yaml")
	got := v.run("config", "list", "--json", "feeds.yaml")
	var shown struct {
		Topic   string
		Configs []struct {
			Key      string
			Value    json.RawMessage
			Stages   []string
			Problems []struct{ Stage, Error string }
		}
	}
	if err := json.Unmarshal([]byte(got.stdout), &shown); err != nil || len(shown.Configs) != 3 {
		t.Fatalf("%v: %+v", err, got)
	}
	if c := shown.Configs[0]; c.Key != "a" || string(c.Value) != `{"url":1}` || len(c.Problems) != 1 || c.Problems[0].Stage != "feeds/news" {
		t.Errorf("got %+v", c)
	}
	if c := shown.Configs[2]; len(c.Problems) != 0 || len(c.Stages) != 1 {
		t.Errorf("got %+v", c)
	}
}

func TestConfigTopicIsFound(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, ".", "feeds.yaml", feedsPipeline)
	write(t, ".", "none.yaml", goodPipeline)
	write(t, ".", "more.yaml", strings.Replace(strings.ReplaceAll(feedsPipeline, "feeds", "more"), "pipeline: more", "pipeline: other", 1))
	v := &verbs{t: t, kafka: broker(t)}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"config", "list", "none.yaml"}, "no stage of none.yaml has config_topics"},
		{[]string{"config", "list", "feeds.yaml", "more.yaml"}, "there are several config topics; say --topic with one of feeds, more"},
		{[]string{"config", "list", "feeds.yaml", "--topic", "feedz"}, `--topic: no pipeline has a config topic "feedz"; did you mean "feeds"?`},
		{[]string{"config", "list", "feeds.yaml", "--topic", "items"}, `--topic: no pipeline has a config topic "items"`},
	} {
		if got := v.run(c.args...); got.status != exitWrong || !strings.Contains(got.stderr, c.want) {
			t.Errorf("%v: %+v", c.args, got)
		}
	}
	v.want(exitSurroundings, "", "flechtwerk: topic more does not exist; create it with: flechtwerk topics apply more.yaml\n", "config", "list", "feeds.yaml", "more.yaml", "--topic", "more")
}

func TestStateVerbs(t *testing.T) {
	t.Chdir(t.TempDir())
	// The cursor is what it is after one poll, however many there are.
	write(t, ".", "feeds.yaml", strings.Replace(feedsPipeline, "n: state.n + 1", "n: 1", 1))
	v := &verbs{t: t, kafka: broker(t)}
	v.run("topics", "apply", "feeds.yaml")
	v.want(exitSurroundings, "", "flechtwerk: topic feeds-news-changelog does not exist; the stage has not run on this cluster\n", "state", "list", "feeds.yaml", "news")
	for _, c := range []struct{ stage, want string }{
		{"copy", "stage feeds/copy keeps no state"},
		{"nows", `STAGE: no pipeline has a stage "nows"; did you mean "news"?`},
	} {
		if got := v.run("state", "list", "feeds.yaml", c.stage); got.status != exitWrong || !strings.Contains(got.stderr, c.want) {
			t.Errorf("%+v", got)
		}
	}

	v.run("config", "put", "feeds.yaml", "a", `{"url":"u","every":"100ms"}`)
	v.run("config", "put", "feeds.yaml", "abc", `{"url":"u","every":"100ms"}`)
	s := start(t, "run", "feeds.yaml", "--stage", "news", "--log-level", "debug", "-s", "kafka.brokers="+v.kafka, "-s", "http.listen=off")
	for _, key := range []string{"config=a pages=1", "config=abc pages=1"} {
		s.stderr.WaitFor(t, 0, "the page of "+key, func(line string) bool {
			return strings.Contains(line, "poll ended") && strings.Contains(line, key)
		})
	}
	if status := s.stop(); status != 0 {
		t.Errorf("exit status %d:\n%s", status, s.stderr.String())
	}
	v.want(0, "a\t{\"n\":1}\nabc\t{\"n\":1}\n", "", "state", "list", "feeds.yaml", "news")
	v.want(0, "abc\t{\"n\":1}\n", "", "state", "list", "feeds.yaml", "feeds/news", "--prefix", "ab")
	v.want(0, "{\"n\":1}\n", "", "state", "get", "feeds.yaml", "news", "a")
	v.want(exitFailed, "", "flechtwerk: stage feeds/news has no state for the key \"ab\"\n", "state", "get", "feeds.yaml", "news", "ab")
	got := v.run("state", "get", "--json", "feeds.yaml", "news", "abc")
	var shown struct {
		Stage  string
		States []struct {
			Key       string
			Value     json.RawMessage
			Partition int
		}
	}
	if err := json.Unmarshal([]byte(got.stdout), &shown); err != nil || shown.Stage != "feeds/news" || len(shown.States) != 1 || string(shown.States[0].Value) != `{"n":1}` || shown.States[0].Partition != 3 {
		t.Errorf("%v: %+v", err, got)
	}
}

// What is wrong with an enrich is told by validate, at its place; one that is right stands beside a poll.
func TestValidateEnrich(t *testing.T) {
	t.Chdir(t.TempDir())
	const text = `pipeline: towns
extractors:
  weather:
    every: 1m
    configs: { oslo: {} }
    enrich: |
      const at = await fetch("https://places.example/" + config.$key);
      ENDS
    poll: |
      yield State({ at: config.at, other: configs.get("oslo").at });
`
	write(t, ".", "good.yaml", strings.Replace(text, "ENDS", "return { ...config, at: await at.json() };", 1))
	v := &verbs{t: t}
	v.want(0, "0 errors, 0 warnings in 1 file\n", "", "validate", "good.yaml")
	for ends, want := range map[string]string{
		"yield Message({ value: at }); return {};": "bad.yaml:8:7: error script.enrich: an enrich yields nothing",
		"return configs.get('oslo');":              "bad.yaml:8:14: error script.enrich: configs is not there in an enrich",
		"config.at = at;":                          "bad.yaml:7:7: error script.enrich: the body returns nothing",
		"return { at )":                            "bad.yaml:8:19: error script.syntax: ",
	} {
		write(t, ".", "bad.yaml", strings.Replace(text, "ENDS", ends, 1))
		if got := v.run("validate", "bad.yaml"); got.status != exitWrong || !strings.Contains(got.stdout, want) {
			t.Errorf("%s: %+v", ends, got)
		}
	}
}
