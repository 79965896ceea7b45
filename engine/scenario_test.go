package engine_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flechtwerk/flechtwerk/engine"
	"github.com/flechtwerk/flechtwerk/engine/enginetest"
	"github.com/flechtwerk/flechtwerk/engine/pipeline"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// Scenarios are files of verbs; what they print is the ordered list of effects of each task, called INSTANCE/APPLICATION/TASK.
// Those in testdata/scenarios run on either cluster, those in testdata/scenarios/faults on the fake one. Beside the verbs of
// enginetest.Scenario there are
//
//	start NAME app=A in=(T,…) out=T [folder=F] [stateless] [skip]   an instance of one stage that counts the records of each key;
//	                                          the value "bad" fails; skip is on_error and on_invalid
//	stop NAME                                 as SIGTERM does; prints the error, if there is one
//	await NAME                                waits for its own end, and prints the error
//	cut NAME, heal NAME                       its network
//	fence APP TASK                            somebody else takes the transactional id
//	store FOLDER APP                          what the local store holds, of partition 0 and 1
type scenario struct {
	rig       *rig
	instances map[string]*instance
	folders   map[string]string
}

func runScenario(t *testing.T, path string, s *enginetest.Scenario) {
	c := &scenario{instances: map[string]*instance{}, folders: map[string]string{}}
	c.rig = &rig{t: t, fake: s.Fake}
	if s.Fake != nil {
		c.rig.kafk.Brokers, c.rig.kafk.Dial = s.Fake.Addrs(), s.Fake.Dial
	} else {
		real := newRig(t)
		c.rig.kafk = real.kafk
	}
	c.rig.kafk.SessionTimeout = 2 * time.Second
	enginetest.RunScenario(t, path, s, map[string]enginetest.Verb{
		"start": c.start, "stop": c.stop, "await": c.await, "cut": c.cut, "heal": c.heal, "fence": c.fence, "store": c.store,
	})
}

func (c *scenario) instance(s *enginetest.Scenario, d *datadriven.TestData) *instance {
	i := c.instances[d.CmdArgs[0].Key]
	if i == nil {
		d.Fatalf(s.T, "no instance is called %q", d.CmdArgs[0].Key)
	}
	return i
}

func (c *scenario) start(s *enginetest.Scenario, d *datadriven.TestData) string {
	name := d.CmdArgs[0].Key
	var app, out, folder string
	d.ScanArgs(s.T, "app", &app)
	d.ScanArgs(s.T, "out", &out)
	d.MaybeScanArgs(s.T, "folder", &folder)
	topic := &stream.Topic{Name: s.Expand(out), Key: stream.String}
	spec := stageSpec{app: s.Expand(app), output: topic, handle: count(topic), formats: stream.Topic{Key: stream.String}}
	in, _ := d.Arg("in")
	for _, name := range in.Vals {
		spec.inputs = append(spec.inputs, s.Expand(name))
	}
	if d.HasArg("stateless") {
		spec.stateless, spec.handle = true, echo(topic)
	}
	if d.HasArg("skip") {
		spec.onError, spec.onInvalid = pipeline.Skip, pipeline.Skip
	}
	dir := ""
	if folder != "" {
		if dir = c.folders[folder]; dir == "" {
			dir = c.rig.t.TempDir()
			c.folders[folder] = dir
		}
	}
	c.instances[name] = c.rig.startWith(dir, func(o *engine.Options) {
		o.CommitInterval = 100 * time.Millisecond
		o.Events = engine.Tee(o.Events, effectsOf(s, name+"/"+app))
	}, spec)
	return ""
}

// effectsOf lets a scenario see what the tasks of one stage of one instance do.
func effectsOf(s *enginetest.Scenario, stage string) engine.Events {
	add := func(i engine.TaskInfo, format string, args ...any) {
		s.Effects.Add(s.Expand(fmt.Sprintf("%s/%d", stage, i.Task)), format, args...)
	}
	offsets := func(offsets []engine.Offset) string {
		var all []string
		for _, o := range offsets {
			all = append(all, o.String())
		}
		slices.Sort(all)
		return strings.Join(all, " ")
	}
	return engine.Events{
		TaskAssigned:    func(i engine.TaskInfo) { add(i, "assigned") },
		TaskFenced:      func(i engine.TaskInfo) { add(i, "fence") },
		OffsetsFetched:  func(i engine.OffsetsInfo) { add(i.TaskInfo, "begin at %s", offsets(i.Offsets)) },
		TakeoverWritten: func(i engine.TaskInfo) { add(i, "takeover") },
		RestoreProgress: func(i engine.RestoreInfo) {
			if i.Done {
				add(i.TaskInfo, "restored %d records from offset %d", i.Records, i.From)
			}
		},
		TaskRunning:    func(i engine.TaskInfo) { add(i, "running") },
		TaskRevoked:    func(i engine.TaskInfo) { add(i, "revoked") },
		TaskLost:       func(i engine.TaskInfo) { add(i, "lost") },
		TaskStopped:    func(i engine.TaskInfo) { add(i, "stopped") },
		TaskRestarting: func(i engine.TaskInfo) { add(i, "restarting") },

		TransactionBegun: func(i engine.TransactionInfo) { add(i.TaskInfo, "begin") },
		TransactionProduced: func(i engine.TransactionInfo) {
			for _, out := range i.Outputs {
				add(i.TaskInfo, "produce %s ×%d", out.Topic, out.Count)
			}
			states := slices.Sorted(slices.Values(i.States))
			for _, key := range states {
				add(i.TaskInfo, "changelog %s", key)
			}
		},
		OffsetsSent:          func(i engine.TransactionInfo) { add(i.TaskInfo, "offsets %s", offsets(i.Offsets)) },
		TransactionCommitted: func(i engine.TransactionInfo) { add(i.TaskInfo, "commit") },
		TransactionAborted:   func(i engine.TransactionInfo) { add(i.TaskInfo, "abort or doubt") },
		StateApplied:         func(i engine.TransactionInfo) { add(i.TaskInfo, "apply") },
		OffsetsCommitted:     func(i engine.TransactionInfo) { add(i.TaskInfo, "offsets alone %s", offsets(i.Offsets)) },
		RecordInvalid:        func(i engine.RecordInfo) { add(i.TaskInfo, "invalid at offset %d", i.Offset) },
		RecordFailed:         func(i engine.RecordInfo) { add(i.TaskInfo, "failed at offset %d", i.Offset) },
	}
}

func said(err error) string {
	if err == nil {
		return ""
	}
	return err.Error() + "\n"
}

func (c *scenario) stop(s *enginetest.Scenario, d *datadriven.TestData) string {
	return said(c.instance(s, d).stop())
}

func (c *scenario) await(s *enginetest.Scenario, d *datadriven.TestData) string {
	return said(c.instance(s, d).wait())
}

func (c *scenario) cut(s *enginetest.Scenario, d *datadriven.TestData) string {
	c.instance(s, d).wire.cut()
	return ""
}

func (c *scenario) heal(s *enginetest.Scenario, d *datadriven.TestData) string {
	c.instance(s, d).wire.heal()
	return ""
}

func (c *scenario) fence(s *enginetest.Scenario, d *datadriven.TestData) string {
	cl := c.rig.client(kgo.TransactionalID(s.Expand(d.CmdArgs[0].Key) + "-" + d.CmdArgs[1].Key))
	defer cl.Close()
	if _, _, err := cl.ProducerID(s.T.Context()); err != nil {
		d.Fatalf(s.T, "%v", err)
	}
	return ""
}

func (c *scenario) store(s *enginetest.Scenario, d *datadriven.TestData) string {
	dir := c.folders[d.CmdArgs[0].Key]
	if dir == "" {
		d.Fatalf(s.T, "no folder is called %q", d.CmdArgs[0].Key)
	}
	states := stored(c.rig.t, dir, s.Expand(d.CmdArgs[1].Key), 2)
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(states)) {
		fmt.Fprintf(&b, "%s %s\n", key, states[key])
	}
	return b.String()
}

func TestScenarios(t *testing.T) {
	for _, dir := range []string{"testdata/scenarios", "testdata/scenarios/faults"} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.IsDir() {
				continue
			}
			path := filepath.Join(dir, e.Name())
			t.Run(e.Name(), func(t *testing.T) {
				if realTier() {
					if dir != "testdata/scenarios" {
						needFake(t)
					}
					runScenario(t, path, enginetest.OnKafka(t))
					return
				}
				runScenario(t, path, enginetest.OnFake(t, enginetest.FakeConfig{}))
			})
		}
	}
}
