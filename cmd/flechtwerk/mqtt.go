package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/flechtwerk/flechtwerk/connectors/mqtt"
	"github.com/flechtwerk/flechtwerk/engine"
	"github.com/flechtwerk/flechtwerk/engine/pipeline"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// session makes the MQTT session of a stage.
func (b *bodies) session(p *pipeline.Pipeline, x *pipeline.Extractor, instance string, arrivals *engine.Arrivals, w wiring) (stream.Session, error) {
	m := x.MQTT
	config := mqtt.Config{
		Broker: m.Broker, User: m.User, Password: m.Password, ClientID: m.ClientID, KeepAlive: m.KeepAlive, QoS: mqtt.QoSOf(m.QoS), Format: m.Format,
		SessionExpiry: m.SessionExpiry, OnInvalid: mqttPolicy(x.OnInvalid, x.InvalidTo), OnError: mqttPolicy(x.OnError, x.ErrorTo), Stage: p.Name + "/" + x.Name,
		InboxMessages: m.InboxMessages, InboxBytes: m.InboxBytes, ReceiveMaximum: m.ReceiveMaximum, PageMessages: w.batchRecords, PageBytes: int64(w.batchBytes),
		Events: mqttEvents(p, x, w), Now: w.now,
		Filters: func(c stream.Config) ([]string, error) { return x.TopicsOf(p, &c, w.now()) },
	}
	if config.ClientID == "" {
		config.ClientID = x.ApplicationID + "-" + instance
	}
	if m.Shared {
		config.Group = x.ApplicationID
	}
	if m.Leave {
		config.OnStop = mqtt.Leave
	}
	for _, member := range x.Require {
		config.Require = append(config.Require, mqtt.Member{Name: member.Name, Kind: memberKinds[member.Kind]})
	}
	if x.Filter != nil {
		config.Filter = arrivals.Wants
	}
	var err error
	if config.TLS, err = tlsConfig(m.TLS); err != nil {
		return nil, fmt.Errorf("%w: %w", engine.ErrSurroundings, err)
	}
	if x.Message != nil {
		config.Message = arrivals.Message
		return newSession(config)
	}
	program := b.programs[&x.Relay]
	if program == nil {
		return nil, errors.New("the stage has no relay")
	}
	env, err := b.env(p, x.Name, x.OutputTopics, nil, x.Timeout, w.now, w.log, w.metrics)
	if err != nil {
		return nil, err
	}
	if config.Relay, err = program.NewRelay(env); err != nil {
		return nil, err
	}
	return newSession(config)
}

// mqttSession tells which of a session's ends lie in the surroundings.
type mqttSession struct{ *mqtt.Session }

func newSession(config mqtt.Config) (stream.Session, error) {
	s, err := mqtt.New(config)
	if err != nil {
		return nil, err
	}
	return mqttSession{s}, nil
}

// Run implements stream.Session.
func (s mqttSession) Run(ctx context.Context, push *stream.Push) error {
	err := s.Session.Run(ctx, push)
	var why *mqtt.Error
	if errors.As(err, &why) && (why.Code == mqtt.CodeRefused || why.Code == mqtt.CodeQoS) {
		return fmt.Errorf("%w: %w", engine.ErrSurroundings, err)
	}
	return err
}

var memberKinds = map[string]mqtt.Kind{
	"any": mqtt.Any, "string": mqtt.Text, "number": mqtt.Number, "integer": mqtt.Integer, "boolean": mqtt.Bool, "object": mqtt.Object, "array": mqtt.Array,
}

func mqttPolicy(policy pipeline.Policy, letters *pipeline.Topic) mqtt.Policy {
	switch policy {
	case pipeline.Skip:
		return mqtt.Policy{Kind: mqtt.Skip}
	case pipeline.DeadLetter:
		return mqtt.Policy{Kind: mqtt.DeadLetter, Topic: &letters.Topic}
	default:
		return mqtt.Policy{}
	}
}

// tlsConfig reads the files of a pipeline's tls:. It answers nil for none.
func tlsConfig(t *pipeline.TLS) (*tls.Config, error) {
	if t == nil {
		return nil, nil //nolint:nilnil // no settings are what the system has
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName, InsecureSkipVerify: t.Insecure}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("tls.ca: %w", err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("tls.ca: %s holds no certificate in PEM form", t.CA)
		}
	}
	if t.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("tls.cert and tls.key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// mqttEvents tells log and metrics what a session does.
func mqttEvents(p *pipeline.Pipeline, x *pipeline.Extractor, w wiring) mqtt.Events {
	name := p.Name + "/" + x.Name
	count := w.metrics.session(p.Name, x.Name)
	message := func(what, text string, policy pipeline.Policy) func(mqtt.MessageInfo) {
		return func(i mqtt.MessageInfo) {
			if counter := count.outcomes[what]; counter != nil {
				counter.Inc()
			}
			keys := []any{"stage", name, "mqtt_topic", i.Topic}
			if i.Config != "" {
				keys = append(keys, "config", i.Config)
			}
			if i.Err != nil {
				keys = append(keys, "error", i.Err)
			}
			w.lines.repeated(slog.LevelWarn, text+name+i.Topic, text, append(keys, "policy", policy.String()))
		}
	}
	return mqtt.Events{
		Connected: func(i mqtt.ConnectedInfo) {
			count.connects.Inc()
			w.log.Info("MQTT connected", "stage", name, "broker", i.Broker, "resumed", i.Resumed)
		},
		Disconnected: func(i mqtt.DisconnectedInfo) {
			if i.Err == nil {
				w.log.Info("MQTT disconnected", "stage", name, "broker", i.Broker)
				return
			}
			count.disconnects.Inc()
			w.lines.repeated(slog.LevelWarn, "mqtt connection "+name, "MQTT connection lost", []any{"stage", name, "broker", i.Broker, "error", i.Err, "retry_in", i.Retry.Round(time.Millisecond)})
		},
		Subscribed: func(i mqtt.SubscribedInfo) {
			w.log.Info("MQTT subscribed", "stage", name, "filters", i.Filters)
			w.subscribed(name)
		},
		Unsubscribed: func(i mqtt.SubscribedInfo) {
			w.log.Info("MQTT unsubscribed", "stage", name, "filters", i.Filters)
		},
		ConfigRefused:  message("config", "MQTT config refused", x.OnError),
		Received:       func(n int) { count.received.Add(float64(n)) },
		Acknowledged:   func(n int) { count.acknowledged.Add(float64(n)) },
		Redelivery:     func(n int) { count.redelivery.Add(float64(n)) },
		MessageDropped: message("dropped", "MQTT message of no config dropped", pipeline.Skip),
		MessageInvalid: message("invalid", "MQTT message invalid", x.OnInvalid),
		MessageFailed:  message("failed", "MQTT message failed", x.OnError),
	}
}
