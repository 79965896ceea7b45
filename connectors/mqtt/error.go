package mqtt

import (
	"errors"
	"fmt"
)

// ErrTakenOver says that another client has connected under this session's client identifier. Two that go on would take it
// from each other for ever.
var ErrTakenOver = errors.New("another process has connected with the same client identifier; give each instance an instance.id of its own")

// The codes of errors.
const (
	CodeInvalid = "mqtt.invalid" // a payload is not what format and require say
	CodeOverlap = "mqtt.overlap" // two topic filters can match the same topic
	CodeFilter  = "mqtt.filter"  // a topic filter is none, or a config gives none
	CodeRefused = "mqtt.refused" // the broker refuses the connection or a subscription for good
	CodeQoS     = "mqtt.qos"     // the broker grants less than acknowledged delivery
	CodeFailed  = "mqtt.failed"  // relay, message or filter failed for a message
)

// Error is what ends a session, or what became of one message. It holds no payload and no secret.
type Error struct {
	Code   string
	Topic  string // MQTT topic, or filter; may be empty
	Config string // key of the config; may be empty
	Err    error
}

func (e *Error) Error() string {
	switch {
	case e.Topic != "" && e.Config != "":
		return fmt.Sprintf("mqtt topic %q, config %q: %v", e.Topic, e.Config, e.Err)
	case e.Topic != "":
		return fmt.Sprintf("mqtt topic %q: %v", e.Topic, e.Err)
	case e.Config != "":
		return fmt.Sprintf("mqtt config %q: %v", e.Config, e.Err)
	default:
		return "mqtt: " + e.Err.Error()
	}
}

func (e *Error) Unwrap() error { return e.Err }
