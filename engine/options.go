package engine

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"time"

	"github.com/flechtwerk/flechtwerk/engine/pipeline"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// Options is everything about a run that is not pipeline text. Zero fields take the defaults named at them.
type Options struct {
	Kafka Kafka
	State State

	CommitInterval  time.Duration // how long a task gathers before it commits, at most; 100 ms
	BatchRecords    int           // records of one transaction, at most; 10,000
	BatchBytes      int           // input bytes of one transaction, at most; 4 MiB
	ShutdownTimeout time.Duration // how long tasks may take to finish after Run's context is done; 10 s
	InstanceID      string        // static group membership; empty is dynamic
	// Instance names this process where it alone is a task: in the transactional ids and client ids of push sources. It is
	// InstanceID or, if that is empty, the host's name.
	Instance string

	// CreateTopics lets Run create and seed the topics that stages need, declared or not (`run --dev`).
	CreateTopics bool

	Handlers Handlers
	Events   Events
	// Now is the clock of scripts and message timestamps; time.Now.
	Now func() time.Time
}

// Handlers makes what a stage runs. The engine imports no script and no connector: whoever wires the process hands these in.
type Handlers struct {
	// Transform prepares a transformer's body; asked once per stage that has one.
	Transform func(*pipeline.Pipeline, *pipeline.Transformer) (Body, error)
	// Source makes an extractor's Source.
	Source func(*pipeline.Pipeline, *pipeline.Extractor) (stream.Source, error)
	// Session makes the Session of an extractor whose source tells by itself. instance names this process.
	Session func(p *pipeline.Pipeline, x *pipeline.Extractor, instance string, arrivals *Arrivals) (stream.Session, error)
	// Enrich makes what completes the configs of an extractor that has an enrich.
	Enrich func(*pipeline.Pipeline, *pipeline.Extractor) (stream.Enrich, error)
}

// Body is a transformer's body, ready to be run.
type Body struct {
	// New makes one task's Transform. It is called after the topics' MaxMessage are known.
	New func() (stream.Transform, error)
	// Stateful says that the body or its functions name `state` or `State`.
	Stateful bool
}

// Kafka says how to reach the cluster.
type Kafka struct {
	Brokers        []string // host:port; 127.0.0.1:9092
	ClientID       string   // flechtwerk
	TLS            *tls.Config
	SASL           SASL
	SessionTimeout time.Duration // 10 s
	// Dial replaces the network, for tests.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// SASL says how to authenticate. An empty Mechanism does not.
type SASL struct {
	Mechanism      string // PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER
	User, Password string
	// Token is asked for an OAUTHBEARER token at each connection.
	Token func(context.Context) (string, error)
}

// State says where the local copies of states lie.
type State struct {
	Dir      string // .flechtwerk/state
	Memory   int64  // bytes of cache and write buffers; 64 MiB
	InMemory bool   // nothing on disk
}

// The kinds of trouble that decide the exit status. Wrapped errors carry the details.
var (
	// ErrSurroundings marks what the pipeline needs and the place lacks: a broker that cannot be reached, a missing topic,
	// a state folder that is not writable. Exit status 3.
	ErrSurroundings = errors.New("the surroundings are not as the pipeline needs them")
	// ErrPipeline marks a pipeline that cannot run at all. Exit status 2.
	ErrPipeline = errors.New("the pipeline is wrong")
)

func (o *Options) defaults() {
	set := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	set(&o.CommitInterval, 100*time.Millisecond)
	set(&o.ShutdownTimeout, 10*time.Second)
	set(&o.Kafka.SessionTimeout, 10*time.Second)
	if o.BatchRecords <= 0 {
		o.BatchRecords = 10_000
	}
	if o.BatchBytes <= 0 {
		o.BatchBytes = 4 << 20
	}
	if len(o.Kafka.Brokers) == 0 {
		o.Kafka.Brokers = []string{"127.0.0.1:9092"}
	}
	if o.Kafka.ClientID == "" {
		o.Kafka.ClientID = "flechtwerk"
	}
	if o.State.Dir == "" {
		o.State.Dir = ".flechtwerk/state"
	}
	if o.State.Memory <= 0 {
		o.State.Memory = 64 << 20
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Instance == "" {
		o.Instance = o.InstanceID
	}
	if o.Instance == "" {
		o.Instance, _ = os.Hostname()
	}
	o.Events.fill()
}
