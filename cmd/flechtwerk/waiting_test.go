package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flechtwerk/flechtwerk/engine/enginetest"
	"github.com/flechtwerk/flechtwerk/engine/pipeline"
)

// asking writes a pipeline that takes so many seeded records with so many keys to a stage.
func asking(t *testing.T, records, keys int, stage string) (path string) {
	t.Helper()
	var seed strings.Builder
	for i := range records {
		fmt.Fprintf(&seed, "        - { key: k%d, n: %d }\n", i%keys, i)
	}
	return write(t, t.TempDir(), "p.yaml", `pipeline: p
topics:
  questions:
    partitions: 1
    seed:
      key: key
      records:
`+seed.String()+`  answers: { partitions: 1 }
transformers:
  ask:
    input_topics: questions
    output_topics: answers
`+stage)
}

// T1, T9: of 500 records of 100 keys that each wait 100 ms for a web server, 64 wait at once and never two of a key, what
// comes out is in the order of what came in, and all of it takes about a second.
func TestT1RunOfRecordsThatWait(t *testing.T) {
	const records, keys, each = 500, 100, 100 * time.Millisecond
	var mu sync.Mutex
	var began, ended time.Time
	running, most := map[string]int{}, 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, all := r.URL.Query().Get("key"), 0
		mu.Lock()
		if began.IsZero() {
			began = time.Now()
		}
		if running[key]++; running[key] > 1 {
			t.Errorf("two requests of %s at once", key)
		}
		for _, n := range running {
			all += n
		}
		most = max(most, all)
		mu.Unlock()
		<-time.After(each) // the server's work
		mu.Lock()
		running[key]--
		ended = time.Now()
		mu.Unlock()
		_, _ = io.WriteString(w, `{"n":`+r.URL.Query().Get("n")+`}`)
	}))
	defer server.Close()
	s := start(t, "run", "--dev", "-s", "http.listen=127.0.0.1:0", "--print", "answers", asking(t, records, keys, `    transform: |
      const answer = await fetch('`+server.URL+`', { query: { key: msg.key, n: msg.value.n } });
      state.count = (state.count ?? 0) + 1;
      yield State(state);
      yield Message({ value: { n: (await answer.json()).n, count: state.count } });
`))
	for i, got := range printed(t, s, records) {
		if want := fmt.Sprintf(`k%d {"n":%d,"count":%d}`, i%keys, i, i/keys+1); got != want {
			t.Fatalf("record %d is %s, want %s", i, got, want)
		}
	}
	if most != pipeline.DefaultConcurrency {
		t.Errorf("%d at once at most", most)
	}
	took := ended.Sub(began)
	t.Logf("%d records took %s", records, took.Round(time.Millisecond))
	if took > records*each/10 {
		t.Errorf("%d records took %s", records, took)
	}
	if status := s.stop(); status != 0 {
		t.Errorf("exit status %d: %s", status, s.stderr.String())
	}
}

// A transformer with on_error: { retry: … } whose body calls what is down: only that task pauses, nothing of it is committed,
// and once the server answers again all comes out in order, once.
func TestRetryOfABodyWhoseServerIsDown(t *testing.T) {
	var down atomic.Bool
	down.Store(true)
	refused := make(chan struct{}, 1000)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/3" && down.Load() {
			http.Error(w, "closed", http.StatusServiceUnavailable)
			refused <- struct{}{}
			return
		}
		_, _ = io.WriteString(w, r.URL.Path[1:])
	}))
	defer server.Close()
	var seed strings.Builder
	for i := range 6 {
		fmt.Fprintf(&seed, "        - { key: a, n: %d }\n", i) // partition 0
	}
	for i := range 4 {
		fmt.Fprintf(&seed, "        - { key: abc, n: %d }\n", 10+i) // partition 1
	}
	s := start(t, "run", "--dev", "-s", "http.listen=127.0.0.1:0", "-s", "log.level=debug", "--print", "answers", write(t, t.TempDir(), "p.yaml", `pipeline: p
topics:
  questions:
    partitions: 2
    seed:
      key: key
      records:
`+seed.String()+`  answers: { partitions: 2 }
transformers:
  ask:
    input_topics: questions
    output_topics: answers
    on_error: { retry: 20ms..100ms }
    transform: |
      const answer = await fetch('`+server.URL+`/' + msg.value.n, { expect: 200 });
      state.list = [...(state.list ?? []), Number(await answer.text())];
      yield State(state);
      yield Message({ value: state.list });
`))
	// The other task goes on meanwhile.
	for range 3 {
		<-refused
	}
	want := []string{"abc [10]", "abc [10,11]", "abc [10,11,12]", "abc [10,11,12,13]"}
	if got := printed(t, s, 4); !slices.Equal(got, want) {
		t.Errorf("while the server is down: %s", got)
	}
	for range 3 {
		<-refused
	}
	if got := s.records(t); len(got) != 4 {
		t.Errorf("of the task that pauses came %s", got[4:])
	}
	down.Store(false)
	want = append(want, "a [0]", "a [0,1]", "a [0,1,2]", "a [0,1,2,3]", "a [0,1,2,3,4]", "a [0,1,2,3,4,5]")
	if got := printed(t, s, 10); !slices.Equal(got, want) {
		t.Errorf("got %s", got)
	}
	if log := s.stderr.String(); !strings.Contains(log, "answered 503") || !strings.Contains(log, "code=script.error thrown_code=status") {
		t.Error(log)
	}
	if status := s.stop(); status != 0 {
		t.Errorf("exit status %d: %s", status, s.stderr.String())
	}
}

// Of a batch whose server now and then fails, each request is sent again that failed, and no other: a batch comes to its end however
// many records it has.
func TestRetryAsksOnlyForWhatFailed(t *testing.T) {
	const records, keys = 600, 20
	var mu sync.Mutex
	asked := map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked[r.URL.Path]++
		n := asked[r.URL.Path]
		mu.Unlock()
		switch {
		case n == 1 && strings.HasSuffix(r.URL.Path, "7"):
			http.Error(w, "oops", http.StatusInternalServerError)
		case n < 3 && strings.HasSuffix(r.URL.Path, "33"):
			panic(http.ErrAbortHandler) // resets the connection
		default:
			_, _ = io.WriteString(w, r.URL.Path[1:])
		}
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	defer server.Close()
	s := start(t, "run", "--dev", "-s", "http.listen=127.0.0.1:0", "--print", "answers", asking(t, records, keys, `    on_error: { retry: 1ms..10ms }
    transform: |
      const answer = await fetch('`+server.URL+`/' + msg.value.n, { expect: 200 });
      state.count = (state.count ?? 0) + 1;
      yield State(state);
      yield Message({ value: { n: Number(await answer.text()), count: state.count } });
`))
	for i, got := range printed(t, s, records) {
		if want := fmt.Sprintf(`k%d {"n":%d,"count":%d}`, i%keys, i, i/keys+1); got != want {
			t.Fatalf("record %d is %s, want %s", i, got, want)
		}
	}
	if status := s.stop(); status != 0 {
		t.Errorf("exit status %d: %s", status, s.stderr.String())
	}
	for i := range records {
		path, want := fmt.Sprint("/", i), 1
		switch {
		case i%10 == 7:
			want = 2
		case i%100 == 33:
			want = 3
		}
		if asked[path] != want {
			t.Errorf("%s was asked for %d times, want %d", path, asked[path], want)
		}
	}
}

// T8: configs that change while a record waits to run again are there when it does, for all records of its batch.
func TestT8RetrySeesChangedConfigs(t *testing.T) {
	for name, wait := range map[string]string{"at once": "", "waiting": "await fetch('URL/x');"} {
		t.Run(name, func(t *testing.T) {
			a := newAwaiting(t, `
pipeline: NAME
topics: { NAME-rates: { partitions: 1 } }
transformers:
  s:
    input_topics: IN
    output_topics: OUT
    config_topics: NAME-rates
    on_error: { retry: 1ms..10ms }
    transform: |
      `+wait+`
      if (!configs.get(msg.value)) throw new Error('no rate for ' + msg.value);
      yield Message({ value: ['eur', 'usd'].map(key => configs.get(key)?.rate) });
`)
			a.desk.answer("/x")
			rates := strings.TrimSuffix(a.in, "-in") + "-rates"
			enginetest.CreateTopic(t, enginetest.At(a.addr), rates, 1, "cleanup.policy=compact")
			enginetest.ProduceKeyed(t, enginetest.At(a.addr), rates, `eur {"rate":1}`)
			a.put(`a "eur"`, `b "usd"`, `c "eur"`)
			s := a.start()
			s.stderr.Wait(t, 0, "no rate for usd")
			enginetest.ProduceKeyed(t, enginetest.At(a.addr), rates, `usd {"rate":2}`)
			a.expect("outputs", a.sent(3), "a [1,2]", "b [1,2]", "c [1,2]")
			a.stopped(s)
		})
	}
}

// R8: a task that waits for a record to run again stops at once, finally blocks of what is under way run, and all of the batch is left to
// the next start.
func TestR8RetryEndsWithTheProcess(t *testing.T) {
	for name, wait := range map[string]string{"at once": "", "waiting": "await fetch('URL/' + msg.key);"} {
		t.Run(name, func(t *testing.T) {
			a := newAwaiting(t, `
pipeline: NAME
transformers:
  s:
    input_topics: IN
    output_topics: OUT
    on_error: { retry: 1h..2h }
    transform: |
      state.n = (state.n ?? 0) + 1;
      yield State(state);
      yield Message({ value: state.n });
      try { `+wait+` } finally { console.log('left', msg.key); }
      if (msg.key === 'b' && msg.value === 'bad') throw new Error('not yet');
`)
			a.desk.answer("/b")
			a.put(`a 1`, `b "bad"`, `b 1`)
			s := a.start()
			s.stderr.Wait(t, 0, "not yet")
			a.stopped(s)
			if log := s.stderr.String(); strings.Contains(log, "abandoned") || !strings.Contains(log, "left a") {
				t.Error(log)
			}
			a.expect("outputs", a.visible(a.out))
			a.expect("changelog", a.visible(a.group+"-changelog"))
			if got := enginetest.CommittedOffsets(t, enginetest.At(a.addr), a.group)[a.in]; got[0] > 0 {
				t.Errorf("the offset moved to %d", got[0])
			}
		})
	}
}
