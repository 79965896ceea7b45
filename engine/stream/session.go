package stream

import (
	"context"
	"fmt"
	"time"
)

// Session is a source that is not asked but tells: a subscription that is held for as long as the stage runs in this process.
//
//  1. What has arrived is gathered by the session, within bounds, and handed over with Push.Commit, page after page.
//  2. Only when Commit has returned without an error does the session acknowledge what the page was made of, in the order
//     of arrival.
//  3. An error of Commit says that nothing may be acknowledged: the session ends with that error, and whatever it holds
//     comes again from where it came.
type Session interface {
	// Run holds the session until ctx is done, and then ends it in good order, within the time that Push.Grace leaves; it
	// returns nil then. Any other end is an error, for the policy of the stage or the end of the process.
	Run(ctx context.Context, push *Push) error
	// Status tells how the session stands. Any goroutine may ask, also before Run and after it.
	Status() SessionStatus
	Close()
}

// SessionStatus is how a session stands.
type SessionStatus struct {
	Connected bool
	// Subscribed is that nothing is missed from now on: the source knows all that the session is to have of it.
	Subscribed bool
	Error      string // why it is not connected, without secrets; empty if it is, or has not tried yet
	// Held and HeldBytes are what has arrived and is not acknowledged.
	Held      int
	HeldBytes int64
}

// Push is what the engine gives to a Session.
type Push struct {
	// Configs are all configs of the stage as they are now, by key, and a channel that is closed when they change.
	Configs func() (now []Config, changed <-chan struct{})
	// Lookup is what `configs.get` sees at this moment.
	Lookup func() Configs
	// Commit returns when the page is committed. It blocks for as long as Kafka is away; ctx ends the wait, and the page is
	// then in doubt. A *RefusedError says that one message can never be written; the page may then be given again without it.
	// The page's bytes may be used again once it has returned. It is called by one goroutine at a time.
	Commit func(ctx context.Context, page *Page) error
	// Gather is how long after the begin of the last Commit a session gathers before it hands over a page that is not full.
	Gather time.Duration
	// Grace is done when a session that is told to end must be gone.
	Grace context.Context
}

// RefusedError is a message of a page that Kafka will not take, however often it is sent: it is too large. Nothing of the page
// was committed.
type RefusedError struct {
	Message int // its place in Page.Messages
	Err     error
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("message %d of the page: %v", e.Message, e.Err)
}
func (e *RefusedError) Unwrap() error { return e.Err }
