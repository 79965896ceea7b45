package mqtt

import (
	"errors"
	"fmt"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"
)

// The reason codes of MQTT 5 (section 2.4) that mean something to a session.
const (
	reasonUnsupportedVersion = 0x84
	reasonClientID           = 0x85
	reasonBadUser            = 0x86
	reasonNotAuthorized      = 0x87
	reasonBanned             = 0x8A
	reasonBadMethod          = 0x8C
	reasonBadFilter          = 0x8F
	reasonTakenOver          = 0x8E
	reasonNoShared           = 0x9E
	reasonNoWildcards        = 0xA2
)

// refusedConnection is what a CONNACK says that is none. What does not get better by itself is an *Error.
func refusedConnection(answer *paho.Connack) error {
	text := connackReason(answer.ReasonCode)
	if answer.Properties != nil && answer.Properties.ReasonString != "" {
		text += " (" + answer.Properties.ReasonString + ")"
	}
	err := fmt.Errorf("the broker refuses the connection: %s", text)
	switch answer.ReasonCode {
	case reasonUnsupportedVersion, reasonClientID, reasonBadUser, reasonNotAuthorized, reasonBanned, reasonBadMethod:
		return &Error{Code: CodeRefused, Err: err}
	}
	return err
}

func connackReason(code byte) string {
	switch code {
	case reasonUnsupportedVersion:
		return "it does not speak MQTT 5"
	case reasonBadUser:
		return "bad user name or password"
	case reasonNotAuthorized:
		return "not authorized"
	case reasonClientID:
		return "client identifier not valid"
	}
	return (&packets.Connack{ReasonCode: code}).Reason()
}

// granted tells what is wrong with what the broker answers to a subscription, if anything.
func granted(reason byte, asked QoS) error {
	if reason < 0x80 {
		if reason < asked.level() {
			return &Error{Code: CodeQoS, Err: fmt.Errorf("the broker grants QoS %d where %d is asked for, so messages could be lost; allow it, or say so with qos", reason, asked.level())}
		}
		return nil
	}
	var text string
	switch reason {
	case reasonNotAuthorized:
		text = "not authorized"
	case reasonBadFilter:
		text = "topic filter invalid"
	case reasonNoShared:
		text = "shared subscriptions are not supported; shared: false does without"
	case reasonNoWildcards:
		text = "wildcards are not supported"
	default:
		return fmt.Errorf("the broker refuses the subscription: %s", (&packets.Suback{Reasons: []byte{reason}}).Reason(0))
	}
	return &Error{Code: CodeRefused, Err: errors.New("the broker refuses the subscription: " + text)}
}

// endedConnection is what a DISCONNECT of the broker says.
func endedConnection(d *paho.Disconnect, clientID string) error {
	if d.ReasonCode == reasonTakenOver {
		return &Error{Code: CodeRefused, Err: fmt.Errorf("client identifier %q: %w", clientID, ErrTakenOver)}
	}
	text := (&packets.Disconnect{ReasonCode: d.ReasonCode}).Reason()
	if d.Properties != nil && d.Properties.ReasonString != "" {
		text += " (" + d.Properties.ReasonString + ")"
	}
	return errors.New("the broker ended the connection: " + text)
}
