package engine_test

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/flechtwerk/flechtwerk/engine"
	"github.com/flechtwerk/flechtwerk/engine/enginetest"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// runLoad runs a counting stage over n records and checks that every one counts exactly once, in outputs, state, store and
// offsets. meanwhile runs beside it.
func (r *rig) runLoad(partitions int32, n int, meanwhile func(in string, i *instance)) *instance {
	r.t.Helper()
	in := r.topic("in", partitions)
	out := &stream.Topic{Name: r.topic("out", 2), Key: stream.String}
	dir := r.t.TempDir()
	l := r.load(in, partitions, 5*int(partitions), n)
	i := r.startWith(dir, func(o *engine.Options) { o.BatchRecords = max(10, n/100) }, r.simple(in, out))
	if meanwhile != nil {
		meanwhile(in, i)
	}
	l.wait()
	r.checkCounters(out.Name, n)
	i.stopped()
	r.checkOffsets(in, partitions, n)
	r.checkFold(dir, partitions)
	return i
}

// E4: any one failed record aborts its transaction, whichever topic it is for; the batch comes out exactly once all the same.
func TestE4AnyFailedRecordAborts(t *testing.T) {
	for _, topic := range []string{"out", "changelog"} {
		t.Run(topic, func(t *testing.T) {
			needFake(t)
			r := newRig(t)
			w := enginetest.Which{Topic: r.id + "-" + topic, TxnID: r.id + "-0", Count: 2}
			if topic == "changelog" {
				w.Skip = 1 // the takeover record
			}
			f := r.fake.FailProduce(kerr.PolicyViolation, w)
			i := r.runLoad(1, 100, nil)
			if f.Fired() != 2 {
				t.Errorf("the fault hit %d times, want 2", f.Fired())
			}
			if n := i.log.count("0 abort"); n == 0 {
				t.Errorf("nothing was aborted; effects:\n%s", i.log)
			}
		})
	}
}

// E1: inputs are read as committed: what was aborted is no record, and what is open is none yet.
func TestE1AbortedInputIsNotRead(t *testing.T) {
	r := newRig(t)
	in := r.topic("in", 1)
	out := &stream.Topic{Name: r.topic("out", 1)}
	writer := r.client(kgo.TransactionalID(r.id+"-writer"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	write := func(value string) {
		t.Helper()
		if err := writer.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := writer.ProduceSync(t.Context(), &kgo.Record{Topic: in, Key: []byte("k"), Value: []byte(value)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	end := func(how kgo.TransactionEndTry) {
		t.Helper()
		if err := writer.EndTransaction(t.Context(), how); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	i := r.start(dir, r.simple(in, out))
	write("100")
	end(kgo.TryAbort)
	write("1")
	end(kgo.TryCommit)
	r.checkCounters(out.Name, 1)
	write("101")
	end(kgo.TryAbort)
	write("2")
	end(kgo.TryCommit)
	r.checkCounters(out.Name, 2)
	i.stopped()
	if got := values(enginetest.ReadCommitted(t, r.opts(), out.Name)); !slices.Equal(got, []string{"1:1", "2:2"}) {
		t.Errorf("outputs %q", got)
	}
	r.checkFold(dir, 1)
}

// E5: whatever request or answer is lost, and however often, the outcome is found out and every record counts once.
func TestE5LostRequestsAndAnswers(t *testing.T) {
	versions := map[string]*kversion.Versions{"v2": nil, "v1": kversion.V3_6_0()}
	for name, install := range map[string]func(*rig, enginetest.Which) *enginetest.Fault{
		"request": func(r *rig, w enginetest.Which) *enginetest.Fault { return r.fake.LoseRequest(w) },
		"answer":  func(r *rig, w enginetest.Which) *enginetest.Fault { return r.fake.LoseAnswer(r.t, w) },
	} {
		for request, w := range map[string]enginetest.Which{
			"EndTxn of the takeover": {Key: endTxn},
			"EndTxn":                 {Key: endTxn, Skip: 1},
			"EndTxn, thrice":         {Key: endTxn, Skip: 2, Count: 3},
			"TxnOffsetCommit":        {Key: txnOffsetCommit},
			"TxnOffsetCommit later":  {Key: txnOffsetCommit, Skip: 1, Count: 2},
			"Produce":                {Key: produceRequest, Skip: 1},
			"Produce later":          {Key: produceRequest, Skip: 3, Count: 3},
			"InitProducerId":         {Key: initProducerID, Count: 2},
			"OffsetFetch":            {Key: offsetFetch},
			"AddOffsetsToTxn":        {Key: addOffsetsToTxn, Count: 2},
			"AddPartitionsToTxn":     {Key: addPartitionsToTxn, Skip: 1, Count: 2},
		} {
			for version, cap := range versions {
				if (request == "AddOffsetsToTxn" || request == "AddPartitionsToTxn") && version == "v2" {
					continue // not sent
				}
				t.Run(request+", "+name+", transaction."+version, func(t *testing.T) {
					needFake(t)
					t.Parallel()
					w := w // of this test alone: what follows changes it
					r := newRigOn(t, enginetest.FakeConfig{Versions: cap})
					switch w.Key {
					case offsetFetch:
					case addPartitionsToTxn:
						w.When = func(req kmsg.Request) bool {
							return req.(*kmsg.AddPartitionsToTxnRequest).TransactionalID == r.id+"-0"
						}
					default:
						w.TxnID = r.id + "-0"
					}
					f := install(r, w)
					r.runLoad(1, 300, func(_ string, i *instance) { f.Wait(t, max(1, w.Count)) })
					if f.Fired() == 0 {
						t.Error("the fault did not hit")
					}
				})
			}
		}
	}
}

// E5: a commit whose answer is lost and whose repetition is refused is in doubt. The next fence and the offsets behind it
// settle it: what was committed is not made again, and what was not is.
func TestE5DoubtIsSettledByTheFence(t *testing.T) {
	for name, install := range map[string]func(*rig, enginetest.Which) *enginetest.Fault{
		"committed": func(r *rig, w enginetest.Which) *enginetest.Fault { return r.fake.LoseAnswer(r.t, w) },
		"aborted":   func(r *rig, w enginetest.Which) *enginetest.Fault { return r.fake.LoseRequest(w) },
	} {
		t.Run(name, func(t *testing.T) {
			needFake(t)
			r := newRig(t)
			in := r.topic("in", 1)
			out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String}
			w := enginetest.Which{Key: endTxn, TxnID: r.id + "-0", Skip: 1}
			lost := install(r, w)
			if name == "committed" {
				w.Skip = 2
			}
			refused := r.fake.Fail(kerr.InvalidProducerEpoch, w)
			for n := range 4 {
				r.put(in, 0, "k", strconv.AppendInt(nil, int64(n), 10))
			}
			dir := t.TempDir()
			i := r.startWith(dir, slow, r.simple(in, out))
			i.log.await(t, "0 running", 2)
			r.put(in, 0, "k", []byte("4"))
			r.checkCounters(out.Name, 5)
			i.stopped()
			r.checkFold(dir, 1)
			if lost.Fired() != 1 || refused.Fired() != 1 {
				t.Errorf("the faults hit %d and %d times, want once", lost.Fired(), refused.Fired())
			}
			written := 0
			for _, rec := range enginetest.ReadAll(t, r.opts(), out.Name) {
				if !rec.Attrs.IsControl() {
					written++
				}
			}
			if want := map[string]int{"committed": 5, "aborted": 4 + 5}[name]; written != want {
				t.Errorf("%d records were written, want %d; effects:\n%s", written, want, i.log)
			}
		})
	}
}

// Connections that end at any moment cost time and nothing else.
func TestE5ConnectionsKilledAtRandom(t *testing.T) {
	r := newRig(t)
	kills, killed := 0, 0
	r.runLoad(4, 10_000, func(_ string, i *instance) {
		rng := rand.New(rand.NewPCG(1, 2))
		for at := 1; at < 25; at += rng.IntN(4) {
			i.log.await(t, strconv.Itoa(kills%4)+" commit", at)
			kills++
			killed += i.wire.kill()
		}
	})
	if kills < 8 || killed < kills {
		t.Errorf("%d connections were killed in %d turns", killed, kills)
	}
}

// A broker that takes its time changes nothing.
func TestE5SlowBroker(t *testing.T) {
	needFake(t)
	r := newRig(t)
	var faults []*enginetest.Fault
	for _, w := range []enginetest.Which{{Key: endTxn, Skip: 1, Count: 3}, {Key: produceRequest, Skip: 2, Count: 3}, {Key: txnOffsetCommit, Count: 3}} {
		w.TxnID = r.id + "-0"
		faults = append(faults, r.fake.Delay(100*time.Millisecond, w))
	}
	r.runLoad(2, 1000, func(string, *instance) {
		for _, f := range faults {
			f.Wait(t, 1)
		}
	})
}

// The broker's coordinator is busy, moves, or does not know the group's new generation yet: offsets are sent again.
func TestE5OffsetsAreSentAgain(t *testing.T) {
	for _, code := range []*kerr.Error{kerr.IllegalGeneration, kerr.RebalanceInProgress, kerr.ConcurrentTransactions, kerr.CoordinatorLoadInProgress, kerr.NotCoordinator} {
		t.Run(code.Message, func(t *testing.T) {
			needFake(t)
			r := newRig(t)
			f := r.fake.Fail(code, enginetest.Which{Key: txnOffsetCommit, TxnID: r.id + "-0", Count: 3})
			i := r.runLoad(1, 100, func(string, *instance) { f.Wait(t, 3) })
			if n := i.log.count("0 restarting"); n != 0 {
				t.Errorf("the task began again %d times; effects:\n%s", n, i.log)
			}
		})
	}
}

// A member that is out of its group may not commit: the transaction is aborted, and the task begins again.
func TestE1OffsetsRefused(t *testing.T) {
	for _, code := range []*kerr.Error{kerr.UnknownMemberID, kerr.FencedInstanceID, kerr.ProducerFenced, kerr.InvalidProducerEpoch, kerr.InvalidTxnState} {
		t.Run(code.Message, func(t *testing.T) {
			needFake(t)
			r := newRig(t)
			f := r.fake.Fail(code, enginetest.Which{Key: txnOffsetCommit, TxnID: r.id + "-0", Skip: 1, Count: 2})
			i := r.runLoad(1, 500, func(string, *instance) { f.Wait(t, 2) })
			if n := i.log.count("0 restarting"); n < 2 {
				t.Errorf("the task began again %d times, want 2; effects:\n%s", n, i.log)
			}
		})
	}
}
