package enginetest

import (
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

func TestFakeProcessServesAndEndsWithItsInput(t *testing.T) {
	addr := StartFakeProcess(t, "message.max.bytes=2000")
	CreateTopic(t, At(addr), "in", 3)
	Produce(t, At(addr), &kgo.Record{Topic: "in", Partition: 2, Value: []byte("x")})
	if got := ReadCommitted(t, At(addr), "in"); len(got) != 1 || got[0].Partition != 2 {
		t.Fatalf("read %d records", len(got))
	}

	p := Start(t, Command{Path: Build(t, "github.com/flechtwerk/flechtwerk/engine/enginetest/fakebroker")})
	p.Stdout.Wait(t, 0, "127.0.0.1:")
	p.CloseInput()
	if status := p.Status(); status != 0 {
		t.Fatalf("exit status %d\n%s", status, p.Stderr)
	}
	bad := Start(t, Command{Path: Build(t, "github.com/flechtwerk/flechtwerk/engine/enginetest/fakebroker"), Args: []string{"-set", "x"}})
	if status := bad.Status(); status != 2 || !strings.Contains(bad.Stderr.String(), "not name=value") {
		t.Fatalf("exit status %d\n%s", status, bad.Stderr)
	}
}

func TestProcessIsKilled(t *testing.T) {
	p := Start(t, Command{Path: "sh", Args: []string{"-c", `echo "$GREETING"; echo oops >&2; read forever`}, Env: []string{"GREETING=hello"}})
	p.Stdout.Wait(t, 0, "hello")
	p.Stderr.Wait(t, 0, "oops")
	p.Kill()
	if status := p.Status(); status != -int(syscall.SIGKILL) {
		t.Fatalf("status %d", status)
	}
	p.Signal(t, syscall.SIGTERM)
}
