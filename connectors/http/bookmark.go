package http

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
)

// bookmarkName is the member of a state that is the poller's own. Scripts and expressions do not see it.
const bookmarkName = "$http"

// bookmark is what a poller keeps in the state beside the user's cursor: how far it is in what it reads, and which version it
// has read already. It is part of every commit, so that it is always true of what is in Kafka.
type bookmark struct {
	// Listing is a listing, or a body, that is under way; nil between two.
	Listing *listing `json:"listing,omitempty"`
	// Version is that of the last answer that was read to its end.
	Version *version `json:"version,omitempty"`
	// Known are hashes of the items committed last, where the newest come first. They outlive a listing of several pages by
	// one: what came in at its top may have been pushed down onto one of its pages.
	Known []byte `json:"known,omitempty"`
	// File is how far a tailed file was read.
	File *file `json:"file,omitempty"`
}

// listing is how far a poll is. Everything that its requests are made of stays what it was when it began.
type listing struct {
	Request string `json:"request"` // fingerprint of the request that it began with
	Now     int64  `json:"now"`     // when it began: what now is in its requests, ms since 1970
	// From is the user's state when it began, if it is another now; null if there was none.
	From json.RawMessage `json:"from,omitempty"`
	// Then is what the user's state becomes when it has ended, for a listing that has the newest first.
	Then json.RawMessage `json:"then,omitempty"`
	// Pages is how many are committed, and Next where the one after them is: a URL, a cursor or a number. Nil is the first.
	Pages int             `json:"pages,omitempty"`
	Next  json.RawMessage `json:"next,omitempty"`
	// Items is how many items of that page are committed, and Hash is of all of them.
	Items int64  `json:"items,omitempty"`
	Hash  string `json:"hash,omitempty"`
}

// version is what an answer says of its version, and which request it answered.
type version struct {
	Request  string `json:"request"`
	ETag     string `json:"etag,omitempty"`
	Modified string `json:"modified,omitempty"`
}

// file is how far a file was read.
type file struct {
	URL    string `json:"url"` // fingerprint
	Offset int64  `json:"offset"`
	// Before is how many bytes before Offset Hash is of.
	Before int64  `json:"before,omitempty"`
	Hash   string `json:"hash,omitempty"`
	ETag   string `json:"etag,omitempty"`
}

func (b *bookmark) empty() bool {
	return b.Listing == nil && b.Version == nil && b.File == nil && b.Known == nil
}

// splitState takes the bookmark out of a state. user is nil where nothing else is there.
func splitState(state []byte) (user []byte, mark bookmark, err error) {
	if len(state) == 0 {
		return nil, bookmark{}, nil
	}
	kind, members, err := rawjson.Check(state, nil)
	if err != nil || kind != rawjson.Object {
		return nil, bookmark{}, newPollError(CodeState, "the state is not a JSON object", nil)
	}
	user = append(user, '{')
	for i := range members {
		m := &members[i]
		if m.Is(state, bookmarkName) {
			if err := json.Unmarshal(state[m.Start:m.End], &mark); err != nil {
				return nil, bookmark{}, newPollError(CodeState, fmt.Sprintf("the member %s of the state is not what an extractor has written there; reset the stage", bookmarkName), err)
			}
			continue
		}
		if len(user) > 1 {
			user = append(user, ',')
		}
		user = append(user, '"')
		user = append(user, state[m.NameStart:m.NameEnd]...)
		user = append(user, '"', ':')
		user = append(user, state[m.Start:m.End]...)
	}
	if len(user) == 1 {
		return nil, mark, nil
	}
	return append(user, '}'), mark, nil
}

// joinState is a state of both parts; nil if there is none of either.
func joinState(user []byte, mark *bookmark) ([]byte, error) {
	if isEmptyState(user) {
		user = nil
	}
	if mark.empty() {
		return user, nil
	}
	own, err := json.Marshal(mark)
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	var out []byte
	if user == nil {
		out = append(out, '{')
	} else {
		out = append(bytes.TrimSuffix(append(out, user...), []byte("}")), ',')
	}
	out = append(out, `"`+bookmarkName+`":`...)
	out = append(out, own...)
	return append(out, '}'), nil
}

func isEmptyState(user []byte) bool {
	return len(user) == 0 || string(user) == "{}" || string(user) == "null"
}

// checkUserState refuses a state that uses the poller's own name.
func checkUserState(user []byte) error {
	if isEmptyState(user) {
		return nil
	}
	if rawjson.Find(user, rawjson.Members(user, nil), bookmarkName) != nil {
		return newPollError(CodeState, "a state has a member "+bookmarkName+", which is the extractor's own; choose another name", nil)
	}
	return nil
}
