package kafkatest

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/flechtwerk/flechtwerk/engine/devcluster"
)

// Kafka's own Java clients join the embedded broker of `run --dev`.
func TestJavaClientsJoinTheEmbeddedBroker(t *testing.T) {
	if os.Getenv("FLECHTWERK_TIER") != "kafka" {
		t.Skip("starts a JVM: it runs with FLECHTWERK_TIER=kafka, as in `make integration`")
	}
	classpath, err := jars(t.Context())
	if errors.Is(err, ErrNoJava) && os.Getenv("FLECHTWERK_REQUIRE_KAFKA") != "1" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := devcluster.Start(devcluster.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	java := exec.CommandContext(t.Context(), "java", "-cp", classpath, "testdata/Join.java", cluster.Addrs()[0])
	var log strings.Builder
	java.Stderr = &log
	out, err := java.Output()
	if strings.Contains(log.String(), "jdk.compiler") {
		t.Skip("this Java has no compiler, so it runs no source file")
	}
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, log.String())
	}
	want := "topics [joined]\nclassic value 0\nclassic value 2\nconsumer value 0\nconsumer value 2\n"
	var got strings.Builder
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "topics") || strings.HasPrefix(line, "classic") || strings.HasPrefix(line, "consumer") {
			got.WriteString(line)
		}
	}
	if got.String() != want {
		t.Errorf("got\n%s\nwant\n%s\n%s", got.String(), want, log.String())
	}
}
