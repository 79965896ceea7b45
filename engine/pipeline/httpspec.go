package pipeline

import "github.com/flechtwerk/flechtwerk/engine/decode"

// HTTPSpec is the request of an extractor. Templates such as `{{ state.since ?? 0 }}` may stand in its texts: `config`,
// `state`, `vars` and `now` are in scope.
type HTTPSpec struct {
	// The method.
	Method Text `json:"method" default:"GET"`
	// What is asked for: a URL, or a path behind the pipeline's `fetch.base_url`. What a hole gives is escaped for its place.
	URL Template `json:"url" need:"it says what to ask for" schema:"text"`
	// Members of the URL's query, escaped. One whose value is a hole that gives nothing is left out.
	Query Templates `json:"query"`
	// Headers of the request. One whose value is a hole that gives nothing is left out.
	Headers Templates `json:"headers"`
	// What is sent.
	Body *BodySpec `json:"body"`
	// Who asks, as one of several ways to say it.
	Auth *AuthSpec `json:"auth"`
	// How the connection is encrypted, and who is trusted.
	TLS *TLSSpec `json:"tls"`
	// The URL of a proxy, or `direct` for none. Without it the environment decides (HTTPS_PROXY and its like).
	Proxy Text `json:"proxy"`
	// How long a request may take, from its start to the last byte of its answer; by default as `fetch:` says.
	Timeout Duration `json:"timeout"`
	// The largest body of an answer, in bytes or with KiB, MiB or GiB; by default as `fetch:` says.
	MaxBytes Size `json:"max_bytes"`
	// What is done with an answer that points elsewhere: `follow`, `manual` (it is the answer) or `error`.
	Redirect Word[redirect] `json:"redirect" default:"follow"`
	// How an answer leads to the next page. Each page commits with its cursor.
	Paginate *PaginateSpec `json:"paginate"`
	// Whether the request says which version is known already (ETag, Last-Modified), so that the server may answer that there
	// is nothing new. By default it does for a GET that is not paginated, or has the newest first.
	Conditional Flag `json:"conditional"`
	// The answer is a file that grows: each poll reads on where the last one ended.
	Tail *TailSpec `json:"tail"`
	// What the body of an answer is written in.
	Decode *DecodeSpec `json:"decode"`
	// The statuses that are answers, such as `[200, 404]` or `200-299`; any other is an error.
	Expect Statuses `json:"expect" default:"200-299"`
	// How long the poll waits where a server answers 429 or 503 and says when to come again; `false` does not wait.
	RetryAfter RetryAfter `json:"retry_after"`
	// Asks again after a failure that may pass, before `on_error` has its say.
	Retry *RetrySpec `json:"retry"`
}

// BodySpec is the body of a request: one of its members.
type BodySpec struct {
	// A JSON value. A text that is one hole and nothing else becomes the value of its expression, of whatever type.
	JSON BodyTree `json:"json"`
	// Members of a form.
	Form Templates `json:"form"`
	// Plain text; a header `Content-Type` says otherwise.
	Text Template `json:"text"`
}

// AuthSpec is who asks: one of its members.
type AuthSpec struct {
	// A user with a password.
	Basic *BasicSpec `json:"basic"`
	// A token, sent as `Authorization: Bearer …`.
	Bearer Template `json:"bearer"`
	// A key in a header or in the query.
	APIKey *APIKeySpec `json:"api_key"`
	// A token server: the token is asked for when it is needed, kept, and renewed.
	OAuth2 *OAuth2Spec `json:"oauth2"`
}

// BasicSpec is a user with a password.
type BasicSpec struct {
	// The name of the user.
	User Template `json:"user" need:"it says who asks"`
	// The password.
	Password Template `json:"password" need:"without it there is nobody to be sure of"`
}

// APIKeySpec is a key that a server has given out.
type APIKeySpec struct {
	// The header that holds it.
	Header Text `json:"header"`
	// The member of the query that holds it.
	Query Text `json:"query"`
	// The key itself.
	Value Template `json:"value" need:"it is the key"`
}

// OAuth2Spec is a token server (RFC 6749).
type OAuth2Spec struct {
	// Where tokens are asked for.
	TokenURL Template `json:"token_url" need:"tokens are asked for there"`
	// The name of the client.
	ClientID Template `json:"client_id" need:"the token server knows its clients"`
	// The secret of the client; a public client has none.
	ClientSecret Template `json:"client_secret"`
	// With it tokens are asked for in a user's name (grant_type refresh_token), else in the client's (client_credentials).
	RefreshToken Template `json:"refresh_token"`
	// What the token is to allow.
	Scopes Names `json:"scopes"`
	// Further members of the form, such as `audience`.
	Params Templates `json:"params"`
	// Where the credentials of the client are sent: as a `header` or in the `body`.
	Credentials Word[credentials] `json:"credentials" default:"header"`
}

// TLSSpec is how a connection is encrypted.
type TLSSpec struct {
	// A file of certificates in PEM: who is trusted, in place of the system's.
	CA Text `json:"ca"`
	// A file with our certificate in PEM.
	Cert Text `json:"cert"`
	// A file with the key of our certificate in PEM.
	Key Text `json:"key"`
	// The name that the server's certificate must have, where it is not the host's.
	ServerName Text `json:"server_name"`
	// Whether any server is trusted. Whoever is on the way can then read and change everything.
	Insecure Flag `json:"insecure" default:"false"`
}

// PaginateSpec is how an answer leads to the next page: one of `next`, `link`, `cursor`, `page` and `offset`. Its expressions
// see `body`, `headers`, `status`, `page`, `config`, `state`, `vars` and `now`.
type PaginateSpec struct {
	// An expression for the URL of the next page; nothing ends the listing.
	Next Expression `json:"next"`
	// The header Link has the URL of the next page under this relation, mostly `next`.
	Link Text `json:"link"`
	// An expression for what `param` sends to get the next page; nothing ends the listing.
	Cursor Expression `json:"cursor"`
	// Pages have numbers, and the first one has this. A page without records ends the listing.
	Page Limit `json:"page"`
	// A request says how many records come before, at first this many. A page without records ends the listing.
	Offset Limit `json:"offset"`
	// Where cursor, page or offset is sent: a member of the query, or `{ header: name }` or `{ body: name }`. By default `page`
	// or `offset`.
	Param PageParam `json:"param"`
	// The listing has the newest first: an expression over `item` that tells of a record that it is known already. It and all
	// after it are left out, and the listing ends. `state` is that from before the listing.
	Until Expression `json:"until"`
	// An expression that tells of a page that it is the last one.
	StopWhen Expression `json:"stop_when"`
	// After so many pages a poll ends, with a warning if there are more.
	MaxPages Count `json:"max_pages"`
	// Whether the next page may be at another host. Auth and headers are not sent there.
	OtherHosts Flag `json:"other_hosts" default:"false"`
}

// TailSpec is a file that grows: `lines` (by default), `ndjson`, or `csv` and `tsv` with `columns`.
type TailSpec struct {
	// What ends a record. A record without it is not complete and waits for the next poll.
	Separator Text `json:"separator"`
	// Where a file begins that is read for the first time: at its `start` or its `end`.
	From Word[beginning] `json:"from" default:"start"`
	// What happens when the file has become shorter or is another one: `fail`, or `restart` from its start, with a warning.
	Truncated Word[truncated] `json:"truncated" default:"fail"`
	// How much one request asks for. No record may be longer.
	MaxBytes Size `json:"max_bytes" default:"16MiB"`
}

// DecodeSpec is what a body is written in. As one word it is its format.
type DecodeSpec struct {
	// `json` (one document), `ndjson`, `csv`, `tsv`, `xml`, `lines`, `text` or `protobuf`.
	Format Word[decode.Format] `json:"format" default:"json"`
	// What the body is wrapped in: `gzip` or `zip`. What a server says in Content-Encoding is undone without it.
	Packing Word[decode.Packing] `json:"packing"`
	// The members of a zip that are read: a name, or a pattern such as `*.csv`. By default all.
	Members Text `json:"members"`
	// The character between the fields of a row.
	Delimiter Text `json:"delimiter"`
	// The character around a field; `false` says that nothing is quoted.
	Quote Quote `json:"quote"`
	// The names of the fields where the first row does not have them.
	Columns Names `json:"columns"`
	// What an empty field becomes: `text` (""), `null`, or `omit` for no member at all.
	Empty Word[decode.Empty] `json:"empty" default:"text"`
	// What is done with a row that has too few fields: `pad` (what is missing is empty) or `fail`.
	Short Word[decode.Short] `json:"short" default:"pad"`
	// What is done with a row that has too many fields: `fail`, `ignore`, or `keep` as the list `$extra`.
	Extra Word[decode.Extra] `json:"extra" default:"fail"`
	// What is done with a text that is no UTF-8: `fail`, `replace` what is wrong, or `latin1`, which reads windows-1252.
	InvalidUTF8 Word[decode.InvalidUTF8] `json:"invalid_utf8" default:"fail"`
	// What ends a line of `lines`.
	Separator Text `json:"separator"`
	// The names of XML elements that are lists also where there is only one.
	Lists Names `json:"lists"`
	// A .proto file, or a descriptor set, beside the pipeline.
	Schema Text `json:"schema"`
	// The message type of a protobuf body, by its full name.
	Message Text `json:"message"`
	// Whether a protobuf body is a stream of messages, each behind its length.
	Delimited Flag `json:"delimited" default:"false"`
	// Whether fields of a protobuf message that are not there are written with their defaults, as far as the schema has some.
	Defaults Flag `json:"defaults" default:"false"`
}

// RetrySpec is how a request is tried again.
type RetrySpec struct {
	// How often, after the first time.
	Times Count `json:"times" need:"it says how often a request is tried again"`
	// How long to wait: the first pause, and the longest one that it grows to.
	Pause Pauses `json:"pause" default:"1s..1m"`
	// Vouches for a method that is not safe to repeat, such as POST, that a second time does no harm.
	AnyMethod Flag `json:"any_method" default:"false"`
}
