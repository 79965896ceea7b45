// Package mqtttest is what tests of MQTT sessions need: brokers (one inside the test, and Debian's mosquitto), a tap that
// records what goes over the wire and can break it, and a publisher.
package mqtttest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/flechtwerk/flechtwerk/connectors/mqtt/devbroker"
)

// Embedded starts a broker inside the test and answers its address. It ends with the test.
func Embedded(t testing.TB) string { return EmbeddedWith(t, devbroker.Config{}) }

// EmbeddedWith is Embedded with settings; the address is any free one.
func EmbeddedWith(t testing.TB, config devbroker.Config) string {
	t.Helper()
	config.Address = "127.0.0.1:0"
	broker, err := devbroker.Start(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	return broker.Addr()
}

// Mosquitto is a running mosquitto of its own folder and port.
type Mosquitto struct {
	Addr string

	t      testing.TB
	folder string
	cmd    *exec.Cmd
	exited chan struct{}
}

// NewMosquitto starts a mosquitto with sessions on disk and no limit to its queues. Where there is none, or outside of the
// second tier, the test is skipped; it fails where FLECHTWERK_REQUIRE_MOSQUITTO is 1. It ends with the test.
func NewMosquitto(t testing.TB, settings ...string) *Mosquitto {
	t.Helper()
	required := os.Getenv("FLECHTWERK_REQUIRE_MOSQUITTO") == "1"
	if os.Getenv("FLECHTWERK_TIER") != "kafka" && !required {
		t.Skip("starts a mosquitto: it runs with FLECHTWERK_TIER=kafka, as in `make integration`")
	}
	path, err := exec.LookPath("mosquitto")
	if err != nil {
		// Debian has it where the path of ordinary users does not lead.
		if path, err = exec.LookPath("/usr/sbin/mosquitto"); err != nil {
			if required {
				t.Fatal("there is no mosquitto on this machine, and FLECHTWERK_REQUIRE_MOSQUITTO is 1")
			}
			t.Skip("there is no mosquitto on this machine (apt-get install mosquitto)")
		}
	}
	m := &Mosquitto{t: t, folder: t.TempDir()}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m.Addr = free.Addr().String()
	free.Close()
	_, port, _ := net.SplitHostPort(m.Addr)
	conf := "listener " + port + " 127.0.0.1\nallow_anonymous true\npersistence true\npersistence_location " + m.folder +
		"/\nautosave_interval 1\nautosave_on_changes false\nmax_queued_messages 0\nuser root\n"
	for _, s := range settings {
		conf += s + "\n"
	}
	if err := os.WriteFile(filepath.Join(m.folder, "mosquitto.conf"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	m.start(path)
	t.Cleanup(m.Stop)
	return m
}

func (m *Mosquitto) start(path string) {
	m.t.Helper()
	log, err := os.OpenFile(filepath.Join(m.folder, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		m.t.Fatal(err)
	}
	defer log.Close()
	m.cmd = exec.Command(path, "-c", filepath.Join(m.folder, "mosquitto.conf"))
	m.cmd.Stderr, m.cmd.Stdout = log, log
	if err := m.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.exited = make(chan struct{})
	go func() {
		_ = m.cmd.Wait()
		close(m.exited)
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := reachable(ctx, m.Addr, m.exited); err != nil {
		text, _ := os.ReadFile(filepath.Join(m.folder, "log"))
		m.t.Fatalf("mosquitto: %v\n%s", err, text)
	}
}

// reachable waits until somebody listens at addr.
func reachable(ctx context.Context, addr string, exited <-chan struct{}) error {
	retry := time.NewTicker(10 * time.Millisecond)
	defer retry.Stop()
	for {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", addr)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("nobody listens at %s: %w", addr, err)
		case <-exited:
			return fmt.Errorf("it ended")
		case <-retry.C:
		}
	}
}

// Restart stops it in good order, so that it writes its sessions, and starts it again.
func (m *Mosquitto) Restart() {
	m.t.Helper()
	path := m.cmd.Path
	m.Stop()
	m.start(path)
}

// Stop stops it in good order.
func (m *Mosquitto) Stop() {
	select {
	case <-m.exited:
		return
	default:
	}
	_ = m.cmd.Process.Signal(os.Interrupt)
	select {
	case <-m.exited:
	case <-time.After(10 * time.Second):
		_ = m.cmd.Process.Kill()
		<-m.exited
	}
}
