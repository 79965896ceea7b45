// Package kafkatest starts a real Apache Kafka, one node in KRaft mode, for tests and benchmarks. It needs Java 17 and
// Maven, no container.
//
// How a broker lives and dies:
//
//  1. A shell is the broker's keeper. It starts the JVM, says its process id and its end on standard output, and waits for
//     the end of its standard input, a pipe that this process holds.
//  2. When the pipe closes, by Close or because this process is gone, however it went, the keeper stops the JVM and deletes
//     its folder. So a killed test leaves nothing behind.
//  3. Kill is SIGKILL to the JVM alone; the data stays. Restart starts the next one under a new keeper on the same folder
//     and port; the old keeper was told to leave the folder alone.
package kafkatest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"text/template"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Version is the release of Apache Kafka that is started.
const Version = "4.4.0"

// Config says how the broker is started. The zero value is right for tests.
type Config struct {
	// Heap is the size of the JVM's heap as its options write it; "768m" by default.
	Heap string
	// Settings are further lines of server.properties, which win over ours.
	Settings map[string]string
	// Listeners are further addresses of the broker by name, with their protocol: SSL, SASL_PLAINTEXT or SASL_SSL.
	Listeners map[string]string
}

// Broker is a running Apache Kafka.
type Broker struct {
	config    Config
	dir       string
	classpath string
	port      int
	listeners map[string]int // their ports

	mu     sync.Mutex
	keeper *keeper // nil once closed
}

// Start starts an empty broker and returns when it answers requests and its coordinators are there. The error is
// ErrNoJava, wrapped, on a machine that cannot run it.
func Start(ctx context.Context, config Config) (*Broker, error) {
	if config.Heap == "" {
		config.Heap = "768m"
	}
	classpath, err := jars(ctx)
	if err != nil {
		return nil, err
	}
	// A port that was free a moment ago can be taken by the time the JVM binds it.
	for try := 1; ; try++ {
		b, err := start(ctx, config, classpath)
		if err == nil || try == 3 || !errors.Is(err, errPortTaken) {
			return b, err
		}
	}
}

func start(ctx context.Context, config Config, classpath string) (*Broker, error) {
	dir, err := os.MkdirTemp("", "flechtwerk-kafka-")
	if err != nil {
		return nil, fmt.Errorf("make the broker's folder: %w", err)
	}
	b := &Broker{config: config, dir: dir, classpath: classpath}
	if err := b.format(ctx); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	if err := b.boot(ctx); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// Addr is the bootstrap address, host:port.
func (b *Broker) Addr() string { return "127.0.0.1:" + strconv.Itoa(b.port) }

// Listener is the address of one of the further listeners, host:port.
func (b *Broker) Listener(name string) string { return "127.0.0.1:" + strconv.Itoa(b.listeners[name]) }

// LogFile is the path of the broker's own log.
func (b *Broker) LogFile() string { return filepath.Join(b.dir, "broker.log") }

// Kill ends the JVM with SIGKILL and returns when it is gone. Its data stays.
func (b *Broker) Kill() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.keeper == nil {
		return errors.New("kill broker: it is closed")
	}
	return b.keeper.kill()
}

// Restart starts a killed broker again, with its data and under its address, and returns when it answers.
func (b *Broker) Restart(ctx context.Context) error {
	if err := b.Kill(); err != nil {
		return err
	}
	b.mu.Lock()
	b.keeper.dismiss()
	b.mu.Unlock()
	return b.boot(ctx)
}

// Close stops the broker and deletes its data.
func (b *Broker) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.keeper == nil {
		return os.RemoveAll(b.dir)
	}
	b.keeper.dismiss()
	b.keeper = nil
	return os.RemoveAll(b.dir)
}

var errPortTaken = errors.New("a port was taken by another process")

var properties = template.Must(template.New("server.properties").Parse(`process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{{.Controller}}
listeners=PLAINTEXT://127.0.0.1:{{.Port}},CONTROLLER://127.0.0.1:{{.Controller}}{{range $name, $port := .Ports}},{{$name}}://127.0.0.1:{{$port}}{{end}}
advertised.listeners=PLAINTEXT://127.0.0.1:{{.Port}}{{range $name, $port := .Ports}},{{$name}}://127.0.0.1:{{$port}}{{end}}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT{{range $name, $protocol := .Protocols}},{{$name}}:{{$protocol}}{{end}}
log.dirs={{.Dir}}/data
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=8
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=8
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=500
log.initial.task.delay.ms=500
log.retention.check.interval.ms=500
{{range $key, $value := .Settings}}{{$key}}={{$value}}
{{end}}`))

const logging = `Configuration:
  Appenders: {Console: {name: out, PatternLayout: {pattern: "%d %p %c{1} %m%n"}}}
  Loggers: {Root: {level: WARN, AppenderRef: [{ref: out}]}}
`

// format writes the settings and an empty data folder.
func (b *Broker) format(ctx context.Context) error {
	ports, err := freePorts(2 + len(b.config.Listeners))
	if err != nil {
		return err
	}
	b.port, b.listeners = ports[0], map[string]int{}
	for name := range b.config.Listeners {
		b.listeners[name] = ports[2+len(b.listeners)]
	}
	var text bytes.Buffer
	if err := properties.Execute(&text, map[string]any{
		"Port": ports[0], "Controller": ports[1], "Dir": b.dir, "Settings": b.config.Settings,
		"Ports": b.listeners, "Protocols": b.config.Listeners,
	}); err != nil {
		return fmt.Errorf("write the broker's settings: %w", err)
	}
	if err := os.WriteFile(filepath.Join(b.dir, "server.properties"), text.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write the broker's settings: %w", err)
	}
	if err := os.WriteFile(filepath.Join(b.dir, "log4j2.yaml"), []byte(logging), 0o644); err != nil {
		return fmt.Errorf("write the broker's log settings: %w", err)
	}
	var id [16]byte
	rand.Read(id[:])
	id[0] &= 0x7f // the tool takes a leading '-' for an option
	tool := exec.CommandContext(ctx, "java", "-XX:TieredStopAtLevel=1", "-cp", b.classpath, "kafka.tools.StorageTool",
		"format", "-t", base64.RawURLEncoding.EncodeToString(id[:]), "-c", filepath.Join(b.dir, "server.properties"))
	if out, err := tool.CombinedOutput(); err != nil {
		return fmt.Errorf("format the broker's data folder: %w\n%s", err, out)
	}
	return nil
}

func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("look for a free port: %w", err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// boot starts a JVM on the folder and waits until it answers.
func (b *Broker) boot(ctx context.Context) error {
	k, err := keep(b.dir, b.LogFile(), "java", "-Xms"+b.config.Heap, "-Xmx"+b.config.Heap, "-XX:+UseG1GC",
		"-Dlog4j2.configurationFile="+filepath.Join(b.dir, "log4j2.yaml"), "-cp", b.classpath, "kafka.Kafka",
		filepath.Join(b.dir, "server.properties"))
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.keeper = k
	b.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	waiting, give := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-k.gone:
			give(errors.New("the JVM ended"))
		case <-waiting.Done():
		}
	}()
	err = await(waiting, b.Addr())
	give(nil)
	if err == nil {
		return nil
	}
	log, _ := os.ReadFile(b.LogFile())
	if bytes.Contains(log, []byte("BindException")) {
		err = errPortTaken
	}
	return fmt.Errorf("start Apache Kafka %s: %w\n%s", Version, err, tail(log, 4000))
}

func tail(text []byte, n int) []byte { return text[max(0, len(text)-n):] }

// await returns when the broker at addr answers, its features are final, and group and transaction coordinators answer: the
// first question makes the broker create their topics, which takes a second that no test should pay for by surprise.
func await(ctx context.Context, addr string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.RequestRetries(0), kgo.DialTimeout(time.Second))
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	defer client.Close()
	steps := []func() error{
		func() error { return transactionVersion(ctx, client) },
		func() error { return coordinator(ctx, client, 0) },
		func() error { return coordinator(ctx, client, 1) },
	}
	for _, step := range steps {
		for {
			err := step()
			if err == nil {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("%w; the last answer: %w", context.Cause(ctx), err)
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	return nil
}

func transactionVersion(ctx context.Context, client *kgo.Client) error {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "flechtwerk", "test"
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	for _, f := range resp.FinalizedFeatures {
		if f.Name == "transaction.version" && f.MaxVersionLevel >= 2 {
			return nil
		}
	}
	return errors.New("feature transaction.version is not 2 yet")
}

func coordinator(ctx context.Context, client *kgo.Client, kind int8) error {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorType = kind
	req.CoordinatorKey = "flechtwerk-warm-up"
	req.CoordinatorKeys = []string{req.CoordinatorKey}
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	for _, c := range resp.Coordinators {
		if err := kerr.ErrorForCode(c.ErrorCode); err != nil {
			return err
		}
	}
	return kerr.ErrorForCode(resp.ErrorCode)
}

// keeper is the shell that watches over one JVM.
type keeper struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	pid   int
	gone  chan struct{} // closed when the JVM has ended
	ended chan struct{} // closed when the shell has ended
}

// The keeper's arguments are the folder, the log file and the command. It waits for the end of its standard input; a line
// "stay" before that saves the folder. The JVM gets SIGKILL: an orderly shutdown takes seconds and the data goes anyway.
const keeping = `dir=$1 log=$2; shift 2
{ "$@" >>"$log" 2>&1 </dev/null & echo "$!" >"$dir/pid"; echo "$!"; wait "$!"; rm -f "$dir/pid"; echo gone; } &
read -r stay
[ -e "$dir/pid" ] && kill -9 "$(cat "$dir/pid")"
wait
[ "$stay" = stay ] || rm -rf "$dir"
`

func keep(dir, log string, command ...string) (*keeper, error) {
	cmd := exec.Command("sh", append([]string{"-c", keeping, "keeper", dir, log}, command...)...)
	// A Ctrl-C at the terminal is for the test; the keeper ends with its standard input.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start the broker's keeper: %w", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start the broker's keeper: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the broker's keeper: %w", err)
	}
	k := &keeper{cmd: cmd, stdin: stdin, gone: make(chan struct{}), ended: make(chan struct{})}
	lines := bufio.NewReader(stdout)
	line, err := lines.ReadString('\n')
	if err == nil {
		k.pid, err = strconv.Atoi(strings.TrimSpace(line))
	}
	if err != nil {
		stdin.Close()
		return nil, fmt.Errorf("start the broker's JVM: %w", err)
	}
	go func() {
		_, _ = lines.ReadString('\n')
		close(k.gone)
		_, _ = io.Copy(io.Discard, lines)
		_ = cmd.Wait()
		close(k.ended)
	}()
	return k, nil
}

func (k *keeper) kill() error {
	select {
	case <-k.gone:
		return nil
	default:
	}
	if err := syscall.Kill(k.pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill broker: %w", err)
	}
	<-k.gone
	return nil
}

// dismiss ends the JVM, if it still runs, and the keeper; the folder stays.
func (k *keeper) dismiss() {
	_, _ = io.WriteString(k.stdin, "stay\n")
	k.stdin.Close()
	<-k.ended
}
