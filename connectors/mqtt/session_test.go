package mqtt_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"

	"github.com/flechtwerk/flechtwerk/connectors/connectortest/mqtttest"
	"github.com/flechtwerk/flechtwerk/connectors/mqtt"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

func TestM1SessionOutlivesTheConnection(t *testing.T) {
	onBrokers(t, func(t *testing.T, broker string) {
		b := newBench(t, broker)
		stop := b.start()
		b.subscribed(1)
		for _, n := range numbers(0, 100) {
			b.publish.Publish(t, "tanks/a/level", n)
		}
		b.wait(100)
		b.mustStop(stop)
		connect := b.tap.Packets()[0].Content.(*packets.Connect)
		if connect.ProtocolVersion != 5 || connect.CleanStart || *connect.Properties.SessionExpiryInterval != 24*60*60 ||
			*connect.Properties.ReceiveMaximum != 1000 || connect.ClientID != b.config.ClientID || connect.KeepAlive != 30 {
			t.Errorf("CONNECT is %v", connect)
		}
		subscribe := b.tap.Wait(t, 1, "SUBSCRIBE", mqtttest.Is(packets.SUBSCRIBE, true))[0].Content.(*packets.Subscribe)
		if s := subscribe.Subscriptions[0]; s.Topic != "tanks/+/level" || s.QoS != 1 {
			t.Errorf("SUBSCRIBE is %v", s)
		}
		b.order(1)
		b.publish.Publish(t, "tanks/a/level", "while away")
		stop = b.start()
		if got := b.wait(101); got[100] != "while away" || len(got) != 101 {
			t.Errorf("%v", got[100:])
		}
		b.mustStop(stop)
		connack := b.tap.Wait(t, 2, "CONNACK", mqtttest.Is(packets.CONNACK, false))[1].Content.(*packets.Connack)
		if !connack.SessionPresent {
			t.Error("the broker has not kept the session")
		}
	})
}

func TestM2SharedSubscription(t *testing.T) {
	onBrokers(t, func(t *testing.T, broker string) {
		b := newBench(t, broker)
		b.config.Group = "monitor-bridge"
		one, two := b.config, b.config
		one.ClientID += "-1"
		two.ClientID += "-2"
		stop1, _ := b.startAs(one)
		stop2, _ := b.startAs(two)
		b.subscribed(2)
		for _, p := range b.tap.Wait(t, 2, "SUBSCRIBE", mqtttest.Is(packets.SUBSCRIBE, true)) {
			if topic := p.Content.(*packets.Subscribe).Subscriptions[0].Topic; topic != "$share/monitor-bridge/tanks/+/level" {
				t.Errorf("subscribed to %s", topic)
			}
		}
		for _, n := range numbers(0, 200) {
			b.publish.Publish(t, "tanks/a/level", n)
		}
		got := b.wait(200)
		b.mustStop(stop1)
		b.mustStop(stop2)
		slices.Sort(got)
		if want := numbers(0, 200); !slices.Equal(slices.Compact(got), slices.Sorted(slices.Values(want))) {
			t.Errorf("not each message once: %d", len(got))
		}
		by := map[int]int{}
		for _, p := range b.deliveries(200) {
			by[p.Conn]++
		}
		if len(by) != 2 {
			t.Errorf("messages went to connections %v", by)
		}
	})
}

func TestM3AcknowledgesAfterTheCommit(t *testing.T) {
	onBrokers(t, func(t *testing.T, broker string) {
		b := newBench(t, broker)
		entered, release := b.block()
		stop := b.start()
		b.subscribed(1)
		for _, n := range numbers(0, 20) {
			b.publish.Publish(t, "tanks/a/level", n)
		}
		b.deliveries(20)
		await(t, entered, "a commit")
		if n := b.count(mqtttest.Is(packets.PUBACK, true)); n != 0 {
			t.Errorf("%d acknowledgements before a commit", n)
		}
		release()
		b.acks(20)
		if got := b.all(); !slices.Equal(got, numbers(0, 20)) {
			t.Errorf("committed %v", got)
		}
		b.order(1)
		b.mustStop(stop)
	})
}

func TestM3CommitThatFailsAcknowledgesNothing(t *testing.T) {
	onBrokers(t, func(t *testing.T, broker string) {
		b := newBench(t, broker)
		fenced := errors.New("fenced")
		b.setGate(func(context.Context, *stream.Page) error { return fenced })
		_, ended := b.startAs(b.config)
		b.subscribed(1)
		for _, n := range numbers(0, 3) {
			b.publish.Publish(t, "tanks/a/level", n)
		}
		if err := b.mustEnd(ended); !errors.Is(err, fenced) {
			t.Error(err)
		}
		if n := b.count(mqtttest.Is(packets.PUBACK, true)); n != 0 {
			t.Errorf("%d acknowledgements", n)
		}
		b.setGate(nil)
		stop := b.start()
		if got := b.wait(3); !slices.Equal(got, numbers(0, 3)) {
			t.Errorf("after it %v", got)
		}
		b.mustStop(stop)
	})
}

func TestM4FilteredOutIsAcknowledged(t *testing.T) {
	onBrokers(t, func(t *testing.T, broker string) {
		b := newBench(t, broker)
		b.config.Filter = func(_ stream.Config, a *stream.Arrival) (bool, error) { return string(a.Value) == "keep", nil }
		stop := b.start()
		b.subscribed(1)
		for _, value := range []string{"drop", "keep", "drop"} {
			b.publish.Publish(t, "tanks/a/level", value)
		}
		b.acks(3)
		b.order(1)
		if got := b.all(); !slices.Equal(got, []string{"keep"}) {
			t.Errorf("committed %v", got)
		}
		b.mustStop(stop)
	})
}

func TestM5ReceiveMaximumBoundsWhatIsUnacknowledged(t *testing.T) {
	// The embedded broker knows no receive maximum, and mosquitto keeps to it only until the first acknowledgements.
	b := newBench(t, mqtttest.NewMosquitto(t).Addr)
	b.config.ReceiveMaximum, b.config.InboxMessages, b.config.KeepAlive = 10, 10, time.Second
	entered, release := b.block()
	stop := b.start()
	b.subscribed(1)
	for _, n := range numbers(0, 200) {
		b.publish.Publish(t, "tanks/a/level", n)
	}
	await(t, entered, "a commit")
	// The broker has all of them. What it sends before its next answers to pings is all that it sends.
	b.tap.Wait(t, 2, "PINGREQ", mqtttest.Is(packets.PINGREQ, true))
	if n := len(b.deliveries(10)); n != 10 {
		t.Errorf("%d messages without an acknowledgement", n)
	}
	release()
	if got := b.wait(200); !slices.Equal(got, numbers(0, 200)) {
		t.Errorf("committed %v", got)
	}
	b.acks(200)
	b.mustStop(stop)
	b.order(1)
}

func TestM5InboxIsBounded(t *testing.T) {
	onBrokers(t, func(t *testing.T, broker string) {
		b := newBench(t, broker)
		b.config.InboxMessages, b.config.ReceiveMaximum, b.config.QoS = 10, 10, mqtt.AtMostOnce
		entered, release := b.block()

		s, stop := b.startSession(b.config)
		b.subscribed(1)
		payload := strings.Repeat(" ", 4<<10) // all of them are more than the buffers of connections hold
		for _, n := range numbers(0, 2000) {
			b.publish.Send(t, &paho.Publish{Topic: "tanks/a/level", Payload: []byte(n + payload)})
		}
		await(t, entered, "a commit")
		b.publish.Publish(t, "other", "the broker has all")
		status := s.Status()
		if status.Held > 20 || !status.Connected {
			t.Errorf("%+v", status)
		}
		release()
		got := b.wait(10)
		if strings.TrimSpace(got[0]) != "0" || strings.TrimSpace(got[9]) != "9" {
			t.Errorf("committed %.4q", got)
		}
		b.mustStop(stop)
	})
}

func TestM5PingsGoOnWhileKafkaIsAway(t *testing.T) {
	onBrokers(t, func(t *testing.T, broker string) {
		b := newBench(t, broker)
		b.config.KeepAlive = time.Second
		// The inbox is soon full, so that not even answers to pings are read.
		b.config.InboxMessages, b.config.ReceiveMaximum, b.config.InboxBytes = 20, 20, 8<<10
		entered, release := b.block()
		stop := b.start()
		b.subscribed(1)
		for _, n := range numbers(0, 20) {
			b.publish.Publish(t, "tanks/a/level", n+strings.Repeat(" ", 2000))
		}
		await(t, entered, "a commit")
		b.tap.Wait(t, 8, "PINGREQ", mqtttest.Is(packets.PINGREQ, true)) // four times the keep-alive
		if n := b.count(mqtttest.Is(packets.PUBACK, true)); n != 0 {
			t.Errorf("%d acknowledgements", n)
		}
		release()
		b.wait(20)
		b.acks(20)
		b.mustStop(stop)
		if n := b.count(mqtttest.Is(packets.CONNECT, true)); n != 1 {
			t.Errorf("connected %d times", n)
		}
	})
}

func TestM6ReconnectDropsOldAcknowledgements(t *testing.T) {
	onBrokers(t, func(t *testing.T, broker string) {
		b := newBench(t, broker)
		connected := make(chan mqtt.ConnectedInfo, 10)
		again := make(chan int, 10)
		b.config.Events.Connected = func(i mqtt.ConnectedInfo) { connected <- i }
		b.config.Events.Redelivery = func(n int) { again <- n }
		entered, release := b.block()
		stop := b.start()
		b.subscribed(1)
		if await(t, connected, "a connection").Resumed {
			t.Error("a session of whom?")
		}
		for _, n := range numbers(0, 5) {
			b.publish.Publish(t, "tanks/a/level", n)
		}
		b.deliveries(5)
		await(t, entered, "a commit")
		b.tap.Cut()
		if !await(t, connected, "a second connection").Resumed {
			t.Error("the session was not resumed")
		}
		b.deliveries(10)
		release()
		if n := await(t, again, "a dropped acknowledgement"); n < 1 {
			t.Error(n)
		}
		b.acks(5)
		b.publish.Publish(t, "tanks/a/level", "end")
		b.acks(6)
		b.mustStop(stop)
		for _, p := range b.tap.Packets() {
			if p.Conn == 1 && p.Type == packets.PUBACK {
				t.Errorf("acknowledged on the first connection: %v", p)
			}
		}
		b.order(2)
		got := b.all()
		first := map[string]bool{}
		var order []string
		for _, v := range got {
			if !first[v] {
				first[v] = true
				order = append(order, v)
			}
		}
		if !slices.Equal(order, append(numbers(0, 5), "end")) || len(got) > 11 {
			t.Errorf("committed %v", got)
		}
	})
}

func TestM6WaitsForABrokerThatIsAway(t *testing.T) {
	b := newBench(t, mqtttest.Embedded(t))
	disconnected := make(chan mqtt.DisconnectedInfo, 1000)
	b.config.Events.Disconnected = func(i mqtt.DisconnectedInfo) { disconnected <- i }
	b.tap.Refuse(true)
	stop := b.start()
	longest := time.Duration(0)
	for range 8 {
		i := await(t, disconnected, "a failed attempt")
		if i.Err == nil || i.Retry > b.config.Backoff.Max {
			t.Error(i)
		}
		longest = max(longest, i.Retry)
	}
	if longest < b.config.Backoff.Max/2 {
		t.Errorf("the wait grows to %s", longest)
	}
	b.tap.Refuse(false)
	b.subscribed(1)
	b.publish.Publish(t, "tanks/a/level", "1")
	b.wait(1)
	b.mustStop(stop)
}

// byConfig makes each config's key its topic filter.
func byConfig(c stream.Config) ([]string, error) { return []string{c.Key + "/#"}, nil }

func config(key string) stream.Config { return stream.Config{Key: key, Value: []byte("{}")} }

func TestM7ConfigsComeAndGo(t *testing.T) {
	onBrokers(t, func(t *testing.T, broker string) {
		b := newBench(t, broker)
		b.config.Filters = byConfig
		dropped := make(chan mqtt.MessageInfo, 100)
		b.config.Events.MessageDropped = func(i mqtt.MessageInfo) { dropped <- i }
		b.setConfigs(config("a"), config("b"))
		entered, release := b.block()
		stop := b.start()
		b.subscribed(1)
		b.publish.Publish(t, "a/1", "a1")
		await(t, entered, "a commit")
		b.publish.Publish(t, "b/1", "b1") // waits behind the commit
		b.publish.Publish(t, "a/1", "a2")
		b.deliveries(3)
		b.setConfigs(config("a"), config("c"))
		unsubscribe := b.tap.Wait(t, 1, "UNSUBSCRIBE", mqtttest.Is(packets.UNSUBSCRIBE, true))[0].Content.(*packets.Unsubscribe)
		if !slices.Equal(unsubscribe.Topics, []string{"b/#"}) {
			t.Errorf("unsubscribed %v", unsubscribe.Topics)
		}
		b.subscribed(2)
		subscribe := b.tap.Wait(t, 2, "SUBSCRIBE", mqtttest.Is(packets.SUBSCRIBE, true))[1].Content.(*packets.Subscribe)
		if len(subscribe.Subscriptions) != 1 || subscribe.Subscriptions[0].Topic != "c/#" {
			t.Errorf("subscribed %v", subscribe.Subscriptions)
		}
		b.publish.Publish(t, "c/1", "c1")
		release()
		if got := b.wait(3); !slices.Equal(got, []string{"a1", "a2", "c1"}) {
			t.Errorf("committed %v", got)
		}
		b.acks(4)
		b.order(1)
		if i := await(t, dropped, "a dropped message"); i.Topic != "b/1" {
			t.Error(i)
		}
		b.mustStop(stop)
	})
}

func TestM7WithoutConfigsTheBrokerHoldsWhatItHas(t *testing.T) {
	onBrokers(t, func(t *testing.T, broker string) {
		b := newBench(t, broker)
		b.config.Filters = byConfig
		b.setConfigs(config("a"))
		stop := b.start()
		b.subscribed(1)
		b.mustStop(stop)
		b.publish.Publish(t, "a/1", "held")
		b.setConfigs()
		stop = b.start()
		b.setConfigs(config("b"), config("a"))
		if got := b.wait(1); got[0] != "held" {
			t.Errorf("committed %v", got)
		}
		b.acks(1)
		b.mustStop(stop)
	})
}

func TestM7ArrivesBeforeTheSubscription(t *testing.T) {
	onBrokers(t, func(t *testing.T, broker string) {
		b := newBench(t, broker)
		stop := b.start()
		b.subscribed(1)
		b.mustStop(stop)
		b.publish.Publish(t, "tanks/a/level", "held")
		b.tap.Hold(mqtttest.Is(packets.SUBSCRIBE, true))
		stop = b.start()
		if got := b.wait(1); got[0] != "held" {
			t.Errorf("committed %v", got)
		}
		b.mustStop(stop)
	})
}

func TestM8StopLeavesTheSessionToTheBroker(t *testing.T) {
	onBrokers(t, func(t *testing.T, broker string) {
		b := newBench(t, broker)
		entered, release := b.block()
		stop := b.start()
		b.subscribed(1)
		b.publish.Publish(t, "tanks/a/level", "under way")
		await(t, entered, "a commit")
		ended := make(chan error, 1)
		go func() { ended <- stop() }()
		release() // the page that is under way is finished
		if err := await(t, ended, "the end"); err != nil {
			t.Error(err)
		}
		b.acks(1)
		if b.count(mqtttest.Is(packets.UNSUBSCRIBE, true)) != 0 {
			t.Error("it unsubscribed")
		}
		bye := b.tap.Wait(t, 1, "DISCONNECT", mqtttest.Is(packets.DISCONNECT, true))[0].Content.(*packets.Disconnect)
		if bye.ReasonCode != 0 || bye.Properties.SessionExpiryInterval != nil {
			t.Errorf("DISCONNECT is %v", bye)
		}
		sent := slices.DeleteFunc(slices.Clone(b.tap.Packets()), func(p mqtttest.Packet) bool { return !p.Client })
		if last := sent[len(sent)-1]; last.Type != packets.DISCONNECT {
			t.Errorf("after the good-bye: %v", last)
		}
	})
}

func TestM8LeavesForGood(t *testing.T) {
	onBrokers(t, func(t *testing.T, broker string) {
		b := newBench(t, broker)
		b.config.OnStop, b.config.Group = mqtt.Leave, "monitor-bridge"
		b.config.ReceiveMaximum, b.config.InboxMessages = 10, 100
		one, two := b.config, b.config
		one.ClientID += "-1"
		two.ClientID += "-2"
		two.OnStop = mqtt.Stay
		stop1, _ := b.startAs(one)
		b.subscribed(1)
		stop2, _ := b.startAs(two)
		b.subscribed(2)
		entered, release := b.block()
		for _, n := range numbers(0, 200) {
			b.publish.Publish(t, "tanks/a/level", n)
		}
		await(t, entered, "a commit")
		await(t, entered, "a commit of the other")
		ended := make(chan error, 1)
		go func() { ended <- stop1() }()
		release()
		if err := await(t, ended, "the end"); err != nil {
			t.Error(err)
		}
		for _, n := range numbers(200, 300) {
			b.publish.Publish(t, "tanks/a/level", n)
		}
		got := b.wait(300)
		b.mustStop(stop2)
		slices.Sort(got)
		if len(got) != 300 || len(slices.Compact(got)) != 300 {
			t.Errorf("%d messages, not each once", len(got))
		}
		bye := b.tap.Wait(t, 1, "DISCONNECT", func(p mqtttest.Packet) bool { return p.Conn == 1 && p.Type == packets.DISCONNECT })[0].Content.(*packets.Disconnect)
		if e := bye.Properties.SessionExpiryInterval; e == nil || *e != 0 {
			t.Errorf("DISCONNECT is %v", bye)
		}
		stop1, _ = b.startAs(one)
		connack := b.tap.Wait(t, 3, "CONNACK", mqtttest.Is(packets.CONNACK, false))[2].Content.(*packets.Connack)
		if connack.SessionPresent {
			t.Error("the broker still has the session")
		}
		b.mustStop(stop1)
	})
}

func TestTakenOver(t *testing.T) {
	// mosquitto 2.0.11 closes the connection without a word.
	b := newBench(t, mqtttest.Embedded(t))
	_, ended := b.startAs(b.config)
	b.subscribed(1)
	stop := b.start()
	b.subscribed(2)
	err := b.mustEnd(ended)
	var coded *mqtt.Error
	if !errors.Is(err, mqtt.ErrTakenOver) || !errors.As(err, &coded) || coded.Code != mqtt.CodeRefused || !strings.Contains(err.Error(), b.config.ClientID) {
		t.Error(err)
	}
	b.publish.Publish(t, "tanks/a/level", "1")
	b.wait(1)
	b.mustStop(stop)
}

func TestUserProperties(t *testing.T) {
	onBrokers(t, func(t *testing.T, broker string) {
		b := newBench(t, broker)
		arrivals := make(chan stream.Arrival, 1)
		message := b.config.Message
		b.config.Message = func(c stream.Config, a *stream.Arrival, arena *stream.Arena) (stream.Message, error) {
			arrivals <- *a
			return message(c, a, arena)
		}
		stop := b.start()
		b.subscribed(1)
		b.publish.Send(t, &paho.Publish{Topic: "tanks/a/level", QoS: 1, Payload: []byte("1"), Properties: &paho.PublishProperties{
			ContentType: "text/plain", User: paho.UserProperties{{Key: "x", Value: "1"}, {Key: "x", Value: "2"}},
		}})
		a := await(t, arrivals, "a message")
		d := a.Delivery
		if a.Topic != "tanks/a/level" || string(a.Key) != a.Topic || !slices.Equal(d.Levels, []string{"tanks", "a", "level"}) || d.QoS != 1 || d.Retained || d.ContentType != "text/plain" {
			t.Errorf("%+v %+v", a, d)
		}
		if got := fmt.Sprintf("%s", d.Properties); got != "[{x 1} {x 2}]" || len(a.Headers) != 2 {
			t.Errorf("properties %s", got)
		}
		b.mustStop(stop)
	})
}

func TestQoS(t *testing.T) {
	onBrokers(t, func(t *testing.T, broker string) {
		b := newBench(t, broker)
		qos := make(chan byte, 10)
		message := b.config.Message
		b.config.Message = func(c stream.Config, a *stream.Arrival, arena *stream.Arena) (stream.Message, error) {
			qos <- a.Delivery.QoS
			return message(c, a, arena)
		}
		for level, kind := range []mqtt.QoS{mqtt.AtMostOnce, mqtt.AtLeastOnce, mqtt.ExactlyOnce} {
			if mqtt.QoSOf(level) != kind {
				t.Error(level)
			}
			c := b.config
			c.QoS, c.ClientID = kind, c.ClientID+strconv.Itoa(level)
			stop, _ := b.startAs(c)
			b.subscribed(level + 1)
			b.publish.Send(t, &paho.Publish{Topic: "tanks/a/level", QoS: 2, Payload: []byte("1")})
			if got := await(t, qos, "a message"); got != byte(level) {
				t.Errorf("QoS %d for %d", got, level)
			}
			if level == 2 {
				b.tap.Wait(t, 1, "PUBREC", mqtttest.Is(packets.PUBREC, true))
				b.tap.Wait(t, 1, "PUBREL", mqtttest.Is(packets.PUBREL, false))
				b.tap.Wait(t, 1, "PUBCOMP", mqtttest.Is(packets.PUBCOMP, true))
			}
			b.mustStop(stop)
			if n := b.count(mqtttest.Is(packets.PUBACK, true)); n != min(level, 1) {
				t.Errorf("%d acknowledgements", n)
			}
		}
	})
}

func TestQoS2IsNotHandedOverTwice(t *testing.T) {
	onBrokers(t, func(t *testing.T, broker string) {
		b := newBench(t, broker)
		b.config.QoS = mqtt.ExactlyOnce
		connected := make(chan mqtt.ConnectedInfo, 10)
		b.config.Events.Connected = func(i mqtt.ConnectedInfo) { connected <- i }
		b.tap.Hold(func(p mqtttest.Packet) bool { return p.Conn == 1 && p.Type == packets.PUBREC }) // the broker never hears of it
		stop := b.start()
		b.subscribed(1)
		await(t, connected, "a connection")
		b.publish.Send(t, &paho.Publish{Topic: "tanks/a/level", QoS: 2, Payload: []byte("1")})
		b.wait(1)
		b.tap.Held(t)
		b.tap.Cut()
		if !await(t, connected, "a second connection").Resumed {
			t.Error("the session was not resumed")
		}
		again := b.tap.Wait(t, 2, "PUBLISH", mqtttest.Is(packets.PUBLISH, false))[1].Content.(*packets.Publish)
		if !again.Duplicate {
			t.Error("it is not marked as sent again")
		}
		b.tap.Wait(t, 1, "PUBCOMP", mqtttest.Is(packets.PUBCOMP, true))
		b.publish.Publish(t, "tanks/a/level", "2")
		if got := b.wait(2); !slices.Equal(got, []string{"1", "2"}) {
			t.Errorf("committed %v", got)
		}
		b.mustStop(stop)
	})
}

func TestRetained(t *testing.T) {
	onBrokers(t, func(t *testing.T, broker string) {
		b := newBench(t, broker)
		retained := make(chan bool, 10)
		message := b.config.Message
		b.config.Message = func(c stream.Config, a *stream.Arrival, arena *stream.Arena) (stream.Message, error) {
			retained <- a.Delivery.Retained
			return message(c, a, arena)
		}
		b.publish.Send(t, &paho.Publish{Topic: "tanks/a/level", QoS: 1, Retain: true, Payload: []byte("old")})
		stop := b.start()
		if !await(t, retained, "the retained message") {
			t.Error("it is not marked as retained")
		}
		b.publish.Send(t, &paho.Publish{Topic: "tanks/a/level", QoS: 1, Retain: true, Payload: []byte("new")})
		if await(t, retained, "a message") {
			t.Error("what was just published is marked as retained")
		}
		b.acks(2)
		b.mustStop(stop)
		// The session is there already, and with it the subscription: the message does not come once more.
		stop = b.start()
		b.subscribed(2)
		b.publish.Publish(t, "tanks/a/level", "end")
		if got := b.wait(3); !slices.Equal(got, []string{"old", "new", "end"}) {
			t.Errorf("committed %v", got)
		}
		b.mustStop(stop)
	})
}
