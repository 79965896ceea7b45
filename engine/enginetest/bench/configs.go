//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flechtwerk/flechtwerk/engine/enginetest/kafkatest"
)

const (
	configPeriod = 10 * time.Second // every of pipelines/configs.yaml
	configRounds = 3                // that are measured, after one that is not
)

// configFigure is what polling many configs costs.
type configFigure struct {
	polls int
	cpu   time.Duration
	span  time.Duration
	rss   float64 // peak, MB
	// drift is how much later than every after its last poll each poll began, sorted.
	drift []time.Duration
}

// pollConfigs lets one process poll many configs for some rounds. The polls themselves do nothing, so that what is measured is
// the engine's own: schedule, script, transactions.
func (b *bench) pollConfigs(ctx context.Context) (configFigure, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	run := *b
	run.input = fmt.Sprintf("bench-configs-%d", time.Now().UnixNano())
	out := run.input + "-out"
	compact := "compact"
	if _, err := b.admin.CreateTopic(ctx, partitions, -1, map[string]*string{"cleanup.policy": &compact}, run.input); err != nil {
		return configFigure{}, fmt.Errorf("create topic %s: %w", run.input, err)
	}
	if err := kafkatest.AwaitTopic(ctx, b.admin, run.input); err != nil {
		return configFigure{}, err
	}
	if err := b.createTopic(ctx, out); err != nil {
		return configFigure{}, err
	}
	defer func() {
		_, _ = b.admin.DeleteTopics(context.WithoutCancel(ctx), run.input, out, run.input+"-changelog")
	}()
	var records []*kgo.Record
	for n := range b.configs {
		records = append(records, &kgo.Record{Topic: run.input, Key: fmt.Appendf(nil, "config-%d", n), Value: fmt.Appendf(nil, `{"url":"https://feeds.example/%d"}`, n)})
	}
	if err := b.client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return configFigure{}, fmt.Errorf("write the configs: %w", err)
	}
	p, _, err := run.launch(ctx, "configs", run.input, out)
	if err != nil {
		return configFigure{}, err
	}
	defer p.kill()
	if err := passes(ctx, p, configPeriod); err != nil {
		return configFigure{}, err
	}
	before, err := p.cpu()
	if err != nil {
		return configFigure{}, err
	}
	began := time.Now()
	if err := passes(ctx, p, configRounds*configPeriod); err != nil {
		return configFigure{}, err
	}
	f := configFigure{span: time.Since(began), rss: p.peakRSS()}
	after, err := p.cpu()
	if err != nil {
		return configFigure{}, err
	}
	f.cpu = after - before
	if err := p.stop(); err != nil {
		return configFigure{}, err
	}
	return f, f.read(ctx, b, out, began)
}

// passes waits, unless the program ends first.
func passes(ctx context.Context, p *process, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-p.ended:
		return fmt.Errorf("the program ended early: %w\n%s", p.err, p.log())
	case <-ctx.Done():
		return ctx.Err()
	}
}

// read takes from the outputs when the polls of the measured rounds began.
func (f *configFigure) read(ctx context.Context, b *bench, topic string, from time.Time) error {
	ends, err := b.admin.ListCommittedOffsets(ctx, topic)
	if err != nil {
		return fmt.Errorf("read the end of the outputs: %w", err)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.addr), kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.KeepControlRecords())
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	defer cl.Close()
	last := map[string]time.Time{}
	next := map[int32]int64{}
	for ends.Offsets()[topic] != nil {
		open := false
		for p, end := range ends.Offsets()[topic] {
			open = open || next[p] < end.At
		}
		if !open {
			break
		}
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("read the outputs: %w", err)
		}
		for _, r := range fetches.Records() {
			next[r.Partition] = r.Offset + 1
			if r.Attrs.IsControl() {
				continue
			}
			var value struct{ Began int64 }
			if err := json.Unmarshal(r.Value, &value); err != nil {
				return fmt.Errorf("read an output: %w", err)
			}
			at, key := time.UnixMilli(value.Began), string(r.Key)
			if before, ok := last[key]; ok && at.After(from) && at.Before(from.Add(f.span)) {
				f.polls++
				f.drift = append(f.drift, at.Sub(before)-configPeriod)
			}
			last[key] = at
		}
	}
	if len(last) != b.configs || f.polls == 0 {
		return fmt.Errorf("%d configs were polled, %d times in %v", len(last), f.polls, f.span)
	}
	slices.Sort(f.drift)
	return nil
}

// reportConfigs prints a figure.
func reportConfigs(configs int, f configFigure) error {
	at := func(share float64) time.Duration {
		return f.drift[min(int(share*float64(len(f.drift))), len(f.drift)-1)]
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, strings.Join([]string{"configs", "every", "polls/s", "CPU % of one core", "CPU µs/poll", "peak RSS MB", "drift p50", "p99", "max"}, "\t")+"\t")
	fmt.Fprintf(w, "%d\t%v\t%.0f\t%.1f\t%.0f\t%.0f\t%v\t%v\t%v\t\n", configs, configPeriod, float64(f.polls)/f.span.Seconds(),
		100*f.cpu.Seconds()/f.span.Seconds(), float64(f.cpu.Microseconds())/float64(f.polls), f.rss, at(0.5), at(0.99), at(1))
	return w.Flush()
}
