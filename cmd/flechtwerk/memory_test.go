package main

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// The tasks of a stage remember together: memo computes once for both, log.once speaks once; what they log and count is of
// the stage.
func TestTasksOfAStageRememberTogether(t *testing.T) {
	s := start(t, "run", "--dev", "-s", "http.listen=127.0.0.1:0", "--print", "out", write(t, t.TempDir(), "p.yaml", `pipeline: p
topics:
  in:
    partitions: 2
    seed: { key: k, records: [{ k: a }, { k: abc }, { k: a }, { k: abc }] }
  out: { partitions: 2 }
transformers:
  t:
    input_topics: in
    output_topics: out
    transform: |
      const rate = memo('rate', '1h', () => { console.info('computed'); return { rate: 5 }; });
      const slow = await memo('slow', '1h', async () => { console.info('computed slowly'); return await 6; });
      if (log.once('first', 'only once', { key: msg.key })) metrics.count('first');
      metrics.count('seen', 2.5);
      log.info('seen', { key: msg.key, value: msg.value });
      memory.set(msg.key, true);
      yield Message({ value: [rate.rate, slow, msg.partition] });
`))
	partitions := map[string]bool{}
	for _, line := range printed(t, s, 4) {
		partitions[line[len(line)-2:]] = true
		if !strings.Contains(line, "[5,6,") {
			t.Error(line)
		}
	}
	if len(partitions) != 2 {
		t.Errorf("the records were in partitions %v", partitions)
	}
	log := s.stderr.String()
	for text, want := range map[string]int{
		`level=info msg=computed stage=p/t`: 1, `msg="computed slowly" stage=p/t`: 1, `level=warn msg="only once" stage=p/t fields.key=a`: 1, `level=info msg=seen stage=p/t fields.key=a`: 4,
		`fields.key=abc fields.value="{\"k\":\"abc\"}"`: 2,
	} {
		if n := strings.Count(log, text); n != want {
			t.Errorf("the log says %q %d times:\n%s", text, n, log)
		}
	}
	address := regexp.MustCompile(`for probes and metrics" address=(\S+)`).FindStringSubmatch(log)[1]
	answer, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`flechtwerk_script_count_total{name="first",pipeline="p",stage="t"} 1`, `flechtwerk_script_count_total{name="seen",pipeline="p",stage="t"} 10`} {
		if !strings.Contains(string(text), want+"\n") {
			t.Errorf("the metrics do not say %s", want)
		}
	}
	if status := s.stop(); status != 0 {
		t.Errorf("exit status %d", status)
	}
}
