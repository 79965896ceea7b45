package enginetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// Which says which requests a fault hits. Empty fields match everything; a field that a request does not carry never
// matches it.
type Which struct {
	Key   kmsg.Key // the kind of request, such as kmsg.EndTxn; always needed
	TxnID string   // its transactional id
	Topic string   // of a produce request: a topic that it writes to
	// When decides what the others cannot. It must not call the broker.
	When func(kmsg.Request) bool
	// Skip lets that many matching requests through first.
	Skip int
	// Count is how many requests are hit after those; 0 is one, -1 all until Remove.
	Count int
}

// Fault is something that goes wrong at a broker. A test that installs one asserts with Fired that it happened.
type Fault struct {
	name string

	mu      sync.Mutex
	skip    int
	left    int // -1 is no bound
	fired   int
	changed chan struct{} // closed and replaced when fired changes
}

func newFault(name string, w Which) *Fault {
	left := w.Count
	if left == 0 {
		left = 1
	}
	return &Fault{name: name, skip: w.Skip, left: left, changed: make(chan struct{})}
}

// Fired is how often the fault has hit.
func (f *Fault) Fired() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fired
}

// Wait returns when the fault has hit at least n times; after 30 seconds the test fails.
func (f *Fault) Wait(t testing.TB, n int) {
	t.Helper()
	limit := time.After(30 * time.Second)
	for {
		f.mu.Lock()
		fired, changed := f.fired, f.changed
		f.mu.Unlock()
		if fired >= n {
			return
		}
		select {
		case <-changed:
		case <-limit:
			t.Fatalf("fault %q: hit %d times within 30s, want %d", f.name, fired, n)
		}
	}
}

// Remove ends the fault; requests that it holds are not let go by it.
func (f *Fault) Remove() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left = 0
}

// take says whether a matching request is hit, and counts it.
func (f *Fault) take() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left == 0 {
		return false
	}
	if f.skip > 0 {
		f.skip--
		return false
	}
	if f.left > 0 {
		f.left--
	}
	f.fired++
	close(f.changed)
	f.changed = make(chan struct{})
	return true
}

var errLost = errors.New("the connection is lost by a fault of the test")

// LoseRequest closes the connection that a matching request came on; the broker has not acted on it.
func (f *Fake) LoseRequest(w Which) *Fault {
	return f.control("lose request", w, func(kmsg.Request) (kmsg.Response, error, bool) { return nil, errLost, true })
}

// LoseAnswer lets the broker act on a matching request, and then closes its connection in place of answering.
//
// A control function of kfake cannot do this; so it is sent once more, by a client of our own, while the one that came is
// held back.
func (f *Fake) LoseAnswer(t testing.TB, w Which) *Fault {
	t.Helper()
	var mu sync.Mutex
	var ours []kmsg.Request // on their way
	inner := w.When
	w.When = func(req kmsg.Request) bool {
		mu.Lock()
		again := slices.ContainsFunc(ours, func(o kmsg.Request) bool { return same(o, req) })
		mu.Unlock()
		return !again && (inner == nil || inner(req))
	}
	return f.control("lose answer", w, func(req kmsg.Request) (kmsg.Response, error, bool) {
		mu.Lock()
		ours = append(ours, req)
		mu.Unlock()
		var err error
		f.Cluster.SleepControl(func() { err = f.again(req) })
		mu.Lock()
		ours = slices.DeleteFunc(ours, func(o kmsg.Request) bool { return o == req })
		mu.Unlock()
		if err != nil {
			t.Errorf("fault \"lose answer\": the broker did not take the request: %v", err)
		}
		return nil, errLost, true
	})
}

// again sends a copy of req under the same version and returns when it is answered.
func (f *Fake) again(req kmsg.Request) error {
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(req.Key(), req.GetVersion())
	client, err := kgo.NewClient(append(f.Opts(), kgo.MaxVersions(versions), kgo.RequestRetries(0))...)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	resp, err := client.Request(ctx, req)
	if err != nil {
		return err
	}
	if end, ok := resp.(*kmsg.EndTxnResponse); ok {
		return kerr.ErrorForCode(end.ErrorCode)
	}
	return nil
}

// same says whether two requests carry the same bytes.
func same(a, b kmsg.Request) bool {
	return a.Key() == b.Key() && a.GetVersion() == b.GetVersion() && string(a.AppendTo(nil)) == string(b.AppendTo(nil))
}

// FailProduce answers a partition's part of matching produce requests with err, such as kerr.MessageTooLarge or
// kerr.NotLeaderForPartition; the broker keeps nothing of it. Without a Topic it hits every partition of the request.
func (f *Fake) FailProduce(err *kerr.Error, w Which) *Fault {
	w.Key = kmsg.Produce
	return f.fail("fail produce with "+err.Message, err, kfake.Fault{Topic: w.Topic}, w)
}

// Fail answers matching requests with err: in their top-level error, or in every part where there is none.
func (f *Fake) Fail(err *kerr.Error, w Which) *Fault {
	answer := reflect.ValueOf(kmsg.RequestForKey(w.Key.Int16()).ResponseKind()).Elem()
	topLevel := answer.FieldByName("ErrorCode").IsValid()
	return f.fail(fmt.Sprintf("fail %s with %s", w.Key.Name(), err.Message), err, kfake.Fault{TopLevel: topLevel}, w)
}

func (f *Fake) fail(name string, err *kerr.Error, k kfake.Fault, w Which) *Fault {
	fault := newFault(name, w)
	k.Keys, k.Err, k.Count = []kmsg.Key{w.Key}, err, -1
	// The broker asks once per part of a request; one request is hit or not as a whole.
	var asked kmsg.Request
	var hit bool
	k.When = func(req kmsg.Request) bool {
		if req != asked {
			asked = req
			hit = (w.TxnID == "" || transactionalID(req) == w.TxnID) && (w.When == nil || w.When(req)) && fault.take()
		}
		return hit
	}
	f.Cluster.Fault(k)
	return fault
}

// Hold keeps matching requests from being handled until release is called. Everything else goes on, except what comes
// later on the same connection.
func (f *Fake) Hold(w Which) (fault *Fault, release func()) {
	gate := make(chan struct{})
	fault = f.control("hold", w, func(kmsg.Request) (kmsg.Response, error, bool) {
		f.Cluster.SleepControl(func() {
			select {
			case <-gate:
			case <-f.closed:
			}
		})
		return nil, nil, false
	})
	return fault, sync.OnceFunc(func() { close(gate) })
}

// Delay holds matching requests back for d.
func (f *Fake) Delay(d time.Duration, w Which) *Fault {
	return f.control("delay", w, func(kmsg.Request) (kmsg.Response, error, bool) {
		f.Cluster.SleepControl(func() {
			select {
			case <-time.After(d):
			case <-f.closed:
			}
		})
		return nil, nil, false
	})
}

// DelayEnds holds back for d who asks where committed records of a topic end.
func (f *Fake) DelayEnds(d time.Duration, topic string) *Fault {
	return f.Delay(d, Which{Key: kmsg.ListOffsets, Count: -1, When: func(req kmsg.Request) bool {
		r, ok := req.(*kmsg.ListOffsetsRequest)
		return ok && r.IsolationLevel == 1 && slices.ContainsFunc(r.Topics, func(t kmsg.ListOffsetsRequestTopic) bool { return t.Topic == topic })
	}})
}

// Watch counts matching requests and lets them be.
func (f *Fake) Watch(w Which) *Fault {
	w.Count = -1
	return f.control("watch", w, func(kmsg.Request) (kmsg.Response, error, bool) { return nil, nil, false })
}

// control installs fn for matching requests, and stays installed; the fault counts.
func (f *Fake) control(name string, w Which, fn func(kmsg.Request) (kmsg.Response, error, bool)) *Fault {
	fault := newFault(fmt.Sprintf("%s: %s", name, w.Key.Name()), w)
	f.Cluster.ControlKey(w.Key.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.Cluster.KeepControl()
		if !f.matches(w, req) || !fault.take() {
			return nil, nil, false
		}
		return fn(req)
	})
	return fault
}

func (f *Fake) matches(w Which, req kmsg.Request) bool {
	if w.TxnID != "" && transactionalID(req) != w.TxnID {
		return false
	}
	if w.Topic != "" && !f.writesTo(req, w.Topic) {
		return false
	}
	return w.When == nil || w.When(req)
}

func transactionalID(req kmsg.Request) string {
	switch r := req.(type) {
	case *kmsg.EndTxnRequest:
		return r.TransactionalID
	case *kmsg.TxnOffsetCommitRequest:
		return r.TransactionalID
	case *kmsg.AddOffsetsToTxnRequest:
		return r.TransactionalID
	case *kmsg.InitProducerIDRequest:
		if r.TransactionalID != nil {
			return *r.TransactionalID
		}
	case *kmsg.ProduceRequest:
		if r.TransactionID != nil {
			return *r.TransactionID
		}
	}
	return ""
}

// writesTo runs in a control function, where the broker's loop answers questions.
func (f *Fake) writesTo(req kmsg.Request, topic string) bool {
	produce, ok := req.(*kmsg.ProduceRequest)
	if !ok {
		return false
	}
	for _, t := range produce.Topics {
		if t.Topic == topic {
			return true
		}
		if info := f.Cluster.TopicIDInfo(t.TopicID); info != nil && info.Topic == topic {
			return true
		}
	}
	return false
}
