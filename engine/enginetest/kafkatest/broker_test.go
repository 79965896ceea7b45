package kafkatest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// startOrSkip is for this package's own tests, which need a broker of their own to kill.
func startOrSkip(t *testing.T) *Broker {
	t.Helper()
	if os.Getenv("FLECHTWERK_TIER") != "kafka" {
		t.Skip("starts a real Kafka: it runs with FLECHTWERK_TIER=kafka, as in `make integration`")
	}
	b, err := Start(t.Context(), Config{})
	if errors.Is(err, ErrNoJava) && os.Getenv("FLECHTWERK_REQUIRE_KAFKA") != "1" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func TestBrokerKeepsItsDataOverKillAndRestart(t *testing.T) {
	b := startOrSkip(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()), kgo.DefaultProduceTopic("kept"), kgo.ConsumeTopics("kept"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := kadm.NewClient(client).CreateTopic(ctx, 1, 1, nil, "kept"); err != nil {
		t.Fatal(err)
	}
	if err := client.ProduceSync(ctx, kgo.StringRecord("still here")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	first := b.keeper.pid
	if err := b.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(first, 0); !errors.Is(err, syscall.ESRCH) {
		t.Fatalf("the killed JVM is still there: %v", err)
	}
	if err := b.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	fetches := client.PollFetches(ctx)
	for fetches.NumRecords() == 0 && ctx.Err() == nil {
		fetches = client.PollFetches(ctx)
	}
	if got := fetches.Records(); len(got) != 1 || string(got[0].Value) != "still here" {
		t.Fatalf("after the restart: %v, %v", got, fetches.Errors())
	}
	dir := b.dir
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatalf("second Close: %v", err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Fatalf("Close left %s: %v", dir, err)
	}
}

// A keeper that loses its standard input, as when its parent is killed, ends the process that it keeps and deletes the folder.
func TestKeeperCleansUpAfterItsParent(t *testing.T) {
	dir := t.TempDir() + "/node"
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	k, err := keep(dir, dir+"/broker.log", "sleep", "600")
	if err != nil {
		t.Fatal(err)
	}
	if err := k.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	<-k.ended
	if err := syscall.Kill(k.pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d is still there: %v", k.pid, err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder is still there: %v", err)
	}
}

func TestStartNamesWhatIsMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := exec.LookPath("java"); err == nil {
		t.Fatal("java is found without a PATH")
	}
	_, err := Start(t.Context(), Config{})
	if !errors.Is(err, ErrNoJava) || !strings.Contains(err.Error(), "java is missing") {
		t.Fatalf("got %v", err)
	}
}
