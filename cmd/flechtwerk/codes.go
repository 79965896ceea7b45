package main

import (
	"slices"

	"github.com/flechtwerk/flechtwerk/engine/pipeline"
)

// codes explains what pipeline.Explain does not know: problems of scripts, failures of records, and warnings of a run.
var codes = map[string]pipeline.Explanation{
	"script.syntax":              {Severity: pipeline.Error, Text: "The script is not JavaScript from this place on. Bodies are strict mode."},
	"script.compile":             {Severity: pipeline.Error, Text: "The script could not be compiled."},
	"script.module":              {Severity: pipeline.Error, Text: "A script in a file of its own exports a generator of the body's name: `export function* transform(msg, state) { … }`, `export function* poll(config, state) { … }` or `export function* relay(msg, config) { … }`, and for enrich a function: `export async function enrich(config) { … }`."},
	"script.functions":           {Severity: pipeline.Error, Text: "`functions:` declares functions, classes and constants that the bodies of the pipeline use. It does nothing by itself."},
	"script.declared_twice":      {Severity: pipeline.Error, Text: "The name is declared already, in the same text, in another one of `functions:`, or by the engine."},
	"script.unknown_name":        {Severity: pipeline.Error, Text: "Nothing has this name where the script uses it. In scope are msg and state (transform), config and state (poll), msg and config (relay) or config (enrich), Message, State, vars, console, what `functions:` declare, and JavaScript's own."},
	"script.not_supported":       {Severity: pipeline.Error, Text: "The language has this, but this version does not do it yet. It is refused, so that nothing is silently left undone."},
	"script.await":               {Severity: pipeline.Error, Text: "`await` stands in a body or in an async function. `for await` is not there: await the list, then loop over it. Nothing waits while `functions:` load."},
	"script.helper":              {Severity: pipeline.Error, Text: "An `async function*` is a part of the body that calls it: it is declared as a function, and called as `yield* helper()` in a body or in another one, and nowhere else."},
	"script.no_state":            {Severity: pipeline.Error, Text: "What arrives by itself may be spread over several processes, so that a `relay:` of `mqtt:` has no state. A transformer that reads its output topic keeps state, by the key of each record."},
	"script.stuck":               {Severity: pipeline.Error, Text: "The script awaits a promise that nothing can settle any more: no request is under way, and nobody called resolve or reject. It follows `on_error:`."},
	"script.forgotten_await":     {Severity: pipeline.Error, Text: "The script ended while a request of its own was under way, so its result, and its failure, would be lost. Await what `fetch` answers. It follows `on_error:`."},
	"script.unhandled_rejection": {Severity: pipeline.Error, Text: "A promise was rejected, and nothing awaits it or catches its errors. It follows `on_error:`."},
	"script.fetch":               {Severity: pipeline.Error, Text: "An argument of `fetch` is wrong. It follows `on_error:`."},
	"script.protobuf":            {Severity: pipeline.Error, Text: "`protobuf(name)` knows the message types of the files that the pipeline names in `protobuf:`, by their full names."},
	"script.import":              {Severity: pipeline.Error, Text: "`import` and `export` stand at the top of a .js file, and import names another one by its relative path: `import { name } from \"./lib.js\"`. Packages cannot be imported. The files must not import each other in a circle."},
	"script.shared_variable":     {Severity: pipeline.Error, Text: "What stands outside of a body is shared by all calls and all tasks, and is frozen, so that no call depends on an earlier one. Variables, and objects that cannot be frozen (Map, Set, Date, expressions with the flag g or y), belong into functions; what is to be kept is State."},
	"script.shared_assignment":   {Severity: pipeline.Error, Text: "Built-ins, vars and what `functions:` declare are shared by all calls and frozen. What is to be kept from one call to the next is State."},
	"script.member":              {Severity: pipeline.Error, Text: "The script reads a member of msg, calls a function of a built-in object, or gives an option, that is not there: see docs/scripts.md for what there is."},
	"script.vars":                {Severity: pipeline.Error, Text: "`vars:` of the pipeline declares no such member. A read that provides for its absence (`vars.name ?? 1`) is left alone."},
	"script.new":                 {Severity: pipeline.Error, Text: "Message and State are functions: `yield Message({ value })`, without `new`."},
	"script.regexp":              {Severity: pipeline.Error, Text: "A regular expression that would silently never match, or is not one."},
	"script.error":               {Severity: pipeline.Error, Text: "The script threw. `on_error:` says what becomes of the record: `fail` (the process ends, no offset moves), `skip` or `{ retry: 1s..5m }`."},
	"script.timeout":             {Severity: pipeline.Error, Text: "One call of the script took longer than `timeout:` (30s; 5m for poll). It follows `on_error:`."},
	"script.recursion":           {Severity: pipeline.Error, Text: "Calls in the script nest too deep, mostly a function that calls itself without end. It follows `on_error:`."},
	"script.memory":              {Severity: pipeline.Error, Text: "One call of the script made the process hold 512 MiB more than when it began. Yield in parts, and go through what is large piece by piece. It follows `on_error:`."},
	"script.engine":              {Severity: pipeline.Error, Text: "The JavaScript engine failed in one of its built-in functions. It is no fault of the script; written in another way, it may work. It follows `on_error:`."},
	"script.yield":               {Severity: pipeline.Error, Text: "A body yields Message({…}) and State({…}) and nothing else, and returns nothing."},
	"script.enrich":              {Severity: pipeline.Error, Text: "An enrich returns the completed config, a plain object: `return { ...config, … }`. It yields nothing, and knows neither state nor other configs, since what it returns is kept for as long as its own config stays as it is."},
	"script.message":             {Severity: pipeline.Error, Text: "A Message has topic, key, value, headers, timestamp and partition, and a value. `value: null` is a tombstone."},
	"script.topic":               {Severity: pipeline.Error, Text: "A Message goes to one of the stage's `output_topics`; without `topic` to the only one."},
	"script.state":               {Severity: pipeline.Error, Text: "State takes an object. `State({})`, `State(null)` and `State()` delete the state."},
	"value.refused":              {Severity: pipeline.Error, Text: "The value cannot be written in the format of its topic: NaN, Infinity, Map, Set, byte arrays, functions and symbols are no JSON. The message names the path to it."},

	"mqtt.invalid": {Severity: pipeline.Error, Text: "The payload of an MQTT message is not what `format:` and `require:` say. `on_invalid:` says what becomes of it: `fail` (the process ends, and the broker keeps the message), `skip` or `{ dlq: topic }`."},
	"mqtt.failed":  {Severity: pipeline.Error, Text: "`filter:`, `message:` or `relay:` failed on an MQTT message, or the record that it became is too large for its topic. `on_error:` says what becomes of it."},
	"mqtt.overlap": {Severity: pipeline.Error, Text: "Two topic filters of a stage can match the same topic, so that the broker would send a message twice. It follows `on_error:`: the later config, by key, has no part in the session."},
	"mqtt.refused": {Severity: pipeline.Error, Text: "The MQTT broker does not let this client in, or does not let it subscribe: user, password, rights, the client's name, or another process with the same one (`instance.id`)."},
	"mqtt.qos":     {Severity: pipeline.Error, Text: "The MQTT broker grants a lower quality of service than `qos:` asks for, so that messages could be lost."},

	"record.invalid":    {Severity: pipeline.Error, Text: "The record is not what its topic's `key:` and `value:` say. `on_invalid:` says what becomes of it: `fail` (the process ends, no offset moves) or `skip`."},
	"record.too_large":  {Severity: pipeline.Error, Text: "The record is larger than its topic takes (max.message.bytes of the broker or the topic). It follows `on_error:`."},
	"state.no_key":      {Severity: pipeline.Error, Text: "A record without key has no state. Give records keys, say `state_key:`, or filter them out. It follows `on_error:`."},
	"state.bad_key":     {Severity: pipeline.Error, Text: "A state key is text in UTF-8 that does not begin with U+0000. It follows `on_error:`."},
	"state.too_large":   {Severity: pipeline.Error, Text: "The state of one key is larger than a record of the changelog may be (max.message.bytes). The record that made it so follows `on_error:`."},
	"state.large":       {Severity: pipeline.Warning, Text: "The state of one key has more than half of the size that a record of the changelog may have (max.message.bytes). Beyond that size the key's records fail."},
	"config.twice":      {Severity: pipeline.Warning, Text: "Two config topics of a stage have a config under the same key. That of the topic which the stage names last counts."},
	"message.partition": {Severity: pipeline.Error, Text: "A message asks for a partition that its topic does not have. The record that made it follows `on_error:`."},
	"state.checkpoint":  {Severity: pipeline.Warning, Text: "The local copy of the state does not say up to where it goes, so the state is restored from the whole changelog. Nothing is lost."},
	"state.topic_id":    {Severity: pipeline.Warning, Text: "The changelog was deleted and made anew, so the local copy of the state is of another one. The state is restored from what is in the changelog now."},
	"state.offset":      {Severity: pipeline.Warning, Text: "The local copy of the state ends outside of the changelog, so the state is restored from the whole changelog. Nothing is lost."},
	"state.age":         {Severity: pipeline.Warning, Text: "The local copy of the state is older than the changelog keeps deletes (delete.retention.ms), so it may hold keys that are deleted. The state is restored from the whole changelog. Nothing is lost."},

	"fetch.breaker":             {Severity: pipeline.Warning, Text: "A host has failed as often as `breaker:` in `fetch:` allows, one request after another, and is left alone for its `pause`. Requests to it fail at once with the code `breaker_open`. Then one is let through to see."},
	"kafka.group":               {Severity: pipeline.Warning, Text: "The consumer group could not be joined just now. It is tried again."},
	"task.abandoned":            {Severity: pipeline.Warning, Text: "A task did not finish what it was at in time, at the end of the process (`shutdown.timeout`) or when it went to another instance. What it was at is not committed: whoever runs the task next does it again."},
	"kafka.fetch":               {Severity: pipeline.Warning, Text: "Records could not be fetched just now. It is tried again."},
	"kafka.leave":               {Severity: pipeline.Warning, Text: "The group could not be left, so others take over only after kafka.session_timeout."},
	"kafka.transaction_version": {Severity: pipeline.Warning, Text: "The cluster does not say which version of transactions it has; Kafka 4 with transaction.version 2 is the best there is."},

	"http.status":           {Severity: pipeline.Error, Text: "The server answered with a status that is none of `expect:` (200 to 299). 401 and 403: look at `auth:`. 404: look at the URL. 429 and 503 are waited for where the server says how long (`retry_after`). 5xx is the server's own trouble; `retry:` asks again, `on_error: retry` polls again later."},
	"http.timeout":          {Severity: pipeline.Error, Text: "The request took longer than `timeout` (of `http:`, else of `fetch:`, else 30s)."},
	"http.connect":          {Severity: pipeline.Error, Text: "There was no connection to the server, or it broke. Look at the host and the port of the URL, at the proxy, and whether the server is up."},
	"http.dns":              {Severity: pipeline.Error, Text: "The name of the host has no address. Look at the URL, and at the name servers of where this runs."},
	"http.too_large":        {Severity: pipeline.Error, Text: "The answer is larger than `max_bytes` (of `http:`, else of `fetch:`, else 64MiB)."},
	"http.redirects":        {Severity: pipeline.Error, Text: "The server sends the request on and on, to nowhere, or `redirect: error` forbids it. `fetch.max_redirects` says how often is too often."},
	"http.breaker_open":     {Severity: pipeline.Error, Text: "The host has failed so often that it is left alone for a while (`fetch.breaker`)."},
	"http.protocol":         {Severity: pipeline.Error, Text: "The answer breaks the rules of HTTP or of its encoding, or broke off. Nothing of it counts."},
	"http.cancelled":        {Severity: pipeline.Error, Text: "The request was given up because the process stops, or because the work went to another instance."},
	"http.request":          {Severity: pipeline.Error, Text: "The request cannot be sent as its templates make it: the URL, a header or the method."},
	"http.next":             {Severity: pipeline.Error, Text: "Where the next page is cannot be asked: no URL, or one at another host, which `other_hosts` would allow."},
	"http.records":          {Severity: pipeline.Error, Text: "What `records:` says is no list."},
	"http.state":            {Severity: pipeline.Error, Text: "The state of the config cannot be read, or what `cursor:` makes of it cannot be written."},
	"http.range":            {Severity: pipeline.Error, Text: "The server does not answer a part of the file as it was asked for, so that `tail:` cannot read on."},
	"http.truncated":        {Severity: pipeline.Error, Text: "The file that `tail:` reads has become shorter or is another one. `truncated: restart` reads it from its start."},
	"http.repeated_cursor":  {Severity: pipeline.Warning, Text: "A page leads to one that was read already, so the listing ends here rather than go round for ever. Look at what `paginate:` takes for the next page."},
	"http.repeated_page":    {Severity: pipeline.Warning, Text: "A page has the records of the page before, so the listing ends here. Mostly the server does not know the `param` of `paginate:`."},
	"http.max_pages":        {Severity: pipeline.Warning, Text: "The listing ended at `max_pages`, with more to come."},
	"http.position_refused": {Severity: pipeline.Warning, Text: "The server does not take the place in the listing where an earlier poll was interrupted, so the listing begins again. Records that were committed already come again."},
	"http.rotated_token":    {Severity: pipeline.Warning, Text: "The token server gave another refresh token. It is kept in memory only: the next start uses the configured one again, which may hold no more."},
	"decode.syntax":         {Severity: pipeline.Error, Text: "The body is not written in the format that `decode:` says, or ends too early. The message says where."},
	"decode.utf8":           {Severity: pipeline.Error, Text: "A text of the body is no UTF-8. `invalid_utf8` says what else it may be, in formats of rows and lines."},
	"decode.too_large":      {Severity: pipeline.Error, Text: "A record, or what is unpacked, is larger than may be held."},
	"decode.depth":          {Severity: pipeline.Error, Text: "A record nests deeper than may be."},
	"decode.columns":        {Severity: pipeline.Error, Text: "The first row does not name the columns, or a row does not fit them. `columns`, `short` and `extra` say what is to be."},
	"decode.list":           {Severity: pipeline.Error, Text: "What stands where the list of records should be is no list."},
	"decode.member":         {Severity: pipeline.Error, Text: "The zip has no member of that name."},

	"expr.condition":    {Severity: pipeline.Error, Text: "A condition is true, false or nil, which counts as false. This one was something else for this record. It follows `on_error:`."},
	"expr.operand":      {Severity: pipeline.Error, Text: "An operator or function cannot take what this record has. It follows `on_error:`."},
	"expr.big_number":   {Severity: pipeline.Error, Text: "Expressions calculate with integers of 64 bits. Larger ones pass through, but cannot be calculated with. It follows `on_error:`."},
	"expr.budget":       {Severity: pipeline.Error, Text: "The expression took more work or memory than one record may take. It follows `on_error:`."},
	"expr.not_finite":   {Severity: pipeline.Error, Text: "NaN and Infinity are no JSON. It follows `on_error:`."},
	"template.nil":      {Severity: pipeline.Error, Text: "A hole of a template is nil, so there is nothing to stand there. `{{ state.since ?? 0 }}` says what does instead. It follows `on_error:`."},
	"template.hole":     {Severity: pipeline.Error, Text: "What a hole of a URL gives cannot stand in its place: spaces, anything but a host where the host stands, `..` as a part of the path. It follows `on_error:`."},
	"expr.value":        {Severity: pipeline.Error, Text: "The expression failed for what this record has. It follows `on_error:`."},
	"expr.bytes":        {Severity: pipeline.Error, Text: "Bytes are neither JSON nor text. It follows `on_error:`."},
	"message.timestamp": {Severity: pipeline.Error, Text: "The timestamp of a Message is milliseconds since 1970, and its partition a number from 0. It follows `on_error:`."},
}

// explanation is what is known of a code.
func explanation(code string) (pipeline.Explanation, bool) {
	if e, ok := pipeline.Explain(code); ok {
		return e, true
	}
	e, ok := codes[code]
	return e, ok
}

// allCodes are the codes that explanation knows, sorted.
func allCodes() []string {
	all := append(sorted(codes), pipeline.Codes()...)
	slices.Sort(all)
	return slices.Compact(all)
}
