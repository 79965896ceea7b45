package replay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"time"
)

// Rule says which requests it answers, how often, and how. What it leaves out is as if there were no rule.
type Rule struct {
	// Which requests. What is empty matches all of them.
	Method string            `json:"method,omitempty"`
	Path   string            `json:"path,omitempty"`   // of the URL; * stands for anything up to the next slash
	Query  map[string]string `json:"query,omitempty"`  // these members, whatever others there are
	Header map[string]string `json:"header,omitempty"` // likewise
	// Times is how many of them; 0 is all. The rule after it takes over.
	Times int `json:"times,omitempty"`

	// The answer. A status other than 200 has no body but that of Text, JSON or File.
	Status  int               `json:"status,omitempty"`
	Headers map[string]string `json:"headers,omitempty"` // an empty value leaves out a header that would be there
	Text    string            `json:"text,omitempty"`
	JSON    json.RawMessage   `json:"json,omitempty"`
	File    string            `json:"file,omitempty"` // in place of the one that the path names

	// RetryAfter and RetryDate send a Retry-After header in seconds or as a date.
	RetryAfter *Duration `json:"retry_after,omitempty"`
	RetryDate  *Duration `json:"retry_date,omitempty"`
	// Encoding is gzip or deflate: the body is sent so to clients that accept it. Such an answer knows no ranges.
	Encoding string `json:"encoding,omitempty"`
	// Range is "ignore" for a server that does not know ranges and sends the whole.
	Range string `json:"range,omitempty"`
	// Grow makes a file longer with each request.
	Grow *Grow `json:"grow,omitempty"`
	// Delay is the time before the answer begins; Drip sends its body bit by bit.
	Delay Duration `json:"delay,omitempty"`
	Drip  *Drip    `json:"drip,omitempty"`
	Fault Fault    `json:"fault,omitempty"`
}

// Grow shows From bytes of a file to the first request of a rule, and By more to each that follows, up to its whole length.
type Grow struct {
	From int64 `json:"from"`
	By   int64 `json:"by"`
}

// Drip sends Bytes bytes of a body, then waits for Every, and so on.
type Drip struct {
	Bytes int      `json:"bytes"`
	Every Duration `json:"every"`
}

// Fault is what goes wrong.
type Fault string

// What can go wrong.
const (
	Hang     Fault = "hang"     // no answer, as long as the client waits
	Stall    Fault = "stall"    // half of the body, then nothing more
	Truncate Fault = "truncate" // half of the body, then the connection is closed
	Short    Fault = "short"    // Content-Length is half of the body
	Close    Fault = "close"    // the connection is closed without an answer
	Garbage  Fault = "garbage"  // an answer that is no HTTP
	Loop     Fault = "loop"     // a redirect to where the request went
)

// Duration is a time.Duration that is written as text in JSON: "1.5s".
type Duration time.Duration

// Seconds is n seconds, for the members of a Rule that are pointers.
func Seconds(n int) *Duration {
	d := Duration(time.Duration(n) * time.Second)
	return &d
}

// UnmarshalJSON reads a text as time.ParseDuration does.
func (d *Duration) UnmarshalJSON(text []byte) error {
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return errors.New(`a duration is a text such as "2s"`)
	}
	parsed, err := time.ParseDuration(s)
	*d = Duration(parsed)
	return err
}

// MarshalJSON writes what UnmarshalJSON reads.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

func readRules(files fs.FS) ([]Rule, error) {
	content, err := fs.ReadFile(files, RulesFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	var file struct {
		Rules []Rule `json:"rules"`
	}
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&file); err != nil {
		return nil, fmt.Errorf("replay: %s: %w", RulesFile, err)
	}
	return file.Rules, nil
}

func (r *Rule) check() error {
	if _, err := path.Match(r.Path, ""); err != nil {
		return fmt.Errorf("path %q: %w", r.Path, err)
	}
	if r.Status != 0 && (r.Status < 200 || r.Status > 599) {
		return fmt.Errorf("status %d is none of 200 to 599", r.Status)
	}
	if r.Times < 0 {
		return errors.New("times is below 0")
	}
	bodies := 0
	for _, given := range []bool{r.Text != "", r.JSON != nil, r.File != ""} {
		if given {
			bodies++
		}
	}
	switch {
	case bodies > 1:
		return errors.New("only one of text, json and file can be the body")
	case r.RetryAfter != nil && r.RetryDate != nil:
		return errors.New("only one of retry_after and retry_date can be the header")
	case r.Encoding != "" && r.Encoding != "gzip" && r.Encoding != "deflate":
		return fmt.Errorf("encoding %q is neither gzip nor deflate", r.Encoding)
	case r.Range != "" && r.Range != "ignore":
		return fmt.Errorf(`range %q is not "ignore"`, r.Range)
	case r.Grow != nil && (r.Grow.From < 0 || r.Grow.By < 0):
		return errors.New("grow is below 0")
	case r.Drip != nil && (r.Drip.Bytes <= 0 || r.Drip.Every < 0):
		return errors.New("drip needs bytes above 0")
	}
	switch r.Fault {
	case "", Hang, Stall, Truncate, Short, Close, Garbage, Loop:
		return nil
	}
	return fmt.Errorf("fault %q is not known", r.Fault)
}

func (r *Rule) matches(request *http.Request) bool {
	if r.Method != "" && r.Method != request.Method {
		return false
	}
	if r.Path != "" {
		if ok, _ := path.Match(r.Path, request.URL.Path); !ok {
			return false
		}
	}
	query := request.URL.Query()
	for name, value := range r.Query {
		if !query.Has(name) || query.Get(name) != value {
			return false
		}
	}
	for name, value := range r.Header {
		if request.Header.Get(name) != value {
			return false
		}
	}
	return true
}

func (r *Rule) writeHeaders(out http.Header) {
	if r.RetryAfter != nil {
		out.Set("Retry-After", strconv.Itoa(int(time.Duration(*r.RetryAfter)/time.Second)))
	}
	if r.RetryDate != nil {
		out.Set("Retry-After", time.Now().Add(time.Duration(*r.RetryDate)).UTC().Format(http.TimeFormat))
	}
	for name, value := range r.Headers {
		if value != "" {
			out.Set(name, value)
		}
	}
}

// leavesOut tells that a header which would be there is not to be.
func (r *Rule) leavesOut(name string) bool {
	value, given := r.Headers[name]
	return given && value == ""
}
