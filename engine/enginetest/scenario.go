package enginetest

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Scenario is what the verbs of one scenario file work on: a broker, the effects so far, and names.
//
// A scenario file is a list of commands with what they print; `go test -rewrite` writes what they print now. The verbs of
// every scenario are
//
//	names NAME…                                  names that belong to this scenario, beside the topics it makes
//	topic NAME [partitions=N] [config=(a=b,…)]   make a topic
//	produce TOPIC [partition=N] [time=MS]        one record a line: key, blank, value; `-` is an absent key or value
//	read TOPIC                                   what read_committed sees: partition/offset key value
//	read-all TOPIC                               everything: `*` is a marker of a transaction's end
//	fold TOPIC                                   last value per key
//	offsets GROUP                                committed offsets
//	fault NAME KIND request=KEY [txn=ID] [topic=T] [error=E] [skip=N] [count=N]
//	                                             lose-request, lose-answer, fail or hold; on a Fake only
//	fired NAME                                   how often it hit
//	release NAME                                 lets go what a fault of kind hold has held
//	wait TASK                                    waits for the effects that stand in the input, one a line, in this order
//	effects                                      what happened since the last time
//
// and those that the caller adds: how the thing under test is started and stopped.
//
// On a real broker, which scenarios share, every name of the scenario gets an ending; the output shows it without.
type Scenario struct {
	T       testing.TB
	Fake    *Fake     // nil on a real Kafka
	Opts    []kgo.Opt // how clients reach the broker
	Effects Effects   // filled by the thing under test
	ending  string    // of names on a shared broker
	names   []string  // that get it
	faults  map[string]*Fault
	release map[string]func()
}

// Verb runs one command and returns what it prints.
type Verb func(s *Scenario, d *datadriven.TestData) string

// OnFake is a scenario on a fake broker.
func OnFake(t testing.TB, config FakeConfig) *Scenario {
	t.Helper()
	f := NewFake(t, config)
	return &Scenario{T: t, Fake: f, Opts: f.Opts()}
}

// OnKafka is a scenario on the shared real Kafka.
func OnKafka(t testing.TB) *Scenario {
	t.Helper()
	return &Scenario{T: t, Opts: At(Kafka(t)), ending: Unique("")}
}

// RunScenario runs the scenario file at path with the given verbs beside the common ones.
func RunScenario(t *testing.T, path string, s *Scenario, verbs map[string]Verb) {
	t.Helper()
	all := maps.Clone(common)
	maps.Copy(all, verbs)
	s.faults, s.release = map[string]*Fault{}, map[string]func(){}
	datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
		t.Helper()
		verb, ok := all[d.Cmd]
		if !ok {
			d.Fatalf(t, "there is no verb %q; there are %s", d.Cmd, strings.Join(slices.Sorted(maps.Keys(all)), ", "))
		}
		s.T = t
		out := verb(s, d)
		if s.ending != "" {
			out = strings.ReplaceAll(out, s.ending, "")
		}
		return out
	})
}

// Claim makes names ones of this scenario.
func (s *Scenario) Claim(names ...string) { s.names = append(s.names, names...) }

// Expand returns text with every name of this scenario as it is on the broker.
func (s *Scenario) Expand(text string) string {
	if s.ending == "" || len(s.names) == 0 {
		return text
	}
	quoted := make([]string, len(s.names))
	for i, name := range s.names {
		quoted[i] = regexp.QuoteMeta(name)
	}
	// A name ends where another sign than those of names follows, or where a derived name goes on after a hyphen.
	return regexp.MustCompile(`\b(`+strings.Join(quoted, "|")+`)\b`).ReplaceAllString(text, "${1}"+s.ending)
}

var common = map[string]Verb{
	"names": func(s *Scenario, d *datadriven.TestData) string {
		for _, arg := range d.CmdArgs {
			s.Claim(arg.Key)
		}
		return ""
	},
	"topic": func(s *Scenario, d *datadriven.TestData) string {
		partitions := 1
		d.MaybeScanArgs(s.T, "partitions", &partitions)
		var configs []string
		if arg, ok := d.Arg("config"); ok {
			configs = arg.Vals
		}
		s.Claim(d.CmdArgs[0].Key)
		CreateTopic(s.T, s.Opts, s.subject(d), int32(partitions), configs...)
		return ""
	},
	"produce": produce,
	"read": func(s *Scenario, d *datadriven.TestData) string {
		return table(ReadCommitted(s.T, s.Opts, s.subject(d)))
	},
	"read-all": func(s *Scenario, d *datadriven.TestData) string {
		return table(ReadAll(s.T, s.Opts, s.subject(d)))
	},
	"fold": func(s *Scenario, d *datadriven.TestData) string {
		m := Fold(s.T, s.Opts, s.subject(d))
		var b strings.Builder
		for _, key := range slices.Sorted(maps.Keys(m)) {
			fmt.Fprintf(&b, "%s %s\n", key, m[key])
		}
		return b.String()
	},
	"offsets": func(s *Scenario, d *datadriven.TestData) string {
		all := CommittedOffsets(s.T, s.Opts, s.subject(d))
		var b strings.Builder
		for _, topic := range slices.Sorted(maps.Keys(all)) {
			for _, p := range slices.Sorted(maps.Keys(all[topic])) {
				fmt.Fprintf(&b, "%s/%d=%d\n", topic, p, all[topic][p])
			}
		}
		return b.String()
	},
	"fault": installFault,
	"fired": func(s *Scenario, d *datadriven.TestData) string {
		return fmt.Sprintf("%d\n", s.fault(d).Fired())
	},
	"release": func(s *Scenario, d *datadriven.TestData) string {
		release := s.release[d.CmdArgs[0].Key]
		if release == nil {
			d.Fatalf(s.T, "no fault of kind hold is called %q", d.CmdArgs[0].Key)
		}
		release()
		return ""
	},
	"wait": func(s *Scenario, d *datadriven.TestData) string {
		task := s.subject(d)
		lines, at := s.Effects.task(task), s.Effects.shown(task)
		for want := range strings.Lines(d.Input) {
			at = lines.Wait(s.T, at, s.Expand(strings.TrimSpace(want))) + 1
		}
		return ""
	},
	"effects": func(s *Scenario, d *datadriven.TestData) string { return s.Effects.Take() },
}

// subject is the first argument, expanded: a topic or a group.
func (s *Scenario) subject(d *datadriven.TestData) string {
	if len(d.CmdArgs) == 0 {
		d.Fatalf(s.T, "%s needs a name", d.Cmd)
	}
	return s.Expand(d.CmdArgs[0].Key)
}

func produce(s *Scenario, d *datadriven.TestData) string {
	partition, ms := -1, int64(0)
	d.MaybeScanArgs(s.T, "partition", &partition)
	d.MaybeScanArgs(s.T, "time", &ms)
	var records []*kgo.Record
	for line := range strings.Lines(d.Input) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		r := &kgo.Record{Topic: s.subject(d), Partition: int32(partition), Key: []byte(key), Value: []byte(value)}
		if key == "-" {
			r.Key = nil
		}
		if value == "-" {
			r.Value = nil
		}
		if ms != 0 {
			r.Timestamp = time.UnixMilli(ms)
		}
		records = append(records, r)
	}
	Produce(s.T, s.Opts, records...)
	return ""
}

func table(records []*kgo.Record) string {
	var b strings.Builder
	for _, r := range records {
		if r.Attrs.IsControl() {
			fmt.Fprintf(&b, "%d/%d *\n", r.Partition, r.Offset)
			continue
		}
		key, value := strconv.QuoteToGraphic(string(r.Key)), string(r.Value)
		if key = key[1 : len(key)-1]; r.Key == nil {
			key = "-"
		}
		if r.Value == nil {
			value = "-"
		}
		fmt.Fprintf(&b, "%d/%d %s %s\n", r.Partition, r.Offset, key, value)
	}
	return b.String()
}

func (s *Scenario) fault(d *datadriven.TestData) *Fault {
	f := s.faults[d.CmdArgs[0].Key]
	if f == nil {
		d.Fatalf(s.T, "no fault is called %q", d.CmdArgs[0].Key)
	}
	return f
}

func installFault(s *Scenario, d *datadriven.TestData) string {
	if s.Fake == nil {
		d.Fatalf(s.T, "a real Kafka has no faults on demand")
	}
	if len(d.CmdArgs) < 2 {
		d.Fatalf(s.T, "fault needs a name and a kind")
	}
	name, kind := d.CmdArgs[0].Key, d.CmdArgs[1].Key
	var w Which
	var request, code string
	d.ScanArgs(s.T, "request", &request)
	d.MaybeScanArgs(s.T, "txn", &w.TxnID)
	d.MaybeScanArgs(s.T, "topic", &w.Topic)
	d.MaybeScanArgs(s.T, "skip", &w.Skip)
	d.MaybeScanArgs(s.T, "count", &w.Count)
	d.MaybeScanArgs(s.T, "error", &code)
	key, ok := requestKey(request)
	if !ok {
		d.Fatalf(s.T, "Kafka has no request %q", request)
	}
	w.Key = key
	var f *Fault
	switch kind {
	case "lose-request":
		f = s.Fake.LoseRequest(w)
	case "lose-answer":
		f = s.Fake.LoseAnswer(s.T, w)
	case "hold":
		f, s.release[name] = s.Fake.Hold(w)
	case "fail":
		err := errorNamed(code)
		switch {
		case err == nil:
			d.Fatalf(s.T, "Kafka has no error %q", code)
		case w.Key == kmsg.Produce:
			f = s.Fake.FailProduce(err, w)
		default:
			f = s.Fake.Fail(err, w)
		}
	default:
		d.Fatalf(s.T, "there is no fault of kind %q", kind)
	}
	s.faults[name] = f
	return ""
}

func requestKey(name string) (kmsg.Key, bool) {
	for key := range int16(kmsg.MaxKey + 1) {
		if kmsg.NameForKey(key) == name {
			return kmsg.Key(key), true
		}
	}
	return 0, false
}

// errorNamed is Kafka's error of that name, such as MESSAGE_TOO_LARGE, or nil.
func errorNamed(name string) *kerr.Error {
	for code := int16(-1); code < 200; code++ {
		if err := kerr.TypedErrorForCode(code); err != nil && err.Message == name {
			return err
		}
	}
	return nil
}
