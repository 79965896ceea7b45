//go:build linux

package main

import (
	"bufio"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flechtwerk/flechtwerk/engine/enginetest/kafkatest"
)

//go:embed pipelines
var pipelines embed.FS

// bench is one run of the command.
type bench struct {
	options
	dir, addr string

	client *kgo.Client
	admin  *kadm.Client
	input  string          // topic
	ends   map[int32]int64 // of its partitions
	turn   int
}

// figure is what one turn of a program gave.
type figure struct {
	rate   float64 // records per second
	cpu    float64 // µs per record
	allocs float64 // objects per record
	rss    float64 // peak, MB
}

// connect makes the clients of the bench itself.
func (b *bench) connect() error {
	client, err := kgo.NewClient(kgo.SeedBrokers(b.addr), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MetadataMinAge(10*time.Millisecond))
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	b.client, b.admin = client, kadm.NewClient(client)
	return nil
}

// prepare writes the input.
func (b *bench) prepare(ctx context.Context) error {
	client := b.client
	b.input = fmt.Sprintf("bench-%d", time.Now().UnixNano())
	if err := b.createTopic(ctx, b.input); err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "writing the input")
	var failed error
	in := newInput(1)
	for range b.records {
		key, value, at := in.Next()
		client.Produce(ctx, &kgo.Record{Topic: b.input, Key: key, Value: value, Timestamp: at}, func(_ *kgo.Record, err error) {
			if err != nil {
				failed = err // the client runs promises one after another
			}
		})
	}
	if err := client.Flush(ctx); err != nil {
		return fmt.Errorf("write the input: %w", err)
	}
	if failed != nil {
		return fmt.Errorf("write the input: %w", failed)
	}
	ends, err := b.admin.ListEndOffsets(ctx, b.input)
	if err != nil {
		return fmt.Errorf("read the end of the input: %w", err)
	}
	b.ends = map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) { b.ends[o.Partition] = o.Offset })
	return nil
}

func (b *bench) createTopic(ctx context.Context, topic string) error {
	forever := "-1" // the readings have fixed, old times
	if _, err := b.admin.CreateTopic(ctx, partitions, -1, map[string]*string{"retention.ms": &forever}, topic); err != nil {
		return fmt.Errorf("create topic %s: %w", topic, err)
	}
	return kafkatest.AwaitTopic(ctx, b.admin, topic)
}

func (b *bench) cleanUp() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, _ = b.admin.DeleteTopics(ctx, b.input)
}

// measure runs one program over the whole input.
func (b *bench) measure(ctx context.Context, program string) (figure, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	b.turn++
	app := fmt.Sprintf("%s-%s-%d", b.input, strings.ToLower(strings.TrimSuffix(program, old)), b.turn)
	out := app + "-out"
	if err := b.createTopic(ctx, out); err != nil {
		return figure{}, err
	}
	defer func() { _, _ = b.admin.DeleteTopics(context.WithoutCancel(ctx), out, app+"-changelog") }()

	p, mallocs, err := b.launch(ctx, program, app, out)
	if err != nil {
		return figure{}, err
	}
	defer p.kill()
	cpu, err := p.cpu()
	if err != nil {
		return figure{}, err
	}
	began := time.Now()
	before, err := mallocs()
	if err != nil {
		return figure{}, err
	}
	if err := b.awaitEnd(ctx, p, app); err != nil {
		return figure{}, err
	}
	took, rss := time.Since(began), p.peakRSS()
	used, err := p.cpu()
	if err != nil {
		return figure{}, err
	}
	used -= cpu
	after, err := mallocs()
	if err != nil {
		return figure{}, err
	}
	n := float64(b.records)
	return figure{
		rate:   n / took.Seconds(),
		cpu:    float64(used.Nanoseconds()) / 1000 / n,
		allocs: (after - before) / n,
		rss:    rss,
	}, p.stop()
}

// awaitEnd returns when the group's committed offsets are at the end of the input.
func (b *bench) awaitEnd(ctx context.Context, p *process, group string) error {
	for {
		offsets, err := b.admin.FetchOffsets(ctx, group)
		if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
			return fmt.Errorf("fetch offsets: %w", err)
		}
		reached := 0
		for partition, end := range b.ends {
			if o, ok := offsets.Lookup(b.input, partition); end == 0 || ok && o.At >= end {
				reached++
			}
		}
		if reached == len(b.ends) {
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-p.ended:
			return fmt.Errorf("the program ended early: %w\n%s", p.err, p.log())
		case <-ctx.Done():
			return fmt.Errorf("the program did not reach the end: %w\n%s", ctx.Err(), p.log())
		}
	}
}

// launch starts a program and returns when it is ready. mallocs tells how many objects it has allocated; the second and last
// call may end the program.
func (b *bench) launch(ctx context.Context, program, app, out string) (p *process, mallocs func() (float64, error), err error) {
	if program == "pass" {
		return b.launchPass(ctx, app, out)
	}
	binary := b.binary
	if name, is := strings.CutSuffix(program, old); is {
		program, binary = name, b.against
	}
	text, err := pipelines.ReadFile("pipelines/" + program + ".yaml")
	if err != nil {
		return nil, nil, fmt.Errorf("there is no program %q", program)
	}
	file := filepath.Join(b.dir, program+".yaml")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return nil, nil, fmt.Errorf("write the pipeline: %w", err)
	}
	listen, err := freeAddr()
	if err != nil {
		return nil, nil, err
	}
	env := []string{
		"IN=" + b.input, "OUT=" + out, "APP=" + app,
		"FLECHTWERK_KAFKA_BROKERS=" + b.addr,
		"FLECHTWERK_HTTP_LISTEN=" + listen,
		"FLECHTWERK_STATE_DIR=" + filepath.Join(b.dir, app),
	}
	if b.profiles != "" && binary == b.binary {
		env = append(env, "CPUPROFILE="+filepath.Join(b.profiles, program+".pprof"))
	}
	p, err = start(binary, []string{"run", file}, env)
	if err != nil {
		return nil, nil, err
	}
	for {
		if resp, err := http.Get("http://" + listen + "/readyz"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				break
			}
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-p.ended:
			return nil, nil, fmt.Errorf("the program did not start: %w\n%s", p.err, p.log())
		case <-ctx.Done():
			p.kill()
			return nil, nil, fmt.Errorf("the program did not become ready: %w\n%s", ctx.Err(), p.log())
		}
	}
	return p, func() (float64, error) { return scrape("http://"+listen+"/metrics", "go_memstats_mallocs_total") }, nil
}

func (b *bench) launchPass(ctx context.Context, app, out string) (*process, func() (float64, error), error) {
	p, err := start(filepath.Join(b.dir, "passthrough"), []string{"-brokers", b.addr, "-in", b.input, "-out", out, "-group", app}, nil)
	if err != nil {
		return nil, nil, err
	}
	next := func(word string) (float64, error) {
		for {
			select {
			case line, ok := <-p.lines:
				if text, found := strings.CutPrefix(line, word+" "); found {
					return strconv.ParseFloat(text, 64)
				}
				if !ok {
					return 0, fmt.Errorf("the pass-through ended: %w\n%s", p.err, p.log())
				}
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}
	}
	ready, err := next("ready")
	if err != nil {
		p.kill()
		return nil, nil, err
	}
	asked := false
	return p, func() (float64, error) {
		if !asked {
			asked = true
			return ready, nil
		}
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		return next("end")
	}, nil
}

// scrape reads one value of a metrics page.
func scrape(url, name string) (float64, error) {
	resp, err := http.Get(url)
	if err != nil {
		return 0, fmt.Errorf("read metrics: %w", err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(text, 64)
		}
	}
	return 0, fmt.Errorf("%s has no %s", url, name)
}

func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("look for a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// process is a program under measurement, or the fake broker.
type process struct {
	cmd   *exec.Cmd
	lines chan string // of standard output; closed at its end
	file  string      // holds standard error
	stdin io.Closer
	ended chan struct{}
	err   error // read it after ended
}

func start(path string, args, env []string) (*process, error) {
	file, err := os.CreateTemp(filepath.Dir(path), "log-")
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	defer file.Close()
	p := &process{cmd: exec.Command(path, args...), lines: make(chan string, 16), file: file.Name(), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = file
	stdout, err := p.cmd.StdoutPipe()
	if err == nil {
		p.stdin, err = p.cmd.StdinPipe()
	}
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	go func() {
		out := bufio.NewScanner(stdout)
		for out.Scan() {
			select {
			case p.lines <- out.Text():
			default: // nobody reads this much
			}
		}
		p.err = p.cmd.Wait()
		close(p.ended)
		close(p.lines)
	}()
	return p, nil
}

// stop ends a program by SIGTERM.
func (p *process) stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(20 * time.Second):
		return errors.New("the program did not stop")
	}
	if p.err != nil {
		return fmt.Errorf("the program ended: %w\n%s", p.err, p.log())
	}
	return nil
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

func (p *process) log() string {
	text, _ := os.ReadFile(p.file)
	return string(text[max(0, len(text)-3000):])
}

// cpu is the time that the threads of the process have run, in user and system mode. It comes from the scheduler, in
// nanoseconds; the process's own times are in hundredths of a second. Threads of a Go program do not end before it.
func (p *process) cpu() (time.Duration, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.cmd.Process.Pid))
	if err != nil || len(threads) == 0 {
		return 0, fmt.Errorf("read the CPU time of process %d: no schedstat in /proc", p.cmd.Process.Pid)
	}
	var sum time.Duration
	for _, file := range threads {
		text, err := os.ReadFile(file)
		if err != nil {
			return 0, fmt.Errorf("read the CPU time: %w", err)
		}
		ran, _, _ := strings.Cut(string(text), " ")
		ns, err := strconv.ParseInt(ran, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read the CPU time from %s: %w", file, err)
		}
		sum += time.Duration(ns)
	}
	return sum, nil
}

// peakRSS is the most memory that the process ever had, in MB of a million bytes.
func (p *process) peakRSS() float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	for line := range strings.Lines(string(text)) {
		if kb, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, _ := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(kb), "kB")), 64)
			return n * 1024 / 1e6
		}
	}
	return 0
}
