package enginetest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func connect(t testing.TB, f *Fake, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append(f.Opts(), opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// commitOffset sends what the engine sends: TxnOffsetCommit with the group's metadata, in the producer's transaction.
func commitOffset(ctx context.Context, f *Fake, producer, consumer *kgo.Client, txn, group, topic string, offset int64) error {
	id, epoch, err := producer.ProducerID(ctx)
	if err != nil {
		return err
	}
	member, generation := consumer.GroupMetadata()
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.Group = txn, group
	req.ProducerID, req.ProducerEpoch = id, epoch
	req.MemberID, req.Generation = member, generation
	rt := kmsg.NewTxnOffsetCommitRequestTopic()
	rt.Topic, rt.TopicID = topic, f.Cluster.TopicInfo(topic).TopicID
	rp := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	rp.Offset = offset
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, producer)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
}

// One transaction of a group member with its offsets, a fenced zombie, and a member that dies and is noticed after its
// session timeout: all on the fake clock.
func TestFakeClockCoversTransactionsGroupsAndFencing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		began := time.Now()
		f := NewFake(t, FakeConfig{Network: Virtual})
		f.CreateTopic(t, "in", 1)
		f.CreateTopic(t, "out", 1)
		if err := connect(t, f, kgo.DefaultProduceTopic("in")).ProduceSync(ctx, kgo.StringRecord("a"), kgo.StringRecord("b")).FirstErr(); err != nil {
			t.Fatal(err)
		}
		join := func() *kgo.Client {
			return connect(t, f, kgo.ConsumerGroup("g"), kgo.ConsumeTopics("in"), kgo.DisableAutoCommit(),
				kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.SessionTimeout(time.Second), kgo.HeartbeatInterval(300*time.Millisecond),
				kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		}
		first := join()
		fetches := first.PollFetches(ctx)
		if n := fetches.NumRecords(); n != 2 {
			t.Fatalf("polled %d records: %v", n, fetches.Errors())
		}
		zombie := connect(t, f, kgo.TransactionalID("g-0"), kgo.DefaultProduceTopic("out"))
		if err := zombie.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := zombie.ProduceSync(ctx, kgo.StringRecord("one")).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := commitOffset(ctx, f, zombie, first, "g-0", "g", "in", 1); err != nil {
			t.Fatal(err)
		}
		if err := zombie.EndTransaction(ctx, kgo.TryCommit); err != nil {
			t.Fatal(err)
		}
		if got := f.Cluster.GroupInfo("g").Commits["in"][0].Offset; got != 1 {
			t.Fatalf("committed offset %d, want 1", got)
		}

		// The newcomer fences the zombie inside its open transaction.
		if err := zombie.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := zombie.ProduceSync(ctx, kgo.StringRecord("never seen")).FirstErr(); err != nil {
			t.Fatal(err)
		}
		newcomer := connect(t, f, kgo.TransactionalID("g-0"), kgo.DefaultProduceTopic("out"))
		if _, _, err := newcomer.ProducerID(ctx); err != nil {
			t.Fatal(err)
		}
		err := zombie.ProduceSync(ctx, kgo.StringRecord("refused")).FirstErr()
		if !errors.Is(err, kerr.InvalidProducerEpoch) {
			t.Fatalf("a fenced producer got %v", err)
		}
		if err := commitOffset(ctx, f, zombie, first, "g-0", "g", "in", 2); err == nil {
			t.Fatal("a fenced producer committed offsets")
		}

		// A member that falls silent loses its partitions after the session timeout, of which no second is real.
		heartbeat := f.LoseRequest(Which{Key: kmsg.Heartbeat, Count: -1})
		f.LoseRequest(Which{Key: kmsg.JoinGroup, Count: -1})
		if _, err := f.Cluster.WaitGroupInfo(ctx, "g", func(g *kfake.GroupInfo) bool { return len(g.Members) == 0 }); err != nil {
			t.Fatal(err)
		}
		if heartbeat.Fired() == 0 {
			t.Error("no heartbeat was lost")
		}
		if passed := time.Since(began); passed < time.Second || passed > 10*time.Second {
			t.Errorf("the clock of the bubble shows %v, want the session timeout and little more", passed)
		}
	})
}
