package engine_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/flechtwerk/flechtwerk/engine"
	"github.com/flechtwerk/flechtwerk/engine/enginetest"
	"github.com/flechtwerk/flechtwerk/engine/pipeline"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// simple is a stateful stage from topic in to topic out.
func (r *rig) simple(in string, out *stream.Topic) stageSpec {
	return stageSpec{app: r.id, inputs: []string{in}, output: out, handle: count(out), formats: stream.Topic{Key: stream.String}}
}

// checkRefused waits for the end of an instance that must not start, and looks at why: the surroundings, in words that name
// everything in want.
func checkRefused(t *testing.T, i *instance, want ...string) {
	t.Helper()
	err := i.wait()
	if !errors.Is(err, engine.ErrSurroundings) {
		t.Fatalf("error %v, want one of the surroundings", err)
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
	for _, line := range i.log.all() {
		if strings.Contains(line, "assigned") {
			t.Errorf("a task was assigned before the surroundings were found wrong")
		}
	}
}

// D2: everything that is missing is told at once, with the command that creates it, before the group is joined.
func TestD2MissingTopics(t *testing.T) {
	r := newRig(t)
	out := &stream.Topic{Name: r.id + "-no-output"}
	i := r.start("", r.simple(r.id+"-no-input", out))
	checkRefused(t, i, r.id+"-no-input does not exist", r.id+"-no-output does not exist; declare it under `topics:`")
}

// D3: a task is one partition number of all inputs, so they must have the same count.
func TestD3InputsOfUnequalPartitions(t *testing.T) {
	r := newRig(t)
	a, b := r.topic("a", 2), r.topic("b", 3)
	out := &stream.Topic{Name: r.topic("out", 1)}
	spec := r.simple(a, out)
	spec.inputs = []string{a, b}
	checkRefused(t, r.start("", spec), a+" has 2", b+" has 3")
}

// D3: a changelog of another count holds the state of other partitions.
func TestD3ChangelogOfAnotherCount(t *testing.T) {
	r := newRig(t)
	in := r.topic("in", 2)
	out := &stream.Topic{Name: r.topic("out", 1)}
	spec := r.simple(in, out)
	r.topic("changelog", 3, "cleanup.policy=compact")
	checkRefused(t, r.start("", spec), r.id+"-changelog has 3 partitions", "inputs have 2")
}

// D3: tokens of an extractor are the partitions of its changelog.
func TestD3TokensAgainstChangelog(t *testing.T) {
	r := newRig(t)
	out := &stream.Topic{Name: r.topic("out", 1)}
	r.topic("changelog", 3, "cleanup.policy=compact")
	i := r.extract("", out, time.Hour, 2, []string{"c"}, func(context.Context, *stream.Poll) error { return nil })
	checkRefused(t, i, r.id+"-changelog has 3 partitions", "tokens is 2")
}

// A topic that the pipeline declares with a count has that count.
func TestD3DeclaredPartitions(t *testing.T) {
	r := newRig(t)
	in := r.topic("in", 2)
	out := &stream.Topic{Name: r.topic("out", 1)}
	spec := r.simple(in, out)
	spec.change = func(t *pipeline.Transformer) { t.InputTopics[0].Partitions = 4 }
	checkRefused(t, r.start("", spec), in+" has 2 partitions", "declares 4")
}

// D6: a changelog that forgets by time would lose state.
func TestD6ChangelogIsCompacted(t *testing.T) {
	for _, policy := range []string{"delete", "compact,delete"} {
		t.Run(policy, func(t *testing.T) {
			r := newRig(t)
			in := r.topic("in", 2)
			out := &stream.Topic{Name: r.topic("out", 1)}
			r.topic("changelog", 2, "cleanup.policy="+policy)
			checkRefused(t, r.start("", r.simple(in, out)), r.id+"-changelog", "cleanup.policy", policy, "set it to compact")
		})
	}
}

// D6: the changelog that the engine makes is compacted and has a partition per task.
func TestD6ChangelogIsMadeCompacted(t *testing.T) {
	r := newRig(t)
	in := r.topic("in", 3)
	out := &stream.Topic{Name: r.topic("out", 1)}
	dir := t.TempDir()
	a := r.start(dir, r.simple(in, out))
	waitFor(t, a, "running", 3)
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	// The second start finds it, which is its check.
	b := r.start(dir, r.simple(in, out))
	waitFor(t, b, "running", 3)
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
}

// D7: a broker that cannot be reached is given up after ten seconds, whatever the reason is.
func TestD7BrokerUnreachable(t *testing.T) {
	for name, dial := range map[string]func(context.Context, string, string) (net.Conn, error){
		"refused": func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
		},
		"silent": silent,
		"no Kafka": func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go func() {
				buffer := make([]byte, 4096)
				for {
					if _, err := theirs.Read(buffer); err != nil {
						return
					}
				}
			}()
			return ours, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, err := engine.New(nil, engine.Options{
					Kafka: engine.Kafka{Brokers: []string{"kafka.example:9092"}, Dial: dial},
					State: engine.State{InMemory: true},
				})
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				err = e.Run(t.Context())
				if !errors.Is(err, engine.ErrSurroundings) || !strings.Contains(err.Error(), "kafka.example:9092") {
					t.Errorf("error %v, want one of the surroundings that names the broker", err)
				}
				if name == "refused" && !strings.Contains(err.Error(), "connection refused") {
					t.Errorf("error %q hides why", err)
				}
				if took := time.Since(began); took > 11*time.Second {
					t.Errorf("given up after %v, want 10s", took)
				}
			})
		})
	}
}

// silent is a network that never answers.
func silent(ctx context.Context, _, _ string) (net.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// A stop while the broker is looked for ends at once, without an error.
func TestR8StopBeforeTheBrokerAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := engine.New(nil, engine.Options{
			Kafka: engine.Kafka{Brokers: []string{"kafka.example:9092"}, Dial: silent},
			State: engine.State{InMemory: true},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if err := e.Run(ctx); err != nil {
			t.Errorf("error %v, want none", err)
		}
		if took := time.Since(began); took > 1100*time.Millisecond {
			t.Errorf("it took %v to stop", took)
		}
	})
}

// D7: a state folder that another process owns.
func TestD7StateFolderInUse(t *testing.T) {
	r := newRig(t)
	in := r.topic("in", 1)
	out := &stream.Topic{Name: r.topic("out", 1)}
	dir := t.TempDir()
	a := r.start(dir, r.simple(in, out))
	waitFor(t, a, "running", 1)
	checkRefused(t, r.start(dir, r.simple(in, out)), "state.dir "+dir, "in use", "folder of its own")
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
}

// D7: a state folder that cannot be written to. Root may write everywhere, so a file stands in the way instead of a mode.
func TestD7StateFolderNotWritable(t *testing.T) {
	r := newRig(t)
	in := r.topic("in", 1)
	out := &stream.Topic{Name: r.topic("out", 1)}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(file, "state")
	checkRefused(t, r.start(dir, r.simple(in, out)), "state.dir "+dir, "may write to")
}

// A cluster of transaction.version 1 works as well, with the group added to each transaction by a request of its own.
func TestE1OnTransactionVersion1(t *testing.T) {
	needFake(t)
	r := newRigOn(t, enginetest.FakeConfig{Versions: kversion.V3_6_0()})
	in := r.topic("in", 2)
	out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String}
	add := r.fake.Watch(enginetest.Which{Key: addOffsetsToTxn})
	a := r.start("", r.simple(in, out))
	l := r.load(in, 2, 6, 300)
	l.wait()
	r.checkCounters(out.Name, 300)
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	if add.Fired() == 0 {
		t.Error("no AddOffsetsToTxn was sent; effects:\n" + a.log.String())
	}
	r.checkOffsets(in, 2, 300)
}
