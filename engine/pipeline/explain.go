package pipeline

import (
	"maps"
	"slices"

	"github.com/flechtwerk/flechtwerk/engine/expr"
)

// Explanation is what is to be said about a code beyond the message of a problem.
type Explanation struct {
	Severity Severity
	Text     string
}

// Explain answers what a code means and what to do about it.
func Explain(code string) (Explanation, bool) {
	e, ok := explanations[code]
	return e, ok
}

// Codes are all codes that Explain knows, sorted.
func Codes() []string { return slices.Sorted(maps.Keys(explanations)) }

// severityOf is the severity of a code; one that Explain does not know is an error.
func severityOf(code string) Severity {
	if e, ok := explanations[code]; ok {
		return e.Severity
	}
	return Error
}

var explanations = map[string]Explanation{
	"file.unreadable": {Error, "The pipeline file could not be read: it is not there, is a folder, or may not be read."},
	"file.none":       {Error, "A folder was named that holds no *.yaml or *.yml. Files that end in .test.yaml, hidden files and flechtwerk.yaml are passed over, and so are folders in it."},
	"file.test":       {Error, "A file that ends in .test.yaml holds tests of a pipeline. Name the pipeline instead."},

	"yaml.syntax":        {Error, "The file is not YAML from this place on, so that nothing after it can be read and no other problem of the file is shown. Often a text begins with a character that means something to YAML (one of ! @ ` % * & { [ | > ' \"), or holds `: `: quote it."},
	"yaml.documents":     {Error, "A pipeline file is one YAML document. `---` begins another one."},
	"yaml.empty":         {Error, "The file holds nothing, or only comments."},
	"yaml.duplicate_key": {Error, "The same key stands twice in one mapping. Which one is meant cannot be known."},
	"yaml.key":           {Error, "A key is a text; a list or a mapping cannot be one. Often a text with brackets was to be quoted."},
	"yaml.alias":         {Error, "An alias (*name) needs an anchor (&name) that stands above it and does not hold the alias itself. `<<:` merges mappings only. A text that begins with * is to be quoted."},
	"yaml.tag":           {Error, "A text that begins with ! is a tag to YAML. Quote it. Of YAML's own tags only !!str means something here."},
	"yaml.too_large":     {Error, "The file has too many values, aliases counted each time they are used."},

	"field.unknown":   {Error, "The place has no such key. Keys are never ignored, so that a misspelt one cannot go unseen."},
	"field.type":      {Error, "The value is of another kind than the key takes, for example a list where a text is expected."},
	"field.value":     {Error, "The value is of the right kind but none of those that the key takes."},
	"field.empty":     {Error, "The key has no value."},
	"field.missing":   {Error, "A key that may not be left out is not there."},
	"field.no_effect": {Error, "The key would do nothing here. What is accepted has an effect, so it is refused."},
	"not_supported":   {Error, "The language has this, but this version does not do it yet. It is refused, so that nothing is silently left undone."},
	"value.odd":       {Error, "A number written like 010, 0x1f, 1_000 or .inf is one number to some readers of YAML, and another one or a text to others."},

	"env.missing":     {Error, "`${NAME}` is replaced by an environment variable, and this one is not set. `${NAME:default}` has a default. `validate --no-env` looks nothing up."},
	"env.syntax":      {Error, "`${…}` holds the name of an environment variable (letters, digits and _), `${NAME:default}` a default too, and `${file:/path}` the path of a secret. `$${…}` is a literal `${…}`."},
	"env.type":        {Error, "`${NAME:8|int}`, `|number` and `|bool` make what a whole value stands for a number or boolean; what the environment holds has to be one."},
	"env.file":        {Error, "`${file:/path}` is replaced by the text of that file, which could not be read."},
	"env.place":       {Error, "`${…}` is replaced in values, and in the keys of `topics:`; not in other keys, and not in expressions and scripts: those read `vars`."},
	"env.text_number": {Warning, "What comes from the environment is a text, whatever it looks like, and this expression or script compares or calculates with it. `${NAME:8|number}` (or `|int`) makes it a number."},

	"name.invalid":             {Error, "The names of pipelines and stages become names in Kafka: letters, digits, `.`, `_` and `-`, at most 200 characters."},
	"pipeline.duplicate":       {Error, "Two pipelines that are loaded together have the same name, so that their stages would have the same names in Kafka."},
	"application_id.duplicate": {Error, "The application id of a stage is its consumer group and the name of its changelog. Two stages with one would take each other's offsets and state."},
	"duration.invalid":         {Error, "A duration is a number and a unit: 250ms, 30s, 5m, 48h or 7d."},

	"retry.invalid": {Error, "A retry waits for a range of durations, such as 1s..5m: the first pause, and the longest one that it grows to."},
	"cron.invalid":  {Error, "A schedule of cron has five fields (minute, hour, day of the month, month, day of the week), or is @hourly, @daily, @weekly, @monthly or @yearly. There has to be such a day."},
	"cron.zone":     {Error, "A time zone has a name of the IANA database, such as Europe/Berlin. Without one a schedule is in UTC."},

	"config.format":  {Error, "Configs are JSON objects by keys that are texts, so the topic that holds them is of `key: string` and `value: json`, which is what a topic is that says neither."},
	"config.invalid": {Error, "A config that stands in the file, with its defaults, is not what the stage's `config.schema` wants, or makes its `where` or `every` fail. Configs of topics are checked when they arrive: see `on_invalid`."},
	"config.unread":  {Error, "Only a script reads the config topics of a transformer, by `configs.get(key)`, and this one names no `configs`."},
	"config.no_key":  {Warning, "A config without key applies under the key \"\", so that of several only the last one counts."},
	"config.none":    {Warning, "The script reads configs, and the stage has none: `configs.get` answers null for every key."},

	"schema.invalid": {Error, "The JSON Schema is none: a keyword has a value that it does not take, a pattern is no regular expression of RE2, or it refers to what is not there. Only files beside it are read."},
	"schema.file":    {Error, "The JSON Schema could not be read. Its path is relative to the pipeline file."},
	"schema.keyword": {Warning, "JSON Schema passes over what is none of its keywords, so that a misspelt one checks nothing. Members of an object are described under `properties:`. A keyword of your own begins with x-."},

	"topic.name":             {Error, "Kafka takes letters, digits, `.`, `_` and `-` in the name of a topic, at most 249 characters, and neither `.` nor `..`."},
	"topic.duplicate":        {Error, "The same topic is declared or listed twice."},
	"topic.conflict":         {Error, "Two pipelines that are loaded together declare the same topic differently."},
	"topic.collision":        {Error, "Kafka takes `.` and `_` for the same in the names of its metrics, and refuses a topic whose name differs from another one only in them."},
	"topic.partitions":       {Error, "All inputs of a transformer have the same partition count, because one task reads the same partition of each, and its state belongs to that partition."},
	"topic.input_and_config": {Error, "A topic is either an input of a stage, read record by record, or a config topic, read as a whole."},
	"topic.dead_letters":     {Error, "A dead letter has the bytes of what came, which may be no JSON and no text, so that its topic takes any: `value: bytes`, and `key: string` or `key: bytes`."},
	"topic.undeclared":       {Warning, "A topic need not be declared if it exists. This one is nearly spelt like a declared one that no stage uses, so it may be misspelt."},

	"stage.none":          {Error, "A pipeline has at least one stage, or declares topics."},
	"stage.no_input":      {Error, "A transformer reads topics: `input_topics:` names them."},
	"stage.no_source":     {Error, "An extractor reads something: `poll:` is a script that does, `http:` a request, and `mqtt:` a session that brings messages."},
	"stage.two_sources":   {Error, "An extractor reads one thing: by a script (`poll:`), by a request (`http:`), or by a session (`mqtt:`)."},
	"stage.no_body":       {Error, "A stage says what becomes of a record by a script (`transform:`, `relay:`) or by expressions (`message:`)."},
	"stage.two_bodies":    {Error, "What becomes of a record is said by a script or by a `message:`, not by both."},
	"stage.two_schedules": {Error, "An extractor polls at a distance in time (`every:`) or by the clock (`cron:`), not both."},
	"stage.no_output":     {Error, "A stage that writes names its topics in `output_topics:`. A Message to any other topic is an error, so that a misspelt name is caught."},
	"stage.idle_output":   {Warning, "The stage names topics to write to, but its script names no Message."},
	"http.url":            {Error, "A URL begins with http:// or https://, or is completed by `fetch.base_url`. What varies in it is a hole, `{{ config.name }}`, whose value is escaped for its place."},
	"http.header":         {Error, "The name is no name of a header, or something else of the request sends this header."},
	"http.auth":           {Error, "`auth:` says who asks in one way, and nothing else of the request says it as well. In a run: the token server gave no token."},
	"http.tls":            {Error, "Certificates and keys are files in PEM beside the pipeline. A certificate of one's own has its key. In a run: no agreement on encryption, or a server that nobody vouches for; `tls.ca` names who does."},
	"http.insecure":       {Warning, "With `insecure: true` nobody checks who answers, so that all secrets of the request are anybody's who is on the way. `ca:` names whom to trust where the system does not know the server."},
	"http.two":            {Error, "Two keys say the same thing in different ways. One of them is meant."},
	"http.paginate":       {Error, "What leads from page to page cannot: an expression is the same for every page, or the parameter has no place in the request."},
	"http.retry":          {Error, "A request that may have done its work when the answer was lost is not sent twice, unless the pipeline vouches for it."},
	"http.decode":         {Error, "The body of an answer cannot be read in this way."},
	"http.no_body":        {Error, "Only a body of one document is there as a whole. Rows of CSV, lines and pieces of a file that grows come one by one."},
	"http.hole":           {Error, "A template of the request fails for a config that stands in the file, with the state that a config begins with. Mostly a hole gives nothing: say what stands there with `??`."},
	"message.topic":       {Error, "The topic of a `message:` is one of the stage's `output_topics`. Without `topic:` it is the only one."},

	"mqtt.broker": {Error, "A broker is written as mqtt://host:1883, or mqtts://host:8883 for an encrypted connection. The port may be left out."},
	"mqtt.filter": {Error, "A topic filter has levels between slashes; + stands for one whole level, and # at the end for any number. No two filters of a stage may match the same topic, over all of its configs: a broker would send such a message twice."},

	"state.unused":       {Error, "The stage declares state, or says what it becomes, and nothing in it reads `state`."},
	"state_key.constant": {Warning, "State belongs to a partition and a key. A constant key is one state for each partition, so that a count over all records is not one number."},
	"state_key.split":    {Warning, "State belongs to a partition and a key. Records lie in partitions by their own key, so those with the same `state_key` may lie in several, and each has a state of its own."},

	"body.style":      {Error, "A script or expression is one line or a block after `|`. Other ways of YAML to write several lines join them or change their columns."},
	"body.empty":      {Error, "The script has no text."},
	"protobuf.file":   {Error, "The .proto file or descriptor set, or what it imports, could not be read or is wrong. Paths are relative to the pipeline file; an import is looked for beside the file that names it, then in the folders above."},
	"protobuf.unread": {Error, "Only scripts decode by the message types of `protobuf:`, and none of the pipeline names `protobuf`."},

	"script.file": {Error, "The script file could not be read. Its path is relative to the pipeline file."},

	"expression.yaml": {Error, "YAML has a meaning of its own for part of this expression (`!x` is a tag, ` #` begins a comment, a comma splits a list in { } or [ ]), so that it does not arrive as it was written. Quote it."},

	"seed.source": {Error, "A seed is a file, or records in the pipeline: one of the two."},
	"seed.format": {Error, "The kind of a seed file is told by its name: .ndjson or .jsonl has one JSON value a line, .json an array, .csv a header line and rows."},
	"seed.file":   {Error, "The seed file could not be read. Its path is relative to the pipeline file."},
	"seed.record": {Error, "A record of the seed is not what the topic takes, or has no member for its key."},
	"seed.empty":  {Error, "The seed holds no record, so that it would do nothing."},

	expr.CodeSyntax:       {Error, "The expression is not one. A literal text is quoted inside: `status == \"open\"`."},
	expr.CodeUnknownName:  {Error, "The expression uses a name that is not in scope. A transformer's are key, value, headers, timestamp, topic, partition, offset, vars and now. A literal text is quoted."},
	expr.CodeUnknownFunc:  {Error, "There is no such function."},
	expr.CodeType:         {Error, "The expression can never be of the type that is needed here, or an operator in it can never take its operands."},
	expr.CodeArguments:    {Error, "A function has the wrong number or kind of arguments."},
	expr.CodeRegexp:       {Error, "The regular expression is not one. Its syntax is that of RE2."},
	expr.CodeEnvironment:  {Error, "`${…}` is not replaced in expressions. Put the value under `vars:`."},
	expr.CodeNotSupported: {Error, "The expression uses a part of the expression language that means nothing in a pipeline."},
	expr.CodeConstant:     {Error, "A constant part of the expression can never be calculated."},
	expr.CodeTooLarge:     {Error, "The expression is too long or too deeply nested."},
	expr.CodeTemplate:     {Error, "A template is a text with holes: `prefix-{{ value.kind }}`."},
	expr.CodeMessage:      {Error, "A message has topic, key, value, headers, timestamp and partition; what the record says belongs under value."},
}
