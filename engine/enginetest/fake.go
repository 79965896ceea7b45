package enginetest

import (
	"context"
	"crypto/tls"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
)

// Network says over what a Fake is reached.
type Network uint8

// The networks of a Fake.
const (
	Loopback Network = iota // TCP on 127.0.0.1: any process can join
	Virtual                 // pipes within the process: for a testing/synctest bubble, see the package comment
)

// FakeConfig says what broker a Fake is. The zero value is one current node on the loopback interface.
type FakeConfig struct {
	Network Network
	// Brokers is the number of nodes; 1 by default.
	Brokers int
	// Versions caps what the broker speaks, as an older release would.
	Versions *kversion.Versions
	// TLS is what the broker shows of itself; nil is a connection in the clear.
	TLS *tls.Config
	// Users may log in, with every right; with none, nobody has to.
	Users []User
	// Settings are broker settings, such as message.max.bytes or transaction.max.timeout.ms.
	Settings map[string]string
	// Log receives what the broker does; for looking into a test, not for leaving in.
	Log kfake.Logger
}

// User is who may log in to a Fake.
type User struct {
	Mechanism      string // PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512
	Name, Password string
}

// Fake is a Kafka in the process, with faults on demand. It has transactions, fencing and consumer groups, but neither
// CONCURRENT_TRANSACTIONS nor markers that are written later.
type Fake struct {
	// Cluster is the broker itself, for what has no method here.
	Cluster *kfake.Cluster

	virtual *kfake.VirtualNetwork // nil on the loopback interface
	closed  chan struct{}         // closed at the end of the test: lets go what faults hold

	mu          sync.Mutex
	connections map[net.Conn]struct{}
}

// NewFake starts a broker that ends with the test.
func NewFake(t testing.TB, config FakeConfig) *Fake {
	t.Helper()
	f := &Fake{closed: make(chan struct{}), connections: map[net.Conn]struct{}{}}
	listen := net.Listen
	opts := []kfake.Opt{
		kfake.NumBrokers(max(1, config.Brokers)),
		kfake.GroupMinSessionTimeout(100 * time.Millisecond),
		kfake.BrokerConfigs(config.Settings),
	}
	if config.Network == Virtual {
		f.virtual = &kfake.VirtualNetwork{}
		listen = f.virtual.Listen
		ports := make([]int, max(1, config.Brokers))
		for i := range ports {
			ports[i] = 9092 + i
		}
		opts = append(opts, kfake.Ports(ports...))
	}
	opts = append(opts, kfake.ListenFn(func(network, address string) (net.Listener, error) {
		l, err := listen(network, address)
		if err != nil {
			return nil, err
		}
		return &listener{Listener: l, fake: f}, nil
	}))
	if config.Versions != nil {
		opts = append(opts, kfake.MaxVersions(config.Versions))
	}
	if config.TLS != nil {
		opts = append(opts, kfake.TLS(config.TLS))
	}
	for _, u := range config.Users {
		opts = append(opts, kfake.EnableSASL(), kfake.Superuser(u.Mechanism, u.Name, u.Password))
	}
	if config.Log != nil {
		opts = append(opts, kfake.WithLogger(config.Log))
	}
	cluster, err := kfake.NewCluster(opts...)
	if err != nil {
		t.Fatalf("start a fake Kafka: %v", err)
	}
	f.Cluster = cluster
	t.Cleanup(func() {
		close(f.closed)
		cluster.Close()
	})
	return f
}

// Addrs are the bootstrap addresses, host:port.
func (f *Fake) Addrs() []string { return f.Cluster.ListenAddrs() }

// Dial reaches the broker over its network; it fits kgo.Dialer.
func (f *Fake) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	if f.virtual != nil {
		return f.virtual.DialContext(ctx, network, address)
	}
	var d net.Dialer
	return d.DialContext(ctx, network, address)
}

// Opts are the options that a client needs to find the broker.
func (f *Fake) Opts() []kgo.Opt {
	return []kgo.Opt{kgo.SeedBrokers(f.Addrs()...), kgo.Dialer(f.Dial)}
}

// CreateTopic makes a topic; configs are written "name=value".
func (f *Fake) CreateTopic(t testing.TB, topic string, partitions int32, configs ...string) {
	t.Helper()
	if err := f.Cluster.CreateTopic(topic, partitions, pairs(t, configs)); err != nil {
		t.Fatalf("create topic %s: %v", topic, err)
	}
}

// KillConnections closes every connection that clients have now, and returns how many.
func (f *Fake) KillConnections() int {
	f.mu.Lock()
	open := slices.Collect(maps.Keys(f.connections))
	f.mu.Unlock()
	for _, c := range open {
		c.Close()
	}
	return len(open)
}

// listener keeps the set of open connections.
type listener struct {
	net.Listener
	fake *Fake
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	tracked := &connection{Conn: c, fake: l.fake}
	l.fake.mu.Lock()
	defer l.fake.mu.Unlock()
	l.fake.connections[tracked] = struct{}{}
	return tracked, nil
}

type connection struct {
	net.Conn
	fake *Fake
}

func (c *connection) Close() error {
	c.fake.mu.Lock()
	delete(c.fake.connections, c)
	c.fake.mu.Unlock()
	return c.Conn.Close()
}

// WaitGroupEmpty returns when the group has no members; after 30 seconds the test fails.
func (f *Fake) WaitGroupEmpty(t testing.TB, group string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := f.Cluster.WaitGroupInfo(ctx, group, func(g *kfake.GroupInfo) bool { return len(g.Members) == 0 }); err != nil {
		t.Fatalf("group %s still has members: %v", group, err)
	}
}
