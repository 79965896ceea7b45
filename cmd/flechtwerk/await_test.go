package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/flechtwerk/flechtwerk/engine/enginetest"
)

// desk is a server that answers a request only when the test says so.
type desk struct {
	*httptest.Server
	Asked enginetest.Lines // the paths, in the order of their arrival

	mu      sync.Mutex
	waiting map[string]chan struct{}
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{waiting: map[string]chan struct{}{}}
	d.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		wait := d.of(r.URL.Path)
		d.Asked.Add(r.URL.Path)
		select {
		case <-wait:
			_, _ = fmt.Fprintf(w, `{"path":%q}`, r.URL.Path)
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(d.Close)
	return d
}

func (d *desk) of(path string) chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.waiting[path] == nil {
		d.waiting[path] = make(chan struct{})
	}
	return d.waiting[path]
}

// answer lets requests for these paths through, whether they are there already or not.
func (d *desk) answer(paths ...string) {
	for _, path := range paths {
		close(d.of(path))
	}
}

// asked waits until a path has been asked for.
func (d *desk) asked(t *testing.T, path string) {
	t.Helper()
	d.Asked.WaitFor(t, 0, path, func(line string) bool { return line == path })
}

// awaiting is a pipeline whose bodies await, on a cluster.
type awaiting struct {
	t              *testing.T
	addr           string
	in, out, group string
	file, state    string
	desk           *desk
}

// newAwaiting writes a pipeline with one stage called s. In its text NAME stands for its name, IN and OUT for its topics, of one
// partition each, and URL for the desk. With FLECHTWERK_TIER=kafka it runs on a real Kafka.
func newAwaiting(t *testing.T, text string) *awaiting {
	t.Helper()
	a := &awaiting{t: t, desk: newDesk(t), state: t.TempDir()}
	if os.Getenv(enginetest.EnvTier) == "kafka" {
		a.addr = enginetest.Kafka(t)
	} else {
		a.addr = broker(t)
	}
	name := enginetest.Unique("await")
	a.in, a.out, a.group = name+"-in", name+"-out", name+"-s"
	for _, topic := range []string{a.in, a.out} {
		enginetest.CreateTopic(t, enginetest.At(a.addr), topic, 1)
	}
	a.file = write(t, t.TempDir(), "await.yaml", strings.NewReplacer("NAME", name, "IN", a.in, "OUT", a.out, "URL", a.desk.URL).Replace(text))
	return a
}

// transformer is the head of a pipeline with a transformer.
const transformer = `
pipeline: NAME
transformers:
  s:
    input_topics: IN
    output_topics: OUT
`

func (a *awaiting) start() *started {
	a.t.Helper()
	return start(a.t, "run", a.file, "--log-level", "debug", "-s", "kafka.brokers="+a.addr, "-s", "state.dir="+a.state, "-s", "http.listen=off", "-s", "instance.id=one")
}

// put writes records, as "key value", at once.
func (a *awaiting) put(records ...string) {
	a.t.Helper()
	enginetest.ProduceKeyed(a.t, enginetest.At(a.addr), a.in, records...)
}

// sent are the committed records of the output, as "key value", once there are n of them.
func (a *awaiting) sent(n int) (records []string) {
	a.t.Helper()
	enginetest.WaitCommitted(a.t, enginetest.At(a.addr), a.out, enginetest.AtLeast(n))
	return a.visible(a.out)
}

// visible are the records of a topic that readers of committed records see now. Those of the engine's own keys are left out.
func (a *awaiting) visible(topic string) (records []string) {
	a.t.Helper()
	for _, r := range enginetest.ReadCommitted(a.t, enginetest.At(a.addr), topic) {
		if !strings.HasPrefix(string(r.Key), "\x00") {
			records = append(records, string(r.Key)+" "+string(r.Value))
		}
	}
	return records
}

// done waits until the stage has committed n records of its input.
func (a *awaiting) done(n int64) {
	a.t.Helper()
	enginetest.WaitOffsets(a.t, enginetest.At(a.addr), a.group, map[string]map[int32]int64{a.in: {0: n}})
}

// notBeyond checks that the stage has committed no offset of its input beyond n, where it has one at all.
func (a *awaiting) notBeyond(n int64) {
	a.t.Helper()
	if got := enginetest.CommittedOffsets(a.t, enginetest.At(a.addr), a.group)[a.in]; got[0] > n {
		a.t.Errorf("the offset moved to %d", got[0])
	}
}

func (a *awaiting) expect(what string, got []string, want ...string) {
	a.t.Helper()
	if !slices.Equal(got, want) {
		a.t.Errorf("%s:\ngot  %q\nwant %q", what, got, want)
	}
}

func (a *awaiting) stopped(s *started) {
	a.t.Helper()
	if status := s.stop(); status != 0 {
		a.t.Errorf("exit status %d:\n%s", status, s.stderr.String())
	}
}

// T1, T9: through the engine, records of other keys go on while one waits, one of the same key does not begin, and outputs
// keep the order of the inputs although the answers come the other way round.
func TestT1T9AwaitOverlapsAndKeepsTheOrder(t *testing.T) {
	for name, state := range map[string]string{"with state": "state.n = (state.n ?? 0) + 1; yield State(state); ", "without": ""} {
		t.Run(name, func(t *testing.T) {
			a := newAwaiting(t, transformer+`    transform: |
      yield Message({ value: ["begin", msg.value] });
      const answer = await fetch("URL/" + msg.key + msg.value);
      `+state+`yield Message({ value: (await answer.json()).path });
`)
			a.put("a 0", "b 1", "a 2", "c 3")
			s := a.start()
			for _, path := range []string{"/a0", "/b1", "/c3"} {
				a.desk.asked(t, path)
			}
			if slices.Contains(a.desk.Asked.All(), "/a2") {
				t.Error("the second record of a began before the first was done")
			}
			if got := a.visible(a.out); len(got) != 0 {
				t.Errorf("visible while the batch waits: %q", got)
			}
			a.desk.answer("/c3", "/b1", "/a0")
			a.desk.asked(t, "/a2")
			a.desk.answer("/a2")
			a.expect("outputs", a.sent(8), `a ["begin",0]`, `a "/a0"`, `b ["begin",1]`, `b "/b1"`, `a ["begin",2]`, `a "/a2"`, `c ["begin",3]`, `c "/c3"`)
			a.done(4)
			a.stopped(s)
		})
	}
}

// T3: a later record of the batch sees the state that an earlier one yielded after it had waited; only the last state is
// written, and only if its bytes differ from the stored ones.
func TestT3AwaitSeesEarlierStateAndWritesTheLast(t *testing.T) {
	a := newAwaiting(t, transformer+`    transform: |
      state.n = (state.n ?? 0) + msg.value;
      yield State(state);
      const answer = await fetch("URL/" + msg.key + msg.offset);
      state.list = [...(state.list ?? []), (await answer.json()).path].slice(-1 - msg.value);
      yield State(state);
      yield Message({ value: state });
`)
	a.put("a 1", "a 1", "b 1", "a 1")
	s := a.start()
	for _, path := range []string{"/a0", "/a1", "/a3"} {
		a.desk.asked(t, path)
		if got := a.visible(a.group + "-changelog"); len(got) != 0 {
			t.Errorf("visible before the end of the batch: %q", got)
		}
		a.desk.answer(path)
	}
	a.desk.asked(t, "/b2")
	a.desk.answer("/b2")
	a.expect("outputs", a.sent(4), `a {"n":1,"list":["/a0"]}`, `a {"n":2,"list":["/a0","/a1"]}`, `b {"n":1,"list":["/b2"]}`, `a {"n":3,"list":["/a1","/a3"]}`)
	a.done(4)
	changes := a.visible(a.group + "-changelog")
	slices.Sort(changes)
	a.expect("changelog", changes, `a {"n":3,"list":["/a1","/a3"]}`, `b {"n":1,"list":["/b2"]}`)

	// There and back within one batch: what is stored already is not written again.
	a.desk.answer("/a4", "/a5", "/a6")
	a.put("a 1", "a -1", "a 0")
	if got := a.sent(7)[6]; got != `a {"n":3,"list":["/a6"]}` {
		t.Errorf("the last output is %s", got)
	}
	a.done(7)
	before := len(a.visible(a.group + "-changelog"))
	a.desk.answer("/c7", "/c8")
	a.put("c 0", "c 0")
	a.sent(9)
	a.done(9)
	a.stopped(s)
	if got := a.visible(a.group + "-changelog"); len(got) != before+1 || got[before] != `c {"n":0,"list":["/c8"]}` {
		t.Errorf("the changelog is %q", got)
	}
}

// T3: a state that ends as it is stored is not written, though it was another in between.
func TestT3AwaitWritesNoEqualState(t *testing.T) {
	a := newAwaiting(t, transformer+`    transform: |
      yield State({ n: 99 });
      await fetch("URL/" + msg.offset);
      yield State({ n: msg.value });
      yield Message({ value: msg.value });
`)
	a.desk.answer("/0", "/1", "/2", "/3")
	s := a.start()
	for i, record := range []string{"a 1", "a 1", "a 2", "a 2"} {
		a.put(record)
		a.sent(i + 1)
		a.done(int64(i + 1))
	}
	a.stopped(s)
	a.expect("changelog", a.visible(a.group+"-changelog"), `a {"n":1}`, `a {"n":2}`)
}

// T4: what a body changes in its state without yielding it is not there for the next call, nor in the changelog, nor after
// a restart; and what it changes after a yield, before or behind an await, has no effect on what was yielded.
func TestT4AwaitChangesWithoutYieldPersistNothing(t *testing.T) {
	a := newAwaiting(t, transformer+`    state: { n: 0, deep: { list: [] } }
    transform: |
      const get = () => fetch("URL/" + msg.offset);
      switch (msg.value) {
      case "dirty":
        state.n = 66; await get(); state.deep.list.push("dirty"); state.more = 1;
        return;
      case "late":
        const out = { n: state.n, list: [1] };
        state.n++;
        yield State(state);
        yield Message({ value: out });
        state.n = 77; out.n = 77; state.deep.list.push("late");
        await get();
        state.n = 78; out.list.push(2); state.deep.list.push("later");
        return;
      default:
        await get();
        yield Message({ value: { msg: msg.value, state } });
      }
`)
	for i := range 9 {
		a.desk.answer(fmt.Sprint("/", i))
	}
	a.put(`a "dirty"`, `a "read"`, `a "late"`, `a "dirty"`, `a "read"`)
	s := a.start()
	a.expect("outputs", a.sent(3), `a {"msg":"read","state":{"n":0,"deep":{"list":[]}}}`, `a {"n":0,"list":[1]}`, `a {"msg":"read","state":{"n":1,"deep":{"list":[]}}}`)
	a.done(5)
	a.put(`a "dirty"`, `a "read"`)
	const read = `a {"msg":"read","state":{"n":1,"deep":{"list":[]}}}`
	if got := a.sent(4)[3]; got != read {
		t.Errorf("in the next batch: %s", got)
	}
	a.done(7)
	a.stopped(s)
	a.expect("changelog", a.visible(a.group+"-changelog"), `a {"n":1,"deep":{"list":[]}}`)
	a.state = t.TempDir()
	s = a.start()
	a.put(`a "dirty"`, `a "read"`)
	if got := a.sent(5)[4]; got != read {
		t.Errorf("after a restart: %s", got)
	}
	a.done(9)
	a.stopped(s)
	if len(a.desk.Asked.All()) != 9 {
		t.Errorf("not every record waited: %q", a.desk.Asked.All())
	}
}

// T10: a body that yields something else after it has waited fails with the position, and leaves nothing.
func TestT10AwaitThenYieldOfSomethingElse(t *testing.T) {
	for name, c := range map[string]struct{ yield, want string }{
		"a plain object":   {"const v = { a: 1 }; yield v;", "script.yield"},
		"another topic":    {"const topic = 'nowhere'; yield Message({ topic, value: 1 });", "script.topic"},
		"a returned value": {"const f = () => msg.value; return f();", "script.yield"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAwaiting(t, transformer+`    transform: |
      yield Message({ value: msg.value });
      if (msg.value === 0) return;
      await fetch("URL/x");
      `+c.yield+`
`)
			a.desk.answer("/x")
			a.put("a 0", "b 1", "c 0")
			s := a.start()
			status := s.wait()
			a.desk.asked(t, "/x")
			log := s.stderr.String()
			if status != 1 || !strings.Contains(log, c.want) || !strings.Contains(log, "await.yaml:11:") || !strings.Contains(log, "offset 1") {
				t.Errorf("status %d, want 1 with %s:\n%s", status, c.want, log)
			}
			a.expect("outputs", a.visible(a.out))
			a.notBeyond(1)
		})
	}
}

// P1: a poll that awaits goes on only when its page and its cursor are committed: the server is asked for the next page only
// then.
func TestP1AwaitingPollGoesOnAfterTheCommit(t *testing.T) {
	a := newAwaiting(t, `
pipeline: NAME
extractors:
  s:
    every: 1h
    output_topics: OUT
    state: { next: 0 }
    poll: |
      for (; state.next < 3; ) {
        const answer = await fetch("URL/" + state.next);
        const path = (await answer.json()).path;
        yield Message({ value: path });
        await null;
        yield Message({ value: path + "b" });
        state.next++;
        yield State(state);
      }
`)
	s := a.start()
	var want, cursors []string
	for page := range 3 {
		path := fmt.Sprint("/", page)
		a.desk.asked(t, path)
		a.expect("outputs at "+path, a.visible(a.out), want...)
		a.expect("cursors at "+path, a.visible(a.group+"-changelog"), cursors...)
		want = append(want, fmt.Sprintf("default %q", path), fmt.Sprintf("default %q", path+"b"))
		cursors = append(cursors, fmt.Sprintf(`default {"next":%d}`, page+1))
		a.desk.answer(path)
	}
	a.expect("outputs", a.sent(6), want...)
	s.stderr.Wait(t, 0, "poll ended")
	a.stopped(s)
	a.expect("cursors", a.visible(a.group+"-changelog"), cursors...)
}

// P7: when the process stops, finally blocks of a body that waits run, no catch sees it, and what was not committed is not.
func TestP7AwaitingBodiesRunFinallyOnShutdown(t *testing.T) {
	const body = `
      try {
        yield Message({ value: 1 });
        await fetch("URL/never");
        console.log("it went on");
      } catch (e) { console.log("it was caught"); }
      finally { console.log("finally"); }
`
	for name, stage := range map[string]string{
		"poll":      "pipeline: NAME\nextractors:\n  s:\n    every: 1h\n    output_topics: OUT\n    poll: |",
		"transform": transformer + "    transform: |",
	} {
		t.Run(name, func(t *testing.T) {
			a := newAwaiting(t, stage+body)
			a.put("a 0")
			s := a.start()
			a.desk.asked(t, "/never")
			a.stopped(s)
			log := s.stderr.String()
			if strings.Count(log, "finally") != 1 || strings.Contains(log, "it went on") || strings.Contains(log, "it was caught") {
				t.Errorf("the log is\n%s", log)
			}
			a.expect("outputs", a.visible(a.out))
			a.notBeyond(0)
		})
	}
}
