package mqtt_test

import (
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"github.com/flechtwerk/flechtwerk/connectors/mqtt"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

func TestConfigsThatAreRefused(t *testing.T) {
	for want, change := range map[string]func(*mqtt.Config){
		"the scheme is mqtt or mqtts":        func(c *mqtt.Config) { c.Broker = "tcp://host" },
		"ws:// is not supported yet":         func(c *mqtt.Config) { c.Broker = "ws://host" },
		"not a URL":                          func(c *mqtt.Config) { c.Broker = "mqtt://a:secret@b:c" },
		"without a path":                     func(c *mqtt.Config) { c.Broker = "mqtt://host/path" },
		"mqtts://host:8883, without":         func(c *mqtt.Config) { c.Broker = "mqtt://" },
		"use mqtts://":                       func(c *mqtt.Config) { c.TLS = &tls.Config{} },
		"client id":                          func(c *mqtt.Config) { c.ClientID = "" },
		"shared group \"a/b\"":               func(c *mqtt.Config) { c.Group = "a/b" },
		"whole seconds":                      func(c *mqtt.Config) { c.KeepAlive = 1500 * time.Millisecond },
		"receive maximum: 1 to 65535":        func(c *mqtt.Config) { c.ReceiveMaximum, c.InboxMessages = 65536, 70000 },
		"less than the receive maximum of 5": func(c *mqtt.Config) { c.ReceiveMaximum, c.InboxMessages = 5, 4 },
		"bounds: positive":                   func(c *mqtt.Config) { c.InboxBytes = -1 },
		"the longest wait":                   func(c *mqtt.Config) { c.Backoff.Min, c.Backoff.Max = time.Second, time.Millisecond },
		"no topic filters":                   func(c *mqtt.Config) { c.Filters = nil },
		"one of relay and message":           func(c *mqtt.Config) { c.Message = nil },
		"only JSON has members":              func(c *mqtt.Config) { c.Require, c.Format = []mqtt.Member{{"a", mqtt.Any}}, stream.String },
		"a dead letter has a topic":          func(c *mqtt.Config) { c.OnError.Kind = mqtt.DeadLetter },
		"and nothing else has":               func(c *mqtt.Config) { c.OnInvalid.Topic = letters },
	} {
		c := newConfig("mqtt://host", "bridge")
		change(&c)
		_, err := mqtt.New(c)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
