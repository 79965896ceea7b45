package mqtt

import (
	"fmt"
	"time"
)

// Events is how a session tells what happens; log and metrics listen. A nil function is not called. The functions run on the
// session's goroutines and must be quick.
type Events struct {
	Connected    func(ConnectedInfo)
	Disconnected func(DisconnectedInfo)
	Subscribed   func(SubscribedInfo)
	Unsubscribed func(SubscribedInfo)
	// ConfigRefused tells that a config has no part in the session: its filters are none, overlap with another's, or the
	// broker does not take them. Only for a policy other than Fail.
	ConfigRefused func(MessageInfo)
	// Received counts messages as they arrive, redelivered ones again.
	Received func(messages int)
	// Acknowledged counts messages that the broker was told are safe.
	Acknowledged func(messages int)
	// Redelivery counts messages that the broker will send again, since the connection that they came on is gone: those of
	// a page that was committed all the same, and those that were waiting.
	Redelivery func(messages int)
	// MessageDropped tells of a message that no config subscribes to any more. It is acknowledged.
	MessageDropped func(MessageInfo)
	// MessageInvalid and MessageFailed tell of a message that on_invalid or on_error passes over or writes to a dead letter
	// topic.
	MessageInvalid func(MessageInfo)
	MessageFailed  func(MessageInfo)
}

// ConnectedInfo tells of a connection that stands.
type ConnectedInfo struct {
	Broker  string // without user and password
	Resumed bool   // the broker has kept the session: what is not acknowledged comes again
}

func (i ConnectedInfo) String() string {
	if i.Resumed {
		return i.Broker + ", session resumed"
	}
	return i.Broker + ", new session"
}

// DisconnectedInfo tells of a connection that is gone, or did not come about.
type DisconnectedInfo struct {
	Broker string
	Err    error         // nil when the session ends
	Retry  time.Duration // until the next attempt
}

func (i DisconnectedInfo) String() string {
	if i.Err == nil {
		return i.Broker
	}
	return fmt.Sprintf("%s: %v; next attempt in %s", i.Broker, i.Err, i.Retry)
}

// SubscribedInfo tells of filters that were subscribed to, or no longer are. The slice must not be changed.
type SubscribedInfo struct{ Filters []string }

// MessageInfo tells of one message.
type MessageInfo struct {
	Topic, Config string // config: its key, where there is one
	Err           error
	DeadLetter    bool // it goes to a dead letter topic
}

func call[T any](f func(T), info T) {
	if f != nil {
		f(info)
	}
}
