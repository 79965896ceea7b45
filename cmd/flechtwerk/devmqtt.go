package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/flechtwerk/flechtwerk/connectors/mqtt/devbroker"
	"github.com/flechtwerk/flechtwerk/engine"
	"github.com/flechtwerk/flechtwerk/engine/pipeline"
)

// devMQTT are the MQTT brokers that `run --dev` brings: one for each address on this machine that a pipeline names and where
// nobody listens yet.
type devMQTT struct {
	brokers []*devbroker.Broker
	log     *slog.Logger
	// mine are the stages that meet one of these brokers, and have not subscribed yet.
	mu    sync.Mutex
	mine  map[string]bool
	ready chan struct{} // closed when all of them have
}

func startDevMQTT(pipelines []*pipeline.Pipeline, log *slog.Logger) (*devMQTT, error) {
	d := &devMQTT{log: log, mine: map[string]bool{}, ready: make(chan struct{})}
	brought := map[string]bool{} // addresses, and whether they are ours
	for _, p := range pipelines {
		for _, x := range p.Extractors {
			if x.MQTT == nil {
				continue
			}
			address := localAddress(x.MQTT.Broker)
			if address == "" {
				continue
			}
			ours, known := brought[address]
			if !known {
				broker, err := devbroker.Start(devbroker.Config{Address: address, Log: quiet(log)})
				switch {
				case errors.Is(err, syscall.EADDRINUSE):
					log.Info("an MQTT broker, or something else, listens already", "broker", "mqtt://"+address)
				case err != nil:
					d.Close()
					return nil, fmt.Errorf("%w: %w", engine.ErrSurroundings, err)
				default:
					d.brokers, ours = append(d.brokers, broker), true
					log.Info("MQTT broker inside the process, for everybody on this machine", "broker", "mqtt://"+address)
				}
				brought[address] = ours
			}
			if ours {
				d.mine[p.Name+"/"+x.Name] = true
			}
		}
	}
	return d, nil
}

// quiet leaves warnings and errors of a broker, which tells of every connection otherwise.
func quiet(log *slog.Logger) *slog.Logger { return slog.New(atLeast{log.Handler(), slog.LevelError}) }

// atLeast is a handler that drops what is below a level.
type atLeast struct {
	slog.Handler
	level slog.Level
}

func (h atLeast) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= h.level && h.Handler.Enabled(ctx, level)
}

func (h atLeast) WithAttrs(attrs []slog.Attr) slog.Handler {
	return atLeast{h.Handler.WithAttrs(attrs), h.level}
}

func (h atLeast) WithGroup(name string) slog.Handler {
	return atLeast{h.Handler.WithGroup(name), h.level}
}

// localAddress is host and port of an unencrypted broker on this machine, or "".
func localAddress(broker string) string {
	u, err := url.Parse(broker)
	if err != nil || u.Scheme != "mqtt" {
		return ""
	}
	port := u.Port()
	if port == "" {
		port = "1883"
	}
	if ip := net.ParseIP(u.Hostname()); u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return ""
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// Close ends the brokers.
func (d *devMQTT) Close() {
	for _, b := range d.brokers {
		b.Close()
	}
}

// subscribed tells that a stage has subscribed. A nil devMQTT does not care.
func (d *devMQTT) subscribed(stage string) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mine[stage] {
		if delete(d.mine, stage); len(d.mine) == 0 {
			close(d.ready)
		}
	}
}

// publish plays messages, once all stages have subscribed: a broker keeps nothing for who has never come.
func (d *devMQTT) publish(ctx context.Context, messages []scripted) error {
	select {
	case <-d.ready:
	case <-ctx.Done():
		return nil
	}
	began := time.Now()
	for _, m := range messages {
		if m.wait > 0 {
			timer := time.NewTimer(m.wait)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return nil
			}
		}
		for _, b := range d.brokers {
			if err := b.Publish(m.Message); err != nil {
				return err
			}
		}
	}
	d.log.Info("all messages of --publish are published", "messages", len(messages), "took", time.Since(began).Round(time.Millisecond))
	return nil
}

// scripted is a message of --publish.
type scripted struct {
	devbroker.Message
	wait time.Duration
}

// publishLine is one line of a file of --publish.
type publishLine struct {
	Wait        string          `json:"wait"`
	Topic       string          `json:"topic"`
	Value       json.RawMessage `json:"value"`
	Text        *string         `json:"text"`
	QoS         *byte           `json:"qos"`
	Retain      bool            `json:"retain"`
	ContentType string          `json:"content_type"`
	Properties  map[string]any  `json:"properties"`
}

// readPublished reads the messages of --publish: one JSON object a line.
func readPublished(file string) ([]scripted, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, usageError("--publish: %v", err)
	}
	var out []scripted
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 64<<20)
	for n := 1; lines.Scan(); n++ {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		m, err := readPublishLine(lines.Bytes())
		if err != nil {
			return nil, usageError("--publish: %s:%d: %v", file, n, err)
		}
		out = append(out, m)
	}
	if err := lines.Err(); err != nil {
		return nil, usageError("--publish: %s: %v", file, err)
	}
	if len(out) == 0 {
		return nil, usageError("--publish: %s holds no message", file)
	}
	return out, nil
}

func readPublishLine(line []byte) (m scripted, err error) {
	var l publishLine
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&l); err != nil {
		return m, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return m, errors.New("there is more behind the object")
	}
	m.Message = devbroker.Message{Topic: l.Topic, Payload: l.Value, QoS: 1, Retained: l.Retain, ContentType: l.ContentType}
	if l.QoS != nil {
		m.QoS = *l.QoS
	}
	for name, value := range l.Properties {
		m.Properties = append(m.Properties, devbroker.Property{Name: name, Value: fmt.Sprint(value)})
	}
	slices.SortFunc(m.Properties, func(a, b devbroker.Property) int { return strings.Compare(a.Name, b.Name) })
	if l.Wait != "" {
		if m.wait, err = pipeline.ParseDuration(l.Wait); err != nil {
			return m, fmt.Errorf("wait: %w", err)
		}
	}
	switch {
	case l.Topic == "":
		return m, errors.New("it has no topic")
	case strings.ContainsAny(l.Topic, "+#"):
		return m, errors.New("a topic to publish to has no + and no #")
	case m.QoS > 2:
		return m, errors.New("qos is 0, 1 or 2")
	case l.Text != nil && l.Value != nil:
		return m, errors.New("it has a value and a text")
	case l.Text != nil:
		m.Payload = []byte(*l.Text)
	}
	return m, nil
}
