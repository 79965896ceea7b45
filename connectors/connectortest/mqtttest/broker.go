// Package mqtttest is what tests of MQTT sessions need: brokers (one inside the test, and Debian's mosquitto), a tap that
// records what goes over the wire and can break it, and a publisher.
package mqtttest

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	mochi "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/listeners"
	"github.com/mochi-mqtt/server/v2/packets"
)

// Embedded starts a broker inside the test and answers its address. It ends with the test. Everybody may do everything.
func Embedded(t testing.TB) string {
	t.Helper()
	return serve(t, &access{})
}

// EmbeddedWithUser is Embedded for one user only.
func EmbeddedWithUser(t testing.TB, user, password string) string {
	t.Helper()
	return serve(t, &access{user: user, password: password})
}

// access lets in who has the user and the password, if there are any.
type access struct {
	mochi.HookBase
	user, password string
}

func (a *access) ID() string { return "access" }

func (a *access) Provides(b byte) bool { return b == mochi.OnConnectAuthenticate || b == mochi.OnACLCheck }

func (a *access) OnConnectAuthenticate(_ *mochi.Client, pk packets.Packet) bool {
	return a.user == "" || string(pk.Connect.Username) == a.user && string(pk.Connect.Password) == a.password
}

func (a *access) OnACLCheck(*mochi.Client, string, bool) bool { return true }

// Capabilities are those of a broker that loses nothing: mochi's own drop what is queued over 8,192 messages.
func Capabilities() *mochi.Capabilities {
	c := mochi.NewDefaultServerCapabilities()
	c.MaximumInflight = math.MaxUint16
	c.MaximumClientWritesPending = math.MaxUint16
	return c
}

func serve(t testing.TB, hook mochi.Hook) string {
	t.Helper()
	server := mochi.New(&mochi.Options{Logger: slog.New(slog.DiscardHandler), Capabilities: Capabilities()})
	if err := server.AddHook(hook, nil); err != nil {
		t.Fatal(err)
	}
	tcp := listeners.NewTCP(listeners.Config{ID: "test", Address: "127.0.0.1:0"})
	if err := server.AddListener(tcp); err != nil {
		t.Fatal(err)
	}
	if err := server.Serve(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return tcp.Address()
}

// Mosquitto is a running mosquitto of its own folder and port.
type Mosquitto struct {
	Addr string

	t      testing.TB
	folder string
	cmd    *exec.Cmd
	exited chan struct{}
}

// NewMosquitto starts a mosquitto with sessions on disk and no limit to its queues. Where there is none, the test is skipped,
// or fails if FLECHTWERK_REQUIRE_MOSQUITTO is set. It ends with the test.
func NewMosquitto(t testing.TB, settings ...string) *Mosquitto {
	t.Helper()
	path, err := exec.LookPath("mosquitto")
	if err != nil {
		// Debian has it where the path of ordinary users does not lead.
		if path, err = exec.LookPath("/usr/sbin/mosquitto"); err != nil {
			if os.Getenv("FLECHTWERK_REQUIRE_MOSQUITTO") != "" {
				t.Fatal("there is no mosquitto on this machine, and FLECHTWERK_REQUIRE_MOSQUITTO is set")
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
