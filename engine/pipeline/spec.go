package pipeline

//go:generate go test -run TestSchemaIsOfTheTypes -update .

// Spec is one pipeline file as it is written. Its fields are the keys of the language: the decoder and the JSON Schema are
// both made from them, and their comments are what an editor shows. Besides `json`, the key, their tags are: need, why a key
// may not be missing, and instead, what may stand in its place; later, why a key is read but refused as not supported yet;
// default, pattern and schema speak to the JSON Schema alone.
type Spec struct {
	// The name of the pipeline: the prefix of every Kafka name that its stages derive. Letters, digits, `.`, `_` and `-`.
	Pipeline Text `json:"pipeline" pattern:"name" need:"it is the prefix of every Kafka name that the stages derive"`
	// What the pipeline is for, in words.
	Description Text `json:"description"`
	// Settings of the pipeline's own: read as `vars.name` in scripts, expressions and templates.
	Vars Object `json:"vars"`
	// The topics that the pipeline declares. A topic that exists already need not be declared.
	Topics Named[TopicSpec] `json:"topics"`
	// What every declared topic has that does not say otherwise.
	TopicDefaults *DefaultsSpec `json:"topic_defaults"`
	// JavaScript that every body of the pipeline can use: a text, a .js file beside the pipeline, or a list of these. It is
	// evaluated once in each VM before any body, does no I/O, and what it declares is frozen.
	Functions Functions `json:"functions"`
	// The message types that scripts decode by `protobuf(name)`: a .proto file, or a descriptor set that protoc wrote, beside
	// the pipeline, or a list of these.
	Protobuf Names `json:"protobuf"`
	// What every HTTP request of the pipeline has that does not say otherwise.
	Fetch *FetchSpec `json:"fetch"`
	// The stages that read something outside Kafka.
	Extractors Named[ExtractorSpec] `json:"extractors"`
	// The stages that read topics.
	Transformers Named[TransformerSpec] `json:"transformers"`
}

// TopicSpec is a declared topic. `topics apply` creates it, and `run` verifies its partitions and config.
type TopicSpec struct {
	// How many partitions the topic has.
	Partitions Count `json:"partitions"`
	// Settings of the topic as Kafka names them, such as `retention.ms` and `cleanup.policy`.
	Config Settings `json:"config"`
	// How the bytes of a key are read and written.
	Key Format `json:"key" default:"string"`
	// How the bytes of a value are read and written.
	Value Format `json:"value" default:"json"`
	// Records that fill the topic once, before stages start.
	Seed *SeedSpec `json:"seed"`
}

// DefaultsSpec is what topics have in common.
type DefaultsSpec struct {
	// How many partitions a topic has.
	Partitions Count `json:"partitions"`
	// Settings of a topic as Kafka names them. A topic's own setting wins, one by one.
	Config Settings `json:"config"`
	// How the bytes of a key are read and written.
	Key Format `json:"key" default:"string"`
	// How the bytes of a value are read and written.
	Value Format `json:"value" default:"json"`
}

// SeedSpec is what fills a topic: a file, or records that stand in the pipeline.
type SeedSpec struct {
	// A file beside the pipeline: `.ndjson` or `.jsonl` (one JSON value a line), `.json` (an array), or `.csv` (with a
	// header line; every cell is a text).
	File Text `json:"file"`
	// The records themselves.
	Records Rows `json:"records"`
	// The member of each record whose value becomes the record's key. Without it records have no key.
	Key Text `json:"key"`
}

// ExtractorSpec is a stage that reads something outside Kafka: it runs `poll`, or sends its `http` request, once per config per
// cycle, or takes what its `mqtt` session brings.
type ExtractorSpec struct {
	// The name of the stage in Kafka; by default the pipeline's name, a hyphen and the stage's name. A change strands the
	// stage's state.
	ApplicationID Text `json:"application_id" pattern:"name"`
	// How long from the start of one poll of a config to the start of its next: a duration, or an expression over `config`,
	// `state`, `vars` and `now` that gives a duration as text or a number of milliseconds.
	Every Every `json:"every" need:"it says how often to poll" instead:"cron mqtt"`
	// When each config is polled, in place of `every`: minute, hour, day of the month, month and day of the week, as cron has
	// them, in UTC. As `{ at: "0 6 * * *", zone: Europe/Berlin }` in another time zone.
	Cron Cron `json:"cron"`
	// What there is to poll: each config is polled on its own, with a state of its own. Without it and `config_topics` there
	// is one config, `{}` under the key `default`.
	Configs Named[Object] `json:"configs"`
	// Topics whose records are configs by key, besides the inline ones. They are compacted unless they say otherwise, have
	// keys of text and values of JSON, and the same partition count.
	ConfigTopics Names `json:"config_topics"`
	// What a config must be, and what it has that does not say otherwise. With `enrich` it must be so as it was written, and
	// again once it is completed.
	Config *ConfigRulesSpec `json:"config"`
	// An expression over `config` and `vars` that tells which configs are the stage's own. It sees a config with its
	// defaults, before its schema is checked.
	Where Expression `json:"where"`
	// A script that completes a config before it is polled: `config` is in scope, I/O is allowed, and the object that it
	// returns takes the config's place. It yields nothing. It runs once for each config as that was written: what it returns
	// is kept in the stage's changelog.
	Enrich Script `json:"enrich"`
	// Into how many units of work the configs are spread over the instances of the pipeline. With `config_topics` their
	// partition count decides.
	Tokens Count `json:"tokens"`
	// How many polls may run at once in one process.
	Workers Count `json:"workers" default:"16"`
	// The topics that the stage may write to.
	OutputTopics Names `json:"output_topics"`
	// What `state` is for a config that has none yet.
	State Object `json:"state"`
	// The script that reads: `config` and `state` are in scope, `yield Message({…})` writes and `yield State({…})` commits.
	Poll Script `json:"poll"`
	// A request that is sent once per config and cycle, in place of `poll`. `records`, and `message` or `relay`, say what becomes
	// of the answer.
	HTTP *HTTPSpec `json:"http"`
	// The messages of an MQTT broker as they come, in place of `poll`. `message` or `relay` say what becomes of each.
	MQTT *MQTTSpec `json:"mqtt"`
	// Members that the payload of a message of `mqtt` must have, by name with their type: any, string, number, integer, boolean,
	// object or array. A list of names takes any value but null. What lacks one follows `on_invalid`.
	Require Require `json:"require"`
	// An expression that tells which messages of `mqtt` are wanted: `key`, `value`, `headers`, `timestamp`, `topic`, `levels`,
	// `qos`, `retained`, `properties`, `config`, `vars` and `now` are in scope. The others are acknowledged and passed over.
	Filter Expression `json:"filter"`
	// An expression for the list of records in an answer, such as `body.items`. By default they are the elements of an answer
	// that is a list, else the answer is the one record.
	Records Expression `json:"records"`
	// What a record or message becomes, without a script: every leaf is an expression. For `mqtt` it has the names of `filter`.
	Message *MessageSpec `json:"message"`
	// The script that says in place of `message` what becomes of each message of `mqtt`, or of each record of an answer: `msg` and
	// `config` are in scope. For `http` also `response`, and `state`, which becomes what it yields; for `mqtt` there is no state.
	Relay Script `json:"relay"`
	// What `state` becomes with a page of records, as names and expressions over `page.first`, `page.last`, `page.count`, `body`
	// and `headers`. A member that gives nothing keeps its value.
	Cursor Leaves `json:"cursor"`
	// How long the script may take: `poll` from a resume to its next yield of State or its end, `relay` for one message (30s).
	Timeout Duration `json:"timeout" default:"5m"`
	// What becomes of a config that is not what `config` demands, and of a message of `mqtt` whose payload is not what `format`
	// and `require` say: `fail` ends the process with exit status 1, `skip` leaves it out, and `{ dlq: topic }` writes the
	// message to a topic of dead letters.
	OnInvalid InvalidPolicy `json:"on_invalid" default:"fail"`
	// What becomes of a poll, or of a message of `mqtt`, that fails: `fail` ends the process with exit status 1. `skip` waits
	// for the config's next poll, or passes over the message. `{ retry: 1s..5m }` polls that config again after a pause that
	// grows from the first length to the second; `retry` alone is `{ retry: 1s..5m }`. `{ dlq: topic }` writes the message to a
	// topic of dead letters.
	OnError PollPolicy `json:"on_error" default:"fail"`
}

// ConfigRulesSpec is what a stage wants of its configs.
type ConfigRulesSpec struct {
	// A JSON Schema that every config must fit, with its defaults: written here, or the name of a .json file beside
	// the pipeline. The member `suspended`, which stops the polls of a config, need not be named in it.
	Schema JSONSchema `json:"schema"`
	// Members that a config has which does not say otherwise; objects in it likewise.
	Defaults Object `json:"defaults"`
}

// FetchSpec is what HTTP requests have in common.
type FetchSpec struct {
	// The header User-Agent.
	UserAgent Text `json:"user_agent"`
	// What the path of a URL without a host is put behind.
	BaseURL Text `json:"base_url"`
	// How long a request may take, from its start to the last byte of its answer.
	Timeout Duration `json:"timeout" default:"30s"`
	// How many requests may be sent to one host: a number per `s`, `m` or `h`, such as `10/s`.
	Rate Rate `json:"rate"`
	// When requests to a host that keeps failing are no longer sent.
	Breaker *BreakerSpec `json:"breaker"`
	// The largest body of an answer, in bytes or with KiB, MiB or GiB.
	MaxBytes Size `json:"max_bytes" default:"64MiB"`
	// How many redirects are followed.
	MaxRedirects Limit `json:"max_redirects" default:"10"`
}

// BreakerSpec is a circuit breaker: after some failures in a row a host gets no request for a while, then one that tries.
type BreakerSpec struct {
	// How many failures in a row.
	Failures Count `json:"failures" need:"it says after how many failures in a row requests stop"`
	// For how long no request is sent.
	Pause Duration `json:"pause" default:"30s"`
}

// TransformerSpec is a stage that reads topics and writes exactly once. It has either a `transform` or a `message`.
type TransformerSpec struct {
	// The name of the stage in Kafka; by default the pipeline's name, a hyphen and the stage's name. A change strands the
	// stage's state and its place in the inputs.
	ApplicationID Text `json:"application_id" pattern:"name"`
	// The topics that the stage reads, in the order in which they are taken. As a mapping, `msg.input` is the name.
	InputTopics Inputs `json:"input_topics" schema:"required"`
	// The topics that the stage may write to.
	OutputTopics Names `json:"output_topics"`
	// Topics whose records scripts read by key: `configs.get(key)`. They are compacted unless they say otherwise, and have
	// keys of text and values of JSON.
	ConfigTopics Names `json:"config_topics"`
	// An expression that tells which records the stage is for; the others are passed over.
	Filter Expression `json:"filter"`
	// An expression that names the state of a record; by default its key.
	StateKey Expression `json:"state_key"`
	// What `state` is for a key that has none yet.
	State Object `json:"state"`
	// The script that runs once per record: `msg` and `state` are in scope, `yield Message({…})` writes and
	// `yield State({…})` keeps.
	Transform Script `json:"transform"`
	// What a record becomes, without a script: every leaf is an expression.
	Message *MessageSpec `json:"message"`
	// How many records a script that awaits may have begun at once; those of one key never overlap.
	Concurrency Count `json:"concurrency" default:"64"`
	// How long the script may take for one record.
	Timeout Duration `json:"timeout" default:"30s"`
	// What becomes of a record that cannot be decoded: `fail` ends the process with exit status 1, `skip` passes it over.
	OnInvalid InvalidPolicy `json:"on_invalid" default:"fail"`
	// What becomes of a record whose script or expression fails: `fail` ends the process with exit status 1, `skip` passes
	// the record over, `{ retry: 1s..5m }` runs it again after a pause that grows from the first length to the second, and
	// holds up its partition meanwhile.
	OnError RecordPolicy `json:"on_error" default:"fail"`
}

// MessageSpec is an output record as expressions. Those of an extractor see `item` and `index`, a record of an answer and its
// number from 0, `body`, `headers` and `status` of the answer, and `config`, `state`, `vars` and `now`. A literal text is quoted inside: `status: '"CRITICAL"'`.
type MessageSpec struct {
	// The topic, as a name; a template such as `{{ value.kind }}` may stand in it. By default the only output topic.
	Topic Text `json:"topic"`
	// The key; by default that of the input, or of the config.
	Key Leaves `json:"key"`
	// The value; `null` is a tombstone.
	Value Leaves `json:"value" schema:"required"`
	// The headers by name, or one expression such as `headers`.
	Headers Leaves `json:"headers"`
	// Milliseconds since 1970; by default those of the input, or now.
	Timestamp Expression `json:"timestamp"`
	// The partition; by default it follows from the key.
	Partition Expression `json:"partition"`
}
