package mqtt

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// Member is a member that a payload must have. It is never null.
type Member struct {
	Name string
	Kind Kind
}

// Kind is what a member must be.
type Kind uint8

// The kinds of members.
const (
	Any Kind = iota // but not null
	Text
	Number
	Integer // a number without fraction and exponent
	Bool
	Object
	Array
)

var kindNames = [...]string{"a value", "a string", "a number", "an integer", "a boolean", "an object", "an array"}

// filling is one page on its way. Messages of one config stay in the order of arrival.
type filling struct {
	*Session
	routes  *routes
	batch   []delivery
	refused map[int]error // by place in the batch: Kafka does not take what became of it
	letters []stream.Message
	tell    bool // events; the first attempt tells of all, a further one of
	newest  int  // the message that was refused last
}

// fill makes the page.
func (f *filling) fill(ctx context.Context, push *stream.Push) error {
	clear(f.page.Messages)
	f.page.Messages = f.page.Messages[:0]
	f.arena.Reset()
	clear(f.arrivals)
	f.arrivals = f.arrivals[:0]
	f.letters = f.letters[:0]

	byConfig := make([][]int, len(f.routes.configs))
	var order []int // of configs, by their first message
	for i := range f.batch {
		topic := f.batch[i].packet.Topic
		_, owner, ok := f.routes.tree.match(topic)
		if !ok {
			if f.tell {
				call(f.Session.config.Events.MessageDropped, MessageInfo{Topic: topic})
			}
			continue
		}
		if byConfig[owner] == nil {
			order = append(order, owner)
		}
		byConfig[owner] = append(byConfig[owner], i)
	}
	configs := push.Lookup()
	for _, owner := range order {
		if err := f.config(ctx, f.routes.configs[owner], configs, byConfig[owner]); err != nil {
			return err
		}
	}
	f.page.Messages = append(f.page.Messages, f.letters...)
	f.tell = false
	return nil
}

// without says that the page is to be filled again without the message that Kafka refuses, if on_error allows it. A dead
// letter that is refused, too, ends the session.
func (f *filling) without(refused *stream.RefusedError) error {
	place := f.page.Messages[refused.Message].From
	if _, again := f.refused[place]; again || f.Session.config.OnError.Kind == Fail {
		return &Error{Code: codeOf(refused, CodeFailed), Topic: f.batch[place].packet.Topic, Err: refused}
	}
	if f.refused == nil {
		f.refused = map[int]error{}
	}
	f.refused[place] = refused
	f.newest = place
	return nil
}

// codeOf is the code of an error, if it has one.
func codeOf(err error, otherwise string) string {
	var coded interface{ Code() string }
	if errors.As(err, &coded) {
		return coded.Code()
	}
	return otherwise
}

// config adds what becomes of the messages of one config; places are theirs in the batch.
func (f *filling) config(ctx context.Context, c stream.Config, configs stream.Configs, places []int) error {
	from := len(f.arrivals)
	kept := places[:0]
	for _, place := range places {
		d := &f.batch[place]
		if err := f.refused[place]; err != nil {
			if err := f.failed(c, place, err); err != nil {
				return err
			}
			continue
		}
		a, err := f.arrival(d)
		if err != nil {
			if err := f.rule(f.Session.config.OnInvalid, f.Session.config.Events.MessageInvalid, c, place, CodeInvalid, err); err != nil {
				return err
			}
			continue
		}
		if want := f.Session.config.Filter; want != nil {
			wanted, err := want(c, &a)
			if err != nil {
				if err := f.failed(c, place, err); err != nil {
					return err
				}
				continue
			}
			if !wanted {
				continue
			}
		}
		f.arrivals = append(f.arrivals, a)
		kept = append(kept, place)
	}
	arrivals := f.arrivals[from:]
	if len(arrivals) == 0 {
		return nil
	}
	page := &f.page
	first := len(page.Messages)
	if relay := f.Session.config.Relay; relay != nil {
		err := relay.Run(ctx, &stream.Relaying{
			Config:   c,
			Configs:  configs,
			Arrivals: arrivals,
			Fail:     func(i int, err error) error { return f.failed(c, kept[i], err) },
			Arena:    &f.arena,
		}, page)
		if err != nil {
			return err
		}
		for i := first; i < len(page.Messages); i++ {
			page.Messages[i].From = kept[page.Messages[i].From]
		}
		return nil
	}
	for i := range arrivals {
		m, err := f.Session.config.Message(c, &arrivals[i], &f.arena)
		if err != nil {
			if err := f.failed(c, kept[i], err); err != nil {
				return err
			}
			continue
		}
		m.From = kept[i]
		page.Messages = append(page.Messages, m)
	}
	return nil
}

func (f *filling) failed(c stream.Config, place int, err error) error {
	return f.rule(f.Session.config.OnError, f.Session.config.Events.MessageFailed, c, place, CodeFailed, err)
}

// rule applies a policy to a message. An error of it ends the session.
func (f *filling) rule(p Policy, event func(MessageInfo), c stream.Config, place int, code string, err error) error {
	d := &f.batch[place]
	wrapped := &Error{Code: codeOf(err, code), Topic: d.packet.Topic, Config: c.Key, Err: err}
	if p.Kind == Fail {
		return wrapped
	}
	if f.tell || place == f.newest {
		call(event, MessageInfo{Topic: d.packet.Topic, Config: c.Key, Err: err, DeadLetter: p.Kind == DeadLetter})
	}
	if p.Kind == DeadLetter {
		m := letter(p.Topic, f.Session.config.Stage, d, wrapped)
		m.From = place
		f.letters = append(f.letters, m)
	}
	return nil
}

// letter is the dead letter of a message: the payload as it came, the MQTT topic as the key, the user properties as headers,
// and headers that say what was wrong.
func letter(topic *stream.Topic, stage string, d *delivery, err *Error) stream.Message {
	headers := userProperties(d)
	add := func(name, value string) {
		headers = append(headers, stream.Header{Key: "flechtwerk.error." + name, Value: []byte(value)})
	}
	add("code", err.Code)
	add("message", err.Err.Error())
	add("stage", stage)
	add("topic", d.packet.Topic)
	add("timestamp", strconv.FormatInt(d.at, 10))
	var at interface{ Line() int }
	if errors.As(err.Err, &at) {
		add("line", strconv.Itoa(at.Line()))
	}
	return stream.Message{Topic: topic, Partition: stream.AnyPartition, Key: []byte(d.packet.Topic), Value: d.packet.Payload, Headers: headers, Timestamp: d.at}
}

func userProperties(d *delivery) []stream.Header {
	user := d.packet.Properties.User
	if len(user) == 0 {
		return nil
	}
	headers := make([]stream.Header, len(user))
	for i, u := range user {
		headers[i] = stream.Header{Key: u.Key, Value: []byte(u.Value)}
	}
	return headers
}

var emptyObject = []byte("{}")

// arrival decodes a message. The error says what is wrong with the payload, never what is in it.
func (s *Session) arrival(d *delivery) (stream.Arrival, error) {
	p := d.packet
	a := stream.Arrival{Topic: p.Topic, Timestamp: d.at, Key: rawjson.Bytes(p.Topic), Value: p.Payload, Format: s.config.Format, Headers: userProperties(d)}
	switch s.config.Format {
	case stream.JSON:
		if len(a.Value) == 0 {
			a.Value = emptyObject
		}
		if cap(s.members)-len(s.members) < 64 {
			s.members = make([]rawjson.Member, 0, 4096)
		}
		at := len(s.members)
		kind, members, err := rawjson.Check(a.Value, s.members)
		if err != nil {
			return a, fmt.Errorf("the payload is not JSON: %w", err)
		}
		a.Kind, a.Members = kind, members[at:len(members):len(members)]
		if cap(members) == cap(s.members) {
			s.members = members
		}
		if err := require(&a, s.config.Require); err != nil {
			return a, err
		}
	case stream.String:
		if !utf8.Valid(a.Value) {
			return a, errors.New("the payload is not a string: invalid UTF-8")
		}
	case stream.Bytes:
	}
	if a.Value == nil {
		a.Value = []byte{}
	}
	a.Delivery = &stream.Delivery{
		Levels:      strings.Split(p.Topic, "/"),
		QoS:         p.QoS,
		Retained:    p.Retain,
		Properties:  a.Headers,
		ContentType: p.Properties.ContentType,
	}
	return a, nil
}

// require checks the members of a payload.
func require(a *stream.Arrival, members []Member) error {
	if len(members) == 0 {
		return nil
	}
	if a.Kind != rawjson.Object {
		return fmt.Errorf("the payload has no member %q: it is no object", members[0].Name)
	}
	for _, m := range members {
		raw := rawjson.Find(a.Value, a.Members, m.Name)
		switch {
		case raw == nil:
			return fmt.Errorf("the payload has no member %q", m.Name)
		case !m.Kind.is(raw):
			return fmt.Errorf("the payload's member %q is not %s", m.Name, kindNames[m.Kind])
		}
	}
	return nil
}

// is tells whether a JSON value is of the kind.
func (k Kind) is(raw []byte) bool {
	kind := rawjson.KindOf(raw[0])
	switch k {
	case Text:
		return kind == rawjson.String
	case Number:
		return kind == rawjson.Number
	case Integer:
		return kind == rawjson.Number && rawjson.IsInteger(raw)
	case Bool:
		return kind == rawjson.True || kind == rawjson.False
	case Object:
		return kind == rawjson.Object
	case Array:
		return kind == rawjson.Array
	default:
		return kind != rawjson.Null
	}
}
