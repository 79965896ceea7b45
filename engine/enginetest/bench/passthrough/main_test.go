package main_test

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flechtwerk/flechtwerk/engine/enginetest"
)

// The yardstick does the whole job: every record once, in order, with key, value and time, and its offsets.
func TestPassThroughCopiesEverythingOnce(t *testing.T) {
	for name, addr := range map[string]func(testing.TB) string{
		"fake":  func(t testing.TB) string { return enginetest.StartFakeProcess(t) },
		"kafka": enginetest.Kafka,
	} {
		t.Run(name, func(t *testing.T) {
			broker := addr(t)
			opts := enginetest.At(broker)
			in, out, group := enginetest.Unique("in"), enginetest.Unique("out"), enginetest.Unique("group")
			enginetest.CreateTopic(t, opts, in, 2)
			enginetest.CreateTopic(t, opts, out, 2)
			chain := enginetest.Chain{Keys: 10, Records: 2500} // more than fits into one transaction
			enginetest.Produce(t, opts, chain.Inputs(in)...)
			read := enginetest.ReadCommitted(t, opts, in)
			ends := map[int32]int64{}
			for _, r := range read {
				ends[r.Partition] = r.Offset + 1
			}

			p := enginetest.Start(t, enginetest.Command{
				Path: enginetest.Build(t, "github.com/flechtwerk/flechtwerk/engine/enginetest/bench/passthrough"),
				Args: []string{"-brokers", broker, "-in", in, "-out", out, "-group", group},
			})
			p.Stdout.Wait(t, 0, "ready")
			enginetest.WaitOffsets(t, opts, group, map[string]map[int32]int64{in: ends})
			for ended := false; !ended; { // further signals change nothing, up to the very end: who has its last line sends one
				p.Signal(t, syscall.SIGTERM)
				select {
				case <-p.Ended():
					ended = true
				default:
				}
			}
			if status := p.Status(); status != 0 {
				t.Fatalf("exit status %d\n%s", status, p.Stderr)
			}
			p.Stdout.Wait(t, 0, "end ")

			written := enginetest.ReadCommitted(t, opts, out)
			if len(written) != len(read) {
				t.Fatalf("%d records in, %d out", len(read), len(written))
			}
			for i := range read {
				if a, b := line(read[i]), line(written[i]); a != b {
					t.Fatalf("record %d\nin  %s\nout %s", i, a, b)
				}
			}
		})
	}
}

func line(r *kgo.Record) string {
	return fmt.Sprintf("%d %s %s %d", r.Partition, r.Key, r.Value, r.Timestamp.UnixMilli())
}
