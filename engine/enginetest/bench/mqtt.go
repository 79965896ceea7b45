//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/flechtwerk/flechtwerk/connectors/connectortest/mqtttest"
)

// bridge is how fast MQTT messages come to Kafka, and how fast a bare subscriber takes them that has no Kafka behind it. Both are
// sent the same, as many at once as their receive maximum of 1,000 allows, by a broker in this process. The span is from the first
// message to the last acknowledgement, which for flechtwerk is after the last commit.
func (b *bench) bridge(ctx context.Context) (through, bare []figure, err error) {
	for range b.runs {
		f, err := b.bridgeOnce(ctx)
		if err != nil {
			return nil, nil, err
		}
		through = append(through, f)
		rate, err := b.bareOnce(ctx)
		if err != nil {
			return nil, nil, err
		}
		bare = append(bare, figure{rate: rate})
		fmt.Fprintf(os.Stderr, "mqtt %8.0f messages/s, bare %8.0f messages/s\n", f.rate, rate)
	}
	return through, bare, nil
}

func (b *bench) bridgeOnce(ctx context.Context) (figure, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	flood, err := mqtttest.NewFlood(int64(b.records))
	if err != nil {
		return figure{}, err
	}
	defer flood.Close()
	app := fmt.Sprintf("bench-mqtt-%d", time.Now().UnixNano())
	out := app + "-out"
	if err := b.createTopic(ctx, out); err != nil {
		return figure{}, err
	}
	defer func() { _, _ = b.admin.DeleteTopics(context.WithoutCancel(ctx), out, app+"-changelog") }()
	run := *b
	run.input = flood.Addr()
	p, _, err := run.launch(ctx, "mqtt", app, out)
	if err != nil {
		return figure{}, err
	}
	defer p.kill()
	if err := awaits(ctx, p, flood.Begun()); err != nil {
		return figure{}, err
	}
	began := time.Now()
	before, err := p.cpu()
	if err != nil {
		return figure{}, err
	}
	if err := awaits(ctx, p, flood.All()); err != nil {
		return figure{}, err
	}
	took, rss := time.Since(began), p.peakRSS()
	after, err := p.cpu()
	if err != nil {
		return figure{}, err
	}
	n := float64(b.records)
	return figure{rate: n / took.Seconds(), cpu: float64((after - before).Nanoseconds()) / 1000 / n, rss: rss}, p.stop()
}

func (b *bench) bareOnce(ctx context.Context) (rate float64, err error) {
	flood, err := mqtttest.NewFlood(int64(b.records))
	if err != nil {
		return 0, err
	}
	defer flood.Close()
	end, err := mqtttest.Bare(ctx, flood.Addr())
	if err != nil {
		return 0, err
	}
	defer end()
	<-flood.Begun()
	began := time.Now()
	select {
	case <-flood.All():
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	return float64(b.records) / time.Since(began).Seconds(), nil
}

// awaits waits for something, unless the program ends first.
func awaits(ctx context.Context, p *process, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-p.ended:
		return fmt.Errorf("the program ended early: %w\n%s", p.err, p.log())
	case <-ctx.Done():
		return fmt.Errorf("the program did not reach the end: %w\n%s", ctx.Err(), p.log())
	}
}

// reportBridge prints the medians.
func reportBridge(messages int, through, bare []figure) error {
	rate := func(f figure) float64 { return f.rate }
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "messages\tto the Kafka commit/s\tCPU µs/message\tpeak RSS MB\tbare subscriber/s\t")
	fmt.Fprintf(w, "%d\t%.0f\t%.2f\t%.0f\t%.0f\t\n", messages, median(through, rate), median(through, func(f figure) float64 { return f.cpu }),
		median(through, func(f figure) float64 { return f.rss }), median(bare, rate))
	return w.Flush()
}
