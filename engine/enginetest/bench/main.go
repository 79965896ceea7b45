//go:build linux

// Command bench measures flechtwerk on Kafka against a transactional pass-through on franz-go, in the same run:
//
//	pass  the yardstick, see passthrough
//	B1    a stateful script      B2  a stateless script      B3  no script
//
// and what it costs to poll many configs every ten seconds, and how late polls begin (program configs), and how fast MQTT
// messages come to Kafka, next to a subscriber without Kafka (program mqtt).
//
// The broker is FLECHTWERK_TEST_KAFKA, or a real Kafka that is started for the occasion, or, without Java, a fake one in
// another process. The programs take turns, and each figure is the median of the turns.
//
// What is measured, by the same rule for all programs: from the moment that a program says it is ready (it owns its
// partitions) until the committed offsets of its group have reached the end of the input. CPU is user and system time of the
// program's process over that span, so the broker and this command are not in it; memory is the most that the process ever
// had; allocations are objects on the Go heap.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/flechtwerk/flechtwerk/engine/enginetest/kafkatest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o options
	flag.IntVar(&o.records, "records", 1_000_000, "input `records`")
	flag.IntVar(&o.runs, "runs", 3, "turns of each program")
	flag.StringVar(&o.binary, "binary", "", "flechtwerk's `file`; by default it is built")
	flag.IntVar(&o.configs, "configs", 1000, "configs of the program configs")
	flag.StringVar(&o.against, "against", "", "another flechtwerk's `file`, which takes a turn after each of the first; its programs are marked old")
	flag.StringVar(&o.profiles, "profile", "", "`folder` for CPU profiles of flechtwerk, one of each program's last turn")
	only := flag.String("only", "pass,B1,B2,B3,configs,mqtt", "which `programs`")
	flag.Parse()
	o.programs = strings.Split(*only, ",")
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type options struct {
	records, runs int
	configs       int
	binary        string
	against       string
	profiles      string
	programs      []string
}

func run(ctx context.Context, o options) error {
	dir, err := os.MkdirTemp("", "flechtwerk-bench-")
	if err != nil {
		return fmt.Errorf("make a work folder: %w", err)
	}
	defer os.RemoveAll(dir)
	b := &bench{options: o, dir: dir}
	if err := b.build(ctx); err != nil {
		return err
	}
	kind, end, err := b.broker(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := b.connect(); err != nil {
		return err
	}
	defer b.client.Close()
	if i := slices.Index(b.programs, "configs"); i >= 0 {
		b.programs = slices.Delete(b.programs, i, i+1)
		fmt.Printf("%s, %s %s/%s, %d cores\n", kind, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
		fmt.Fprintln(os.Stderr, "polling configs")
		f, err := b.pollConfigs(ctx)
		if err != nil {
			return fmt.Errorf("configs: %w", err)
		}
		if err := reportConfigs(b.configs, f); err != nil {
			return err
		}
	}
	if i := slices.Index(b.programs, "mqtt"); i >= 0 {
		b.programs = slices.Delete(b.programs, i, i+1)
		fmt.Printf("%s, %s %s/%s, %d cores\n", kind, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
		fmt.Fprintln(os.Stderr, "bringing MQTT messages")
		through, bare, err := b.bridge(ctx)
		if err != nil {
			return fmt.Errorf("mqtt: %w", err)
		}
		if err := reportBridge(b.records, through, bare); err != nil {
			return err
		}
	}
	if len(b.programs) == 0 {
		return nil
	}
	return b.compare(ctx, kind)
}

// compare lets the programs that copy records take turns.
func (b *bench) compare(ctx context.Context, kind string) error {
	o := b.options
	if o.against != "" {
		var all []string
		for _, program := range o.programs {
			if all = append(all, program); program != "pass" {
				all = append(all, program+old)
			}
		}
		o.programs = all
	}
	fmt.Printf("%s, %d records of about 330 bytes, %d partitions, %d sensors, %s %s/%s, %d cores\n",
		kind, o.records, partitions, sensors, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	if err := b.prepare(ctx); err != nil {
		return err
	}
	defer b.cleanUp()
	fmt.Fprintln(os.Stderr, "warming the broker up")
	if _, err := b.measure(ctx, "pass"); err != nil {
		return err
	}
	figures := map[string][]figure{}
	for turn := range o.runs {
		for _, program := range o.programs {
			f, err := b.measure(ctx, program)
			if err != nil {
				return fmt.Errorf("%s: %w", program, err)
			}
			fmt.Fprintf(os.Stderr, "turn %d %-6s %8.0f records/s %6.2f µs/record\n", turn+1, program, f.rate, f.cpu)
			figures[program] = append(figures[program], f)
		}
	}
	return report(o.programs, figures)
}

// report prints the medians, and the ratio of CPU to the pass-through's.
func report(programs []string, figures map[string][]figure) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "program\trecords/s\tCPU µs/record\t(min–max)\t× pass\tallocs/record\tpeak RSS MB\t")
	yardstick := 0.0
	if pass := figures["pass"]; len(pass) > 0 {
		yardstick = median(pass, func(f figure) float64 { return f.cpu })
	}
	for _, program := range programs {
		all := figures[program]
		if len(all) == 0 {
			continue
		}
		cpu := func(f figure) float64 { return f.cpu }
		slices.SortFunc(all, func(a, b figure) int { return int(1e6 * (a.cpu - b.cpu)) })
		ratio := "–"
		if yardstick > 0 {
			ratio = fmt.Sprintf("%.2f", median(all, cpu)/yardstick)
		}
		fmt.Fprintf(w, "%s\t%.0f\t%.2f\t%.2f–%.2f\t%s\t%.1f\t%.0f\t\n", program,
			median(all, func(f figure) float64 { return f.rate }), median(all, cpu), all[0].cpu, all[len(all)-1].cpu, ratio,
			median(all, func(f figure) float64 { return f.allocs }), median(all, func(f figure) float64 { return f.rss }))
	}
	return w.Flush()
}

func median(all []figure, of func(figure) float64) float64 {
	var values []float64
	for _, f := range all {
		values = append(values, of(f))
	}
	slices.Sort(values)
	if n := len(values); n%2 == 0 {
		return (values[n/2-1] + values[n/2]) / 2
	}
	return values[len(values)/2]
}

// old marks the programs that the other binary runs.
const old = " old"

const module = "github.com/flechtwerk/flechtwerk/"

// compilerProfile is what flechtwerk is built with where it is shipped, as `make build` does.
func compilerProfile(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", module+"cmd/flechtwerk").Output()
	if err != nil {
		return "", fmt.Errorf("find flechtwerk's folder: %w", err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "cpu.pgo"), nil
}

// build compiles the programs into the work folder.
func (b *bench) build(ctx context.Context) error {
	targets := map[string]string{"passthrough": module + "engine/enginetest/bench/passthrough", "fakebroker": module + "engine/enginetest/fakebroker"}
	if b.binary == "" {
		b.binary = filepath.Join(b.dir, "flechtwerk")
		targets["flechtwerk"] = module + "cmd/flechtwerk"
	}
	if b.profiles != "" {
		if err := os.MkdirAll(b.profiles, 0o755); err != nil {
			return fmt.Errorf("make the folder of profiles: %w", err)
		}
		var err error
		if b.profiles, err = filepath.Abs(b.profiles); err != nil {
			return fmt.Errorf("the folder of profiles: %w", err)
		}
	}
	for name, path := range targets {
		args := []string{"build", "-trimpath", "-o", filepath.Join(b.dir, name)}
		if b.profiles != "" {
			args = append(args, "-tags", "profile")
		}
		if name == "flechtwerk" {
			guide, err := compilerProfile(ctx)
			if err != nil {
				return err
			}
			args = append(args, "-pgo="+guide)
		}
		cmd := exec.CommandContext(ctx, "go", append(args, path)...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
	}
	return nil
}

// broker finds or starts the broker and says what it is.
func (b *bench) broker(ctx context.Context) (kind string, end func(), err error) {
	if b.addr = os.Getenv("FLECHTWERK_TEST_KAFKA"); b.addr != "" {
		return "the Kafka at " + b.addr, func() {}, nil
	}
	fmt.Fprintln(os.Stderr, "starting Apache Kafka", kafkatest.Version)
	kafka, err := kafkatest.Start(ctx, kafkatest.Config{})
	if err == nil {
		b.addr = kafka.Addr()
		return "Apache Kafka " + kafkatest.Version, func() { kafka.Close() }, nil
	}
	if !errors.Is(err, kafkatest.ErrNoJava) {
		return "", nil, err
	}
	fake, err := start(filepath.Join(b.dir, "fakebroker"), nil, nil)
	if err != nil {
		return "", nil, err
	}
	select {
	case b.addr = <-fake.lines:
	case <-time.After(10 * time.Second):
		fake.kill()
		return "", nil, errors.New("the fake broker did not start")
	}
	return "a fake Kafka in another process (no Java here)", fake.kill, nil
}
