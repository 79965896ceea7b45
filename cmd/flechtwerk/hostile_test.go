package main_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/flechtwerk/flechtwerk/engine/enginetest"
)

// hostileBody is a body that means no good, with the code that its record fails with; "" is none.
type hostileBody struct{ name, code, body string }

// hostileBodies are bodies that mean no good and do not wait.
var hostileBodies = []hostileBody{
	{"loop", "script.timeout", "let i = 0; for (;;) i++;"},
	{"loop-caught", "script.timeout", "for (let i = 0; ; i++) try { for (;;) i++ } catch { } finally { i = 0 }"},
	{"loop-in-catch", "script.timeout", "try { throw 1 } catch { let i = 0; for (;;) i++ }"},
	{"loop-in-getter", "script.timeout", "yield Message({ value: { get a() { let i = 0; for (;;) i++ } } });"},
	{"loop-in-generator", "script.timeout", "function* g() { let i = 0; for (;;) i++ } yield* g();"},
	{"loop-in-memo", "script.timeout", "memo('k', '1m', () => { let i = 0; for (;;) i++ });"},
	{"loop-in-functions", "script.timeout", "spin();"},
	{"loop-in-comparison", "script.timeout", "[2, 1].sort(() => { let i = 0; for (;;) i++ });"},
	{"loop-in-toJSON", "script.timeout", "yield Message({ value: { toJSON() { let i = 0; for (;;) i++ } } });"},
	{"loop-in-toPrimitive", "script.timeout", "yield Message({ value: `${{ [Symbol.toPrimitive]() { let i = 0; for (;;) i++ } }}` });"},
	{"microtasks", "script.timeout", "const f = () => Promise.resolve().then(f); f();"},
	{"recursion", "script.recursion", "const f = () => f() + 1; f();"},
	{"getter-recursion", "script.recursion", "const o = { get a() { return this.a } }; o.a;"},
	{"repeat", "script.error", "'x'.repeat(2 ** 28);"},
	{"replace", "script.error", "'a'.repeat(1e6).replace(/a/g, 'x'.repeat(1e6));"},
	{"join", "script.error", "new Array(2 ** 28).join('xx');"},
	{"long-list", "script.error", "[].indexOf.call({ length: 2 ** 53 - 1 }, 1);"},
	{"sparse-list", "script.error", "const a = []; a[4e9] = 1; a.filter(Boolean);"},
	{"long-arguments", "script.error", "Math.max.apply(null, { length: 2 ** 31 });"},
	{"array-fill", "script.error", "Array(2 ** 32 - 1).fill(0);"},
	{"bytes", "script.error", "new Uint8Array(2 ** 40);"},
	{"big-power", "script.error", "2n ** 100000000n;"},
	{"big-shift", "script.error", "1n << (10n ** 30n);"},
	{"big-bits", "script.error", "BigInt.asUintN(2 ** 40, -1n);"},
	{"proxies", "script.error", "let p = {}; for (let i = 0; i < 4e6; i++) p = new Proxy(p, {}); p.a;"},
	{"proxy-circle", "script.error", "const a = {}; Object.setPrototypeOf(a, new Proxy(a, {})); a.x;"},
	{"engine-fault", "script.engine", "[].find.call({ length: 2 }, Boolean);"},
	{"memory", "script.memory", "const a = []; for (;;) a.push('x'.repeat(1e6) + a.length);"},
	{"messages", "script.memory", "const s = 'x'.repeat(1e6); for (;;) yield Message({ value: s });"},
	{"state", "script.state", "const s = 'x'.repeat(30 << 20); state.a = s; state.b = s; state.c = s; yield State(state);"},
	{"regexp", "script.timeout", "/^(?=(a+)+$)a/.test('a'.repeat(60) + '!');"},
	{"throwing-getter", "script.error", "yield Message({ value: { get a() { throw new Error('no') } } });"},
	{"throwing-message", "script.error", "throw { get message() { throw 1 }, toString() { throw 2 } };"},
	{"pollution", "script.error", "const o = {}; o.__proto__.polluted = 1;"},
	{"built-ins", "script.error", "Array.prototype.map = 1;"},
	{"global", "script.error", "globalThis.kept = msg;"},
	{"eval", "script.error", "const e = globalThis['eval']; e('1');"},
	{"Function", "script.error", "(() => 1).constructor('return 1')();"},
	{"circle", "value.refused", "const o = {}; o.o = [o]; yield Message({ value: o });"},
	{"deep", "value.refused", "let a = []; for (let i = 0; i < 1e5; i++) a = [a]; yield Message({ value: a });"},
	{"late-change", "", "const v = { list: [1] }; yield Message({ value: v }); v.list.push(2); yield State({ v }); v.list.push(3); msg.value = null; state.n = 66;"},
}

// hostileWaits are such bodies that await.
var hostileWaits = []hostileBody{
	{"never", "script.stuck", "await new Promise(() => {});"},
	{"never-all", "script.stuck", "await Promise.all([new Promise(() => {}), 1]);"},
	{"never-race", "script.stuck", "await Promise.race([]);"},
	{"never-settled", "script.stuck", "await Promise.allSettled([new Promise(() => {})]);"},
	{"caught-end", "script.timeout", "for (;;) { try { await fetch(vars.url + '/never') } catch { } }"},
	{"finally-continue", "script.timeout", "for (;;) { try { await fetch(vars.url + '/never') } finally { continue } }"},
	{"loop-after-await", "script.timeout", "await fetch(vars.url); let i = 0; for (;;) i++;"},
	{"jobs", "script.timeout", "for (;;) await 0;"},
	{"thenable-itself", "script.timeout", "const t = { then(f) { f(t) } }; await t;"},
	{"thenable-throws", "script.error", "await { then() { throw new Error('no') } };"},
	{"rejected-late", "script.unhandled_rejection", "(async () => { await 0; throw new Error('late') })(); await fetch(vars.url);"},
	{"forgotten", "script.forgotten_await", "fetch(vars.url + '/never');"},
	{"generator-loop", "script.timeout", "async function* h() { await fetch(vars.url); let i = 0; for (;;) i++ } yield* h();"},
	{"generator-recursion", "script.recursion", "async function* h() { await fetch(vars.url); const f = () => f() + 1; f() } yield* h();"},
	{"memo-loop", "script.timeout", "await memo('w', '1m', async () => { await fetch(vars.url); let i = 0; for (;;) i++ });"},
	{"functions-loop", "script.timeout", "await spinLater();"},
	{"engine-fault-after", "script.engine", "await fetch(vars.url); [].find.call({ length: 2 }, Boolean);"},
	{"memory-after", "script.memory", "await fetch(vars.url); const a = []; for (;;) a.push('x'.repeat(1e6) + a.length);"},
	{"recursion-later", "script.memory", "const a = []; const f = async () => { await 0; a.push('x'.repeat(1e5) + a.length); await f() }; await f();"},
}

// TestHostileRecordsHarmNobody runs a pipeline whose records make bodies do what they must not, among records of other keys, with other tasks
// and another stage in the same process. Every hostile record fails and none else, all others come out as ever, the process
// lives on and stops as it should, and its memory stays bounded.
func TestHostileRecordsHarmNobody(t *testing.T) {
	if testing.Short() {
		t.Skip("runs for minutes: left out by -short")
	}
	const partitions = 3
	addr := anyKafka(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/never" {
			<-r.Context().Done()
		}
	}))
	defer server.Close()
	name := enginetest.Unique("hostile")
	var text strings.Builder
	fmt.Fprintf(&text, "pipeline: %s\nvars: { url: %q }\nfunctions: |\n  function spin() { let i = 0; for (;;) i++ }\n  async function spinLater() { await fetch(vars.url); let i = 0; for (;;) i++ }\ntransformers:\n", name, server.URL)
	stage := func(stage, timeout, first string, bodies []hostileBody) {
		fmt.Fprintf(&text, "  %s:\n    input_topics: %s-in\n    output_topics: %s-%s\n    timeout: %s\n    on_error: skip\n    transform: |\n      switch (msg.value) {\n", stage, name, name, stage, timeout)
		for _, b := range bodies {
			fmt.Fprintf(&text, "      case %q: {\n        %s\n        break; }\n", b.name, b.body)
		}
		fmt.Fprintf(&text, "      }\n      if (typeof msg.value === 'number') {\n        %s\n        state.n = (state.n ?? 0) + 1;\n        yield State(state);\n        yield Message({ value: [msg.value, state.n, {}.polluted ?? null] });\n      }\n", first)
	}
	stage("plain", "500ms", "", hostileBodies)
	// A request of a harmless record takes long while bodies of six tasks spin: their threads share the cores with all else.
	stage("waits", "2s", "await fetch(vars.url);", hostileWaits)
	fmt.Fprintf(&text, "  quiet:\n    input_topics: %s-in\n    output_topics: %s-quiet\n    message: { value: key }\n", name, name)
	file := filepath.Join(t.TempDir(), "hostile.yaml")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	opts := enginetest.At(addr)
	for _, topic := range []string{"in", "plain", "waits", "quiet"} {
		enginetest.CreateTopic(t, opts, name+"-"+topic, partitions)
	}
	// Each hostile record has a key of its own, and harmless ones of twelve keys stand before, between and behind.
	var records []string
	all := slices.Concat(hostileBodies, hostileWaits)
	n := 0
	harmless := func() {
		for range 12 {
			records = append(records, fmt.Sprintf("k%d %d", n%12, n))
			n++
		}
	}
	for _, b := range all {
		harmless()
		records = append(records, fmt.Sprintf("bad-%s %q", b.name, b.name))
	}
	harmless()
	enginetest.ProduceKeyed(t, opts, name+"-in", records...)

	binary := enginetest.Build(t, "github.com/flechtwerk/flechtwerk/cmd/flechtwerk")
	p := enginetest.Start(t, enginetest.Command{Path: binary, Args: []string{"run", file, "--log-level", "debug", "--log-format", "json", "-s", "kafka.brokers=" + addr,
		"-s", "state.dir=" + t.TempDir(), "-s", "http.listen=127.0.0.1:0"}})
	late := 0
	for _, b := range hostileBodies {
		if b.code == "" {
			late++
		}
	}
	enginetest.WaitCommitted(t, opts, name+"-quiet", enginetest.AtLeast(len(records)))
	enginetest.WaitCommitted(t, opts, name+"-plain", enginetest.AtLeast(n+late))
	enginetest.WaitCommitted(t, opts, name+"-waits", enginetest.AtLeast(n))
	peak := p.PeakMemory()
	listening := p.Stderr.All()[p.Stderr.Wait(t, 0, "for probes and metrics")]
	answer, err := http.Get("http://" + regexp.MustCompile(`"address":"([^"]+)"`).FindStringSubmatch(listening)[1] + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	metrics := string(body)
	p.Signal(t, syscall.SIGTERM)
	if status := p.Status(); status != 0 {
		t.Errorf("exit status %d:\n%s", status, p.Stderr)
	}
	for _, stage := range []string{"plain", "waits"} {
		next := map[string]int{}
		for _, r := range enginetest.ReadCommitted(t, opts, name+"-"+stage) {
			key := string(r.Key)
			if key == "bad-late-change" && string(r.Value) == `{"list":[1]}` {
				continue
			}
			var i int
			if _, err := fmt.Sscanf(key, "k%d", &i); err != nil {
				t.Fatalf("stage %s sent %s %s", stage, key, r.Value)
			}
			if want := fmt.Sprintf("[%d,%d,null]", next[key]*12+i, next[key]+1); string(r.Value) != want {
				t.Errorf("stage %s, key %s: %s, want %s", stage, key, r.Value, want)
			}
			next[key]++
		}
	}
	for stage, bodies := range map[string][]hostileBody{"plain": hostileBodies, "waits": hostileWaits} {
		want := len(bodies)
		for _, b := range bodies {
			if b.code == "" {
				want--
			}
		}
		sample := fmt.Sprintf(`flechtwerk_records_failed_total{pipeline=%q,policy="skip",stage=%q,topic=%q} %d`, name, stage, name+"-in", want)
		if !strings.Contains(metrics, sample) {
			t.Errorf("not every hostile record failed: there is no %s in\n%s", sample, metrics)
		}
	}
	shown := 0
	for _, line := range p.Stderr.All() {
		if !strings.Contains(line, `"record failed"`) {
			continue
		}
		shown++
		i := slices.IndexFunc(all, func(b hostileBody) bool {
			return b.code != "" && strings.Contains(line, fmt.Sprintf(`"code":%q`, b.code))
		})
		if i < 0 || !strings.Contains(line, "hostile.yaml:") {
			t.Errorf("a failure without its code or place: %s", line)
		}
	}
	if shown == 0 {
		t.Error("the log shows no failure")
	}
	t.Logf("the process held %d MiB at most", peak)
	if peak > 3000 {
		t.Errorf("the process held %d MiB", peak)
	}
}
