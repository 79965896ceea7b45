package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/flechtwerk/flechtwerk/engine"
	"github.com/flechtwerk/flechtwerk/engine/pipeline"
	"github.com/flechtwerk/flechtwerk/engine/rawjson"
	"github.com/flechtwerk/flechtwerk/engine/wording"
)

func (p *program) configCommand() *cobra.Command {
	var topic, file, key string
	list := &cobra.Command{
		Use:   "list FILE|DIR...",
		Short: "Show all configs, and what stages have against them",
		Args:  atLeastOne,
		RunE:  func(cmd *cobra.Command, args []string) error { return p.listConfigs(cmd, args, topic) },
	}
	get := &cobra.Command{
		Use:   "get FILE|DIR KEY",
		Short: "Show one config",
		Args:  exactly(2, "a pipeline file or folder, and a key"),
		RunE:  func(cmd *cobra.Command, args []string) error { return p.getConfig(cmd, args[0], args[1], topic) },
	}
	put := &cobra.Command{
		Use:   "put FILE|DIR KEY JSON",
		Short: "Write configs that the stages take",
		Long: `Put writes a config, or, with --file, all configs of a CSV, NDJSON or JSON file in one transaction. JSON may be - for what
comes from standard input. A config that a stage refuses is not written, and neither are the others of its file.`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case file == "" && key != "":
				return usageError("%s: --key is the column of --file that holds the keys", cmd.CommandPath())
			case file == "":
				return exactly(3, "a pipeline file or folder, a key, and a config as JSON or -; or --file and --key")(cmd, args)
			case key == "":
				return usageError("%s: --file needs --key, the column or member that holds the keys", cmd.CommandPath())
			default:
				return exactly(1, "only a pipeline file or folder beside --file")(cmd, args)
			}
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if file != "" {
				return p.putConfigs(cmd, args[0], topic, func(t *pipeline.Topic) ([]newConfig, error) { return readConfigs(file, key, t) })
			}
			return p.putConfigs(cmd, args[0], topic, func(*pipeline.Topic) ([]newConfig, error) { return p.oneConfig(args[1], args[2]) })
		},
	}
	put.Flags().StringVar(&file, "file", "", "write all records of this .csv, .ndjson, .jsonl or .json `FILE`")
	put.Flags().StringVar(&key, "key", "", "the `COLUMN` or member of --file that holds the keys")
	del := &cobra.Command{
		Use:   "delete FILE|DIR KEY...",
		Short: "Delete configs; what was polled for them stays",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usageError("%s takes a pipeline file or folder, and keys", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return p.deleteConfigs(cmd, args[0], args[1:], topic) },
	}
	for _, cmd := range []*cobra.Command{list, get, put, del} {
		cmd.Flags().StringVar(&topic, "topic", "", "the config `TOPIC`; not needed where the pipelines have one only")
	}
	return group(&cobra.Command{Use: "config", Short: "The configs in the config topics of pipelines"}, nil, get, list, put, del)
}

// configTopic is a config topic and who reads it.
type configTopic struct {
	*pipeline.Topic
	settings *Settings
	readers  []configReader
}

// configReader is a stage that reads a config topic.
type configReader struct {
	pipeline  *pipeline.Pipeline
	stage     string
	extractor *pipeline.Extractor // nil for a transformer, which takes every object
}

func (r *configReader) String() string { return r.pipeline.Name + "/" + r.stage }

// configTopic finds the topic called name, or the only one, among the config topics of pipelines.
func (p *program) configTopic(paths []string, name string) (*configTopic, error) {
	settings, err := p.settings()
	if err != nil {
		return nil, err
	}
	set, _, err := p.load(paths, false, p.stderr, sayProblems)
	if err != nil {
		return nil, err
	}
	found := map[string]*configTopic{}
	add := func(topics []*pipeline.Topic, r configReader) {
		for _, t := range topics {
			if found[t.Name] == nil {
				found[t.Name] = &configTopic{Topic: t, settings: settings}
			}
			found[t.Name].readers = append(found[t.Name].readers, r)
		}
	}
	for _, one := range set.Pipelines {
		for _, x := range one.Extractors {
			add(x.ConfigTopics, configReader{one, x.Name, x})
		}
		for _, t := range one.Transformers {
			add(t.ConfigTopics, configReader{one, t.Name, nil})
		}
	}
	names := sorted(found)
	switch {
	case len(names) == 0:
		return nil, usageError("no stage of %s has config_topics", strings.Join(paths, ", "))
	case name != "" && found[name] == nil:
		return nil, unknownName("--topic", "config topic", name, names)
	case name == "" && len(names) > 1:
		return nil, usageError("there are several config topics; say --topic with one of %s", strings.Join(names, ", "))
	case name == "":
		name = names[0]
	}
	return found[name], nil
}

// verdict is what the readers of a config topic make of a config.
type verdict struct {
	Stages   []string        `json:"stages"`             // whose own it is
	Problems []configProblem `json:"problems,omitempty"` // what they have against it
}

type configProblem struct {
	Stage string `json:"stage"`
	Error string `json:"error"`
}

func (t *configTopic) judge(key string, value []byte) verdict {
	v := verdict{Stages: []string{}}
	for i := range t.readers {
		r := &t.readers[i]
		own := true
		var err error
		if r.extractor == nil {
			_, err = (*pipeline.ConfigSpec)(nil).Fill(value)
		} else {
			own, err = r.extractor.Judge(r.pipeline, key, value)
		}
		if own {
			v.Stages = append(v.Stages, r.String())
		}
		if err != nil {
			v.Problems = append(v.Problems, configProblem{r.String(), err.Error()})
		}
	}
	return v
}

// keyRecord is a record as JSON.
type keyRecord struct {
	Key       string          `json:"key"`
	Value     json.RawMessage `json:"value,omitempty"`
	Partition int32           `json:"partition"`
	Offset    int64           `json:"offset"`
	Timestamp string          `json:"timestamp"`
}

func keyRecordOf(r *engine.KeyRecord) keyRecord {
	out := keyRecord{r.Key, r.Value, r.Partition, r.Offset, time.UnixMilli(r.Timestamp).UTC().Format("2006-01-02T15:04:05.000Z")}
	if r.Value != nil && !json.Valid(r.Value) {
		out.Value = rawjson.AppendString(nil, strings.ToValidUTF8(string(r.Value), "\uFFFD"))
	}
	return out
}

// shownConfig is a config as JSON.
type shownConfig struct {
	keyRecord
	verdict
}

func (p *program) listConfigs(cmd *cobra.Command, paths []string, name string) error {
	t, err := p.configTopic(paths, name)
	if err != nil {
		return err
	}
	records, err := engine.ReadKeys(cmd.Context(), t.settings.Kafka, t.Topic)
	if err != nil {
		return err
	}
	shown := make([]shownConfig, len(records))
	for i := range records {
		shown[i] = shownConfig{keyRecordOf(&records[i]), t.judge(records[i].Key, records[i].Value)}
	}
	if p.flags.json {
		return json.NewEncoder(p.stdout).Encode(struct {
			Topic   string        `json:"topic"`
			Configs []shownConfig `json:"configs"`
		}{t.Name, shown})
	}
	for i := range shown {
		fmt.Fprintf(p.stdout, "%s\t%s\n", oneLine(shown[i].Key), shown[i].Value)
		p.warn(shown[i].Key, shown[i].verdict)
	}
	return nil
}

// warn tells what is to be known of a config that is in its topic all the same.
func (p *program) warn(key string, v verdict) {
	if p.flags.quiet {
		return
	}
	for _, one := range v.Problems {
		fmt.Fprintf(p.stderr, "%s the config %q is not what %s wants: %s\n", p.paint(p.stderr, yellow, "warning:"), key, one.Stage, one.Error)
	}
	if len(v.Stages) == 0 {
		fmt.Fprintf(p.stderr, "%s the config %q is no stage's own: `where` leaves it out everywhere\n", p.paint(p.stderr, yellow, "warning:"), key)
	}
}

func (p *program) getConfig(cmd *cobra.Command, path, key, name string) error {
	t, err := p.configTopic([]string{path}, name)
	if err != nil {
		return err
	}
	records, err := engine.ReadKeys(cmd.Context(), t.settings.Kafka, t.Topic)
	if err != nil {
		return err
	}
	r, err := t.find(records, key)
	if err != nil {
		return err
	}
	v := t.judge(key, r.Value)
	if p.flags.json {
		return json.NewEncoder(p.stdout).Encode(struct {
			Topic string `json:"topic"`
			shownConfig
		}{t.Name, shownConfig{keyRecordOf(r), v}})
	}
	p.warn(key, v)
	_, err = fmt.Fprintf(p.stdout, "%s\n", r.Value)
	return err
}

func (t *configTopic) find(records []engine.KeyRecord, key string) (*engine.KeyRecord, error) {
	if i := slices.IndexFunc(records, func(r engine.KeyRecord) bool { return r.Key == key }); i >= 0 {
		return &records[i], nil
	}
	var known []string
	for i := range records {
		known = append(known, records[i].Key)
	}
	return nil, fmt.Errorf("topic %s has no config %q%s", t.Name, key, meant(key, known))
}

// meant asks for a name that is near, if there is one.
func meant(name string, known []string) string {
	if hint := wording.DidYouMean(name, known); hint != "" {
		return "; " + hint
	}
	return ""
}

// newConfig is a config that is to be written, and where it stands.
type newConfig struct {
	engine.KeyRecord
	place string // of a file, else empty
}

// oneConfig is a config of the command line or of standard input.
func (p *program) oneConfig(key, text string) ([]newConfig, error) {
	value := []byte(text)
	if text == "-" {
		if p.stdin == nil {
			return nil, usageError("there is no standard input to read the config from")
		}
		var err error
		if value, err = io.ReadAll(io.LimitReader(p.stdin, maxConfig+1)); err != nil {
			return nil, fmt.Errorf("read the config from standard input: %w", err)
		}
		if len(value) > maxConfig {
			return nil, fmt.Errorf("%w: the config is longer than %d bytes", engine.ErrPipeline, maxConfig)
		}
	}
	if _, _, err := rawjson.Check(value, nil); err != nil {
		return nil, fmt.Errorf("%w: the config is not JSON: %w", engine.ErrPipeline, err)
	}
	return []newConfig{{KeyRecord: engine.KeyRecord{Key: key, Value: rawjson.Compact(nil, value)}}}, nil
}

// maxConfig is the length of a config on standard input, in bytes, at most.
const maxConfig = 16 << 20

// readConfigs are those of a file. All that is wrong with their keys is told at once.
func readConfigs(file, key string, t *pipeline.Topic) ([]newConfig, error) {
	seed, err := pipeline.NewSeed(file, key, &t.Topic)
	if err != nil {
		return nil, fmt.Errorf("%w: --file %s", engine.ErrPipeline, strings.TrimPrefix(err.Error(), "read seed "))
	}
	var out []newConfig
	seen := map[string]int{}
	for r, err := range seed.Records() {
		if err != nil {
			return nil, fmt.Errorf("%w: --file %s; nothing was written", engine.ErrPipeline, strings.TrimPrefix(err.Error(), "read seed "))
		}
		place := fmt.Sprintf("%s:%d", file, r.Line)
		if before := seen[string(r.Key)]; before > 0 {
			return nil, fmt.Errorf("%w: --file %s: the key %q is on line %d already; nothing was written", engine.ErrPipeline, place, r.Key, before)
		}
		seen[string(r.Key)] = r.Line
		out = append(out, newConfig{engine.KeyRecord{Key: string(r.Key), Value: r.Value}, place})
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%w: --file %s holds no record", engine.ErrPipeline, file)
	}
	return out, nil
}

func (p *program) putConfigs(cmd *cobra.Command, path, name string, read func(*pipeline.Topic) ([]newConfig, error)) error {
	t, err := p.configTopic([]string{path}, name)
	if err != nil {
		return err
	}
	configs, err := read(t.Topic)
	if err != nil {
		return err
	}
	var refused []string
	records := make([]engine.KeyRecord, len(configs))
	for i := range configs {
		c := &configs[i]
		records[i] = c.KeyRecord
		v := t.judge(c.Key, c.Value)
		if err := checkKey(c.Key); err != nil {
			v.Problems = append(v.Problems, configProblem{"Kafka", err.Error()})
		}
		for _, one := range v.Problems {
			line := fmt.Sprintf("the config %q is not what %s wants: %s", c.Key, one.Stage, one.Error)
			if c.place != "" {
				line = c.place + ": " + line
			}
			refused = append(refused, line)
		}
		if len(v.Problems) == 0 {
			p.warn(c.Key, v)
		}
	}
	if len(refused) > 0 {
		return fmt.Errorf("%w: nothing was written:\n  %s", engine.ErrPipeline, strings.Join(refused, "\n  "))
	}
	return p.writeConfigs(cmd, t, records, "put", "written")
}

// checkKey tells whether a key can be that of a config: it is also the key of the config's state.
func checkKey(key string) error {
	switch {
	case !utf8.ValidString(key):
		return errors.New("the key is not UTF-8")
	case strings.HasPrefix(key, "\x00"):
		return errors.New("the key begins with U+0000, which is kept for the engine")
	}
	return nil
}

func (p *program) deleteConfigs(cmd *cobra.Command, path string, keys []string, name string) error {
	t, err := p.configTopic([]string{path}, name)
	if err != nil {
		return err
	}
	there, err := engine.ReadKeys(cmd.Context(), t.settings.Kafka, t.Topic)
	if err != nil {
		return err
	}
	var records []engine.KeyRecord
	for _, key := range keys {
		if _, err := t.find(there, key); err != nil {
			return fmt.Errorf("nothing was deleted: %w", err)
		}
		if !slices.ContainsFunc(records, func(r engine.KeyRecord) bool { return r.Key == key }) {
			records = append(records, engine.KeyRecord{Key: key})
		}
	}
	return p.writeConfigs(cmd, t, records, "delete", "deleted")
}

func (p *program) writeConfigs(cmd *cobra.Command, t *configTopic, records []engine.KeyRecord, verb, done string) error {
	if err := engine.WriteKeys(cmd.Context(), t.settings.Kafka, t.Topic, records); err != nil {
		return err
	}
	if p.flags.json {
		written := make([]keyRecord, len(records))
		for i := range records {
			written[i] = keyRecordOf(&records[i])
		}
		return json.NewEncoder(p.stdout).Encode(map[string]any{"topic": t.Name, done: written})
	}
	if p.flags.quiet {
		return nil
	}
	for i := range records {
		fmt.Fprintf(p.stdout, "%s %s (%s/%d at offset %d)\n", verb, oneLine(records[i].Key), t.Name, records[i].Partition, records[i].Offset)
	}
	return nil
}

// oneLine is a key in a line of output: as it is, unless it would break the line.
func oneLine(key string) string {
	if key == "" || strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r == utf8.RuneError }) {
		return string(rawjson.AppendString(nil, strings.ToValidUTF8(key, "\uFFFD")))
	}
	return key
}
