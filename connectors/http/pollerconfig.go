package http

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/flechtwerk/flechtwerk/engine/decode"
	"github.com/flechtwerk/flechtwerk/engine/expr"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// PollerConfig says what an extractor asks for, how it reads the answers, and what it makes of them. Everything that is
// compiled is compiled in the scope that its comment names.
type PollerConfig struct {
	// Client sends the requests. It is shared and not closed. TLS and a proxy of the stage are those of its Config
	// (TLSConfig.Build makes the former).
	Client *Client
	// Tokens keeps the tokens of OAuth2 for the whole process. A poller without one has its own.
	Tokens *Tokens

	Request RequestConfig
	// Auth says who asks; nil is nobody.
	Auth *Auth
	// Paginate says that an answer is one page of several; nil is that it is all.
	Paginate *Paginate
	// Conditional is whether the request says which version it has already (ETag, Last-Modified), so that the server may
	// answer 304: nothing new.
	Conditional Conditional
	// Tail reads a file that grows; nil is an answer that is read as a whole. It excludes Paginate and a Request other than
	// GET.
	Tail *Tail

	// Decode says how a body is read, save for its List and Path, which the poller sets.
	Decode decode.Config
	// Records is the list of items in a body that is one document (decode.Format.Lists), scope Response. Without it the items
	// are the elements of a document that is a list, else the document itself. It is streamed where it is a path in body
	// (body.data.items) and nothing else that is said looks at the list, or at body while its items are read.
	Records *expr.Expr
	// Message is what an item becomes, scope Item. Without it NewRelay makes what an item is given to; one of both is there.
	Message *expr.Message
	// NewRelay makes a relay for a poll. A later poll may take it over, unless the one before has failed; the poller closes it.
	NewRelay func() (stream.Relay, error)
	// KeepBody says that the relay looks at the answer's whole body, so that it is held in memory until all of its items are
	// committed, and must not be larger than decode.Limits.Item.
	KeepBody bool
	// Cursor is what State becomes with an answer, scope Page, member by member; none leaves it to the relay. See Poller on
	// when it is looked at.
	Cursor []CursorField

	// Expect are the statuses that are answers; 200 to 299 if empty. What a condition (304) or a range (206, 416) asks for
	// is expected as well. Any other is an error.
	Expect []StatusRange
	// RetryAfter is how the poller waits where a server says so.
	RetryAfter RetryAfterConfig
	// Retry asks again after failures; nil is never.
	Retry *Retry

	// Outputs are the topics that messages go to.
	Outputs []*stream.Topic
	// Batch bounds what one transaction holds.
	Batch BatchLimits
	// Initial is what state is where there is none, a JSON object; {} if nil. Vars is the JSON object vars.
	Initial, Vars []byte
	// Now is the clock of now in expressions and of messages without a timestamp; nil is time.Now.
	Now func() time.Time
	// Place tells where in the user's file an expression failed, as FILE:LINE:COLUMN; nil or "" is nowhere.
	Place func(*expr.Failure) string
	// Secrets are texts of the environment and of mounted files that stand in the request. They are never shown, wherever in a
	// URL they are. What is shorter than 4 bytes is not hidden, nor is a whole URL.
	Secrets []string
	// Events is told what happens.
	Events PollerEvents
}

// RequestConfig is a request whose parts are templates, scope Config. A hole that is nil is an error.
type RequestConfig struct {
	Method string // GET if empty
	// URL is absolute or is completed by the client's base URL. What a hole says is escaped for where it stands: in the path,
	// a segment of it; in the query, a name or a value. A hole that begins the URL is a URL itself and is taken as it is. One
	// in the name of the host may hold what names of hosts are made of.
	URL *expr.Template
	// Query is appended to the URL's, escaped. Headers are sent as they are.
	Query, Headers []Param
	Body           BodyConfig
	// Timeout, MaxBytes and MaxDecompressed stand in for those of the client where they are above 0.
	Timeout                   time.Duration
	MaxBytes, MaxDecompressed int64
	// Redirect says what is done with an answer that points elsewhere.
	Redirect Redirect
}

// Param is a name with a value.
type Param struct {
	Name  string
	Value *expr.Template
}

// BodyConfig is the body of a request: one of its members, or none.
type BodyConfig struct {
	JSON *BodyTree      // application/json
	Form []Param        // application/x-www-form-urlencoded
	Text *expr.Template // text/plain; charset=utf-8
}

// BodyTree is a JSON value with templates in it.
type BodyTree struct {
	// Value is a leaf that is a text in the file. A template that is one hole and nothing else is the value of its expression,
	// of whatever type; any other is a text.
	Value *expr.Template
	// Literal is a leaf that is no text: compact JSON.
	Literal []byte
	// Names are those of an object whose members are Items; List says that Items are a list's.
	Names []string
	Items []*BodyTree
	List  bool
}

// Auth says who asks: one of its members. The templates have scope Config.
type Auth struct {
	Basic  *Basic
	Bearer *expr.Template // the token
	APIKey *APIKey
	OAuth2 *OAuth2
}

// Basic is a user with a password.
type Basic struct{ User, Password *expr.Template }

// APIKey is a key in a header or a query member of the request.
type APIKey struct {
	In    Place // InHeader or InQuery
	Name  string
	Value *expr.Template
}

// OAuth2 gets a bearer token from a token server (RFC 6749), with a refresh token where there is one, else with the
// credentials of the client. A token is kept in the process until shortly before it ends, shared by all polls that would ask
// for the same, and renewed once when a request with it is answered 401.
//
// A refresh token that the server gives in place of the one used is kept in memory only: it is a secret and has no place in a
// state. Poller events tell of it.
type OAuth2 struct {
	TokenURL     *expr.Template
	ClientID     *expr.Template
	ClientSecret *expr.Template // nil for a public client
	RefreshToken *expr.Template // nil asks with grant_type client_credentials
	Scopes       []string
	// Params are further members of the form, such as audience.
	Params []Param
	// InBody sends the credentials of the client as members of the form rather than as a header.
	InBody bool
}

// Place is where in a request something stands.
type Place uint8

// The places in a request.
const (
	InQuery Place = iota
	InHeader
	InBody // a member of a JSON body, a.b for one of a member, or of a form
)

// Paginate says how an answer leads to the one after it. Each is a page: its messages and its cursor commit together, with
// the place in the listing where it goes on.
type Paginate struct {
	Style PageStyle
	// Next is the URL (NextURL) or the cursor (NextCursor) of the next page, scope Page. Nil, "", false and null are the end.
	Next *expr.Expr
	// Rel is the relation of the link (NextLink); "next" if empty.
	Rel string
	// Param is where the cursor (NextCursor), the number (PageNumber) or the offset (Offset) is sent.
	Param PageParam
	// Start is the number of the first page (PageNumber) or the first offset (Offset).
	Start int64
	// SizeParam sends Size with each request, as the size of a page; without a name it is not sent.
	SizeParam PageParam
	Size      int64
	// Until tells of an item, scope Item, that it is known from an earlier poll: it and all that come after it are left out,
	// and the listing has ended. It says that the listing has the newest first. state is that from before the listing.
	Until *expr.Expr
	// StopWhen, scope Page, tells that a page is the last one; it is committed.
	StopWhen *expr.Expr
	// MaxPages ends a listing after so many pages; 0 is no limit. Events tell when there were more.
	MaxPages int
	// OtherHosts lets the next URL lead to another host than the request's. The request's secrets are not sent there.
	OtherHosts bool
}

// PageParam is a member of a request by which it says which page it wants.
type PageParam struct {
	In   Place
	Name string
}

// PageStyle is how the next page is found.
type PageStyle uint8

// The styles of pages.
const (
	OnePage    PageStyle = iota // there is no other: for Until alone
	NextURL                     // Next is its URL
	NextLink                    // the header Link has its URL (RFC 8288)
	NextCursor                  // Next is a value that Param sends
	PageNumber                  // Param sends 1, 2, 3, … from Start on, until a page is empty
	Offset                      // Param sends how many items there were before, from Start on, until a page is empty
)

// Conditional is a choice with a sensible default.
type Conditional uint8

// The choices.
const (
	ConditionalDefault Conditional = iota // for a GET that is not paginated, or has the newest first
	ConditionalOn
	ConditionalOff
)

// Tail reads a remote file that grows, as log files do, from where the last poll ended. Its items are the records between
// separators; a record without its separator is not complete and waits for the next poll.
type Tail struct {
	// Separator ends each record; a line feed if empty, and then a carriage return before it belongs to it.
	Separator []byte
	// From is where a file begins that is read for the first time.
	From TailFrom
	// Truncated is what happens when the file has become shorter, or is another one.
	Truncated Truncated
	// MaxBytes is how much one request asks for; 16 MiB if 0. A record must not be longer.
	MaxBytes int64
}

// TailFrom is a place in a file.
type TailFrom uint8

// The places.
const (
	FromStart TailFrom = iota
	FromEnd
)

// Truncated is what happens with a file that is not any more what it was.
type Truncated uint8

// What happens.
const (
	TruncatedFails   Truncated = iota // an error with CodeTruncated
	TruncatedRestart                  // it is read from its start, and Events tell
)

// CursorField is a member of a cursor.
type CursorField struct {
	Name  string
	Value *expr.Expr
}

// StatusRange are the statuses from From to To.
type StatusRange struct{ From, To int }

// RetryAfterConfig is about answers 429 and 503 that have a Retry-After header: the poll waits and asks again.
type RetryAfterConfig struct {
	Most  time.Duration // the longest wait, 5 minutes if 0; a header that says more is cut to it
	Times int           // how often in a row for one request, 10 if 0; after that the answer is an error
	Off   bool          // the answer is an error at once
}

// Retry asks again, after a failure that may pass, from where the listing is. It waits Min (1 s if 0) at first, twice as long
// each time, and at most Max (1 minute if 0), with jitter.
type Retry struct {
	Times    int // after the first one, for one request
	Min, Max time.Duration
	// AnyMethod vouches for a request that is no GET, HEAD, PUT, DELETE or OPTIONS: to send it twice does no harm.
	AnyMethod bool
}

// BatchLimits bound a transaction: whichever comes first ends it. A page that is larger is cut.
type BatchLimits struct {
	Records int // 10,000 if 0
	Bytes   int // of keys and values, 4 MiB if 0
}

// TLSConfig is what a stage says of its encrypted connections. Certificates and keys are in PEM.
type TLSConfig struct {
	CA        []byte // who is trusted, beside nobody; empty are those of the system
	Cert, Key []byte // who we are; both or none
	// ServerName is what the server's certificate must name; the host's name if empty.
	ServerName string
	// InsecureSkipVerify trusts any server. Whoever is on the way can read and change everything.
	InsecureSkipVerify bool
}

// Build makes the settings of a Config. Its errors hold nothing of what is in the PEM.
func (t *TLSConfig) Build() (*tls.Config, error) {
	out := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.InsecureSkipVerify {
		if len(t.CA) > 0 {
			return nil, errors.New("tls: a ca has no effect where any server is trusted; leave one out")
		}
		out.InsecureSkipVerify = true
	}
	if len(t.CA) > 0 {
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(t.CA) {
			return nil, errors.New("tls: the ca has no certificate in PEM")
		}
	}
	switch {
	case len(t.Cert) > 0 && len(t.Key) > 0:
		pair, err := tls.X509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("tls: the certificate of the client: %w", err)
		}
		out.Certificates = []tls.Certificate{pair}
	case len(t.Cert) > 0:
		return nil, errors.New("tls: a certificate without its key")
	case len(t.Key) > 0:
		return nil, errors.New("tls: a key without its certificate")
	}
	return out, nil
}

// PollerEvents is how a poller tells what a person should know. A nil function is not called. The functions run on the
// goroutines of polls, several at once, and must be quick.
type PollerEvents struct {
	// Warned tells of what is no error and still not as it should be.
	Warned func(PollWarning)
	// Waiting tells that a poll waits because the server said so, or before it asks again.
	Waiting func(PollWait)
}

// PollWarning is a warning with a stable code.
type PollWarning struct {
	Config string // the key of the config
	Code   string // WarnRepeatedCursor and its like
	URL    string // masked
	Text   string
}

func (w PollWarning) String() string { return fmt.Sprintf("%s: %s: %s", w.Code, w.URL, w.Text) }

// The codes of warnings.
const (
	WarnRepeatedCursor  = "http.repeated_cursor"  // a page leads to one that was there already
	WarnRepeatedPage    = "http.repeated_page"    // a page has the items of the page before
	WarnMaxPages        = "http.max_pages"        // a listing ended at its limit, with more to come
	WarnPositionRefused = "http.position_refused" // the server refuses to go on with a listing that was interrupted
	WarnTruncated       = "http.truncated"        // a tailed file has become shorter or is another one
	WarnRotatedToken    = "http.rotated_token"    // a refresh token was replaced by another, which no restart survives
)

// PollWait is a wait of a poll.
type PollWait struct {
	Config string
	URL    string // masked
	Why    string // "status 429", or the code of an error
	For    time.Duration
}

func (w PollWait) String() string { return fmt.Sprintf("%s: %s, wait %s", w.URL, w.Why, w.For) }
