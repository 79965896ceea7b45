package main

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/flechtwerk/flechtwerk/engine"
	"github.com/flechtwerk/flechtwerk/engine/devcluster"
	"github.com/flechtwerk/flechtwerk/engine/pipeline"
	"github.com/flechtwerk/flechtwerk/engine/wording"
)

// runFlags are those of the verb run.
type runFlags struct {
	stages, print []string
	dev           bool
	publish       string // a file of MQTT messages
}

func (p *program) runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run FILE|DIR...",
		Short: "Run the stages of pipelines until a signal ends it",
		Long: `Run runs all stages of pipelines, or those of --stage, until SIGINT or SIGTERM. Then tasks finish what they are at,
commit it and leave their groups; a second signal ends at once.

With --dev there is a Kafka inside the process: topics are created and seeded, state is kept in memory, and nothing
outlives the process. Where a pipeline names an MQTT broker on this machine and nobody listens there, there is one of these
too, and --publish plays a file of messages to it: one JSON object a line, with topic, value or text, and, if need be, qos,
retain, properties, content_type, and wait, the pause before it.`,
		Args: atLeastOne,
		RunE: func(cmd *cobra.Command, args []string) error { return p.run(cmd.Context(), args, f) },
	}
	cmd.Flags().StringSliceVar(&f.stages, "stage", nil, "run only these stages, as `NAME,...` or PIPELINE/NAME")
	cmd.Flags().BoolVar(&f.dev, "dev", false, "with a Kafka inside the process, in memory")
	cmd.Flags().StringVar(&f.publish, "publish", "", "with --dev, play the messages of `FILE` (ndjson) to the MQTT broker inside the process")
	cmd.Flags().StringSliceVar(&f.print, "print", nil, "print the records of these topics to standard output, as `TOPIC,...`; one JSON object a line")
	return cmd
}

func (p *program) run(ctx context.Context, paths []string, f runFlags) error {
	settings, err := p.settings()
	if err != nil {
		return err
	}
	log := newLogger(p.stderr, settings.LogFormat, settings.LogLevel, p.colour(p.stderr))
	if settings.LogFormat == "json" {
		p.json = log
	}
	set, compiled, err := p.load(paths, false, p.stderr, sayProblems)
	if err != nil {
		return err
	}
	pipelines, err := chosen(set.Pipelines, f.stages, "--stage")
	if err != nil {
		return err
	}
	if err := checkPrinted(f.print, pipelines); err != nil {
		return err
	}
	var messages []scripted
	if f.publish != "" {
		if !f.dev {
			return usageError("--publish has no effect without --dev")
		}
		if messages, err = readPublished(f.publish); err != nil {
			return err
		}
	}
	version := CurrentVersion()
	log.Debug("settings", settings.Shown()...)

	if f.dev {
		cluster, err := devcluster.Start(devcluster.Config{Log: log})
		if err != nil {
			return fmt.Errorf("%w: %w", engine.ErrSurroundings, err)
		}
		defer cluster.Close()
		settings.Kafka = engine.Kafka{Brokers: cluster.Addrs(), ClientID: settings.Kafka.ClientID, SessionTimeout: settings.Kafka.SessionTimeout}
		settings.State.InMemory = true
		log.Info("development run with a Kafka inside the process: nothing outlives it", "kafka", strings.Join(cluster.Addrs(), ","))
	}

	var mqtt *devMQTT
	if f.dev {
		if mqtt, err = startDevMQTT(pipelines, log); err != nil {
			return err
		}
		defer mqtt.Close()
		if len(messages) > 0 && len(mqtt.brokers) == 0 {
			return usageError("--publish: there is no MQTT broker inside the process, since no pipeline names one on this machine where nobody listens")
		}
	}

	lines, metrics := newEventLog(log, time.Now), NewMetrics(version)
	compiled.clients.events = metrics.Requests(lines)
	defer compiled.clients.Close()
	e, err := engine.New(pipelines, engine.Options{
		Kafka:           settings.Kafka,
		State:           settings.State,
		CommitInterval:  settings.CommitInterval,
		BatchRecords:    settings.BatchRecords,
		BatchBytes:      settings.BatchBytes,
		ShutdownTimeout: settings.ShutdownTimeout,
		InstanceID:      settings.InstanceID,
		CreateTopics:    f.dev,
		Handlers:        compiled.handlers(wiring{now: time.Now, log: log, lines: lines, metrics: metrics, batchRecords: settings.BatchRecords, batchBytes: settings.BatchBytes, subscribed: mqtt.subscribed}),
		Events:          engine.Tee(lines.Events(), metrics.Events()),
		Now:             time.Now,
	})
	if err != nil {
		return err
	}
	metrics.Watch(e.Status, e.StoreMetrics)

	r := running{engine: e, mqtt: mqtt, messages: messages, lines: lines, log: log, printed: f.print, kafka: settings.Kafka, printer: newRecordPrinter(p.stdout, set.Topics)}
	if settings.HTTPListen != "" {
		server, occupied, err := NewServer(ServerConfig{Address: settings.HTTPListen, AnyPort: f.dev, Registry: metrics.registry, Status: e.Status})
		if err != nil {
			return err
		}
		defer server.Close()
		if occupied {
			log.Warn("the port of http.listen is taken; another one is used", "http.listen", settings.HTTPListen)
		}
		log.Info("HTTP for probes and metrics", "address", server.Address())
		r.server = server
	}
	log.Info("flechtwerk started", "version", version.Version, "pipelines", len(pipelines), "kafka", strings.Join(settings.Kafka.Brokers, ","))
	err = r.run(ctx)
	if err == nil {
		log.Info("flechtwerk stopped")
	}
	return err
}

// running is what runs beside each other in a process.
type running struct {
	engine  *engine.Engine
	server  *Server // nil without HTTP
	lines   *eventLog
	log     *slog.Logger
	kafka   engine.Kafka
	printed []string
	// messages are played to mqtt; without --dev there are none.
	mqtt     *devMQTT
	messages []scripted
	printer  *recordPrinter
}

// run ends when the engine has ended: the rest serves it, and goes on while it drains.
func (r *running) run(ctx context.Context) error {
	beside, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var group errgroup.Group
	work, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	begin := func(f func(context.Context) error) {
		group.Go(func() error {
			err := f(beside)
			if err != nil {
				fail(err)
			}
			return err
		})
	}
	begin(r.lines.Run)
	if r.server != nil {
		begin(r.server.Run)
	}
	if len(r.messages) > 0 {
		begin(func(ctx context.Context) error { return r.mqtt.publish(ctx, r.messages) })
	}
	note := context.AfterFunc(ctx, func() { r.log.Info("stopping: tasks finish what they are at; a second signal ends at once") })
	err := r.work(work, begin)
	note()
	stop()
	if other := group.Wait(); err == nil {
		err = other
	}
	return err
}

// work runs the engine. Where printing begins is settled before, and it ends after, so that all is printed that the engine
// commits.
func (r *running) work(ctx context.Context, begin func(func(context.Context) error)) error {
	if len(r.printed) > 0 {
		tail, err := engine.NewTail(ctx, r.kafka, r.printed)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		begin(func(ctx context.Context) error {
			defer tail.Close()
			return tail.Run(ctx, r.printer.Print)
		})
	}
	return r.engine.Run(ctx)
}

// chosen are the pipelines with those stages only that names says; without names, all of them. where is where names were
// given.
func chosen(pipelines []*pipeline.Pipeline, names []string, where string) ([]*pipeline.Pipeline, error) {
	if len(names) == 0 {
		return pipelines, nil
	}
	used := map[string]bool{}
	var known []string
	take := func(p *pipeline.Pipeline, stage string) bool {
		known = append(known, stage, p.Name+"/"+stage)
		taken := false
		for _, name := range names {
			if name == stage || name == p.Name+"/"+stage {
				used[name], taken = true, true
			}
		}
		return taken
	}
	var out []*pipeline.Pipeline
	for _, p := range pipelines {
		part := *p
		part.Extractors, part.Transformers = nil, nil
		for _, x := range p.Extractors {
			if take(p, x.Name) {
				part.Extractors = append(part.Extractors, x)
			}
		}
		for _, t := range p.Transformers {
			if take(p, t.Name) {
				part.Transformers = append(part.Transformers, t)
			}
		}
		if len(part.Extractors)+len(part.Transformers) > 0 {
			out = append(out, &part)
		}
	}
	for _, name := range names {
		if !used[name] {
			return nil, unknownName(where, "stage", name, known)
		}
	}
	return out, nil
}

// checkPrinted refuses topics that no pipeline names: nothing would ever be printed of a misspelt one.
func checkPrinted(topics []string, pipelines []*pipeline.Pipeline) error {
	var known []string
	for _, p := range pipelines {
		for _, t := range p.Topics {
			known = append(known, t.Name)
		}
	}
	for _, topic := range topics {
		if !slices.Contains(known, topic) {
			return unknownName("--print", "topic", topic, known)
		}
	}
	return nil
}

func unknownName(where, what, name string, known []string) error {
	if near := wording.Nearest(name, known); near != "" {
		return usageError("%s: no pipeline has a %s %q; did you mean %q?", where, what, name, near)
	}
	slices.Sort(known)
	return usageError("%s: no pipeline has a %s %q; there are %s", where, what, name, strings.Join(slices.Compact(known), ", "))
}
