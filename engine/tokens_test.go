package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flechtwerk/flechtwerk/engine"
	"github.com/flechtwerk/flechtwerk/engine/enginetest"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// vectors are keys and their tokens of eight.
var vectors = map[string]int32{"london": 4, "english": 6, "translation": 0, "batch-42": 0, "batch-43": 7, "germany-free": 7, "fernverkehr": 3,
	"": 1, "a": 4, "ab": 2, "abc": 3, "abcd": 4}

// owned are the tokens that an instance runs now.
func (i *instance) owned() map[int32]bool {
	own := map[int32]bool{}
	for _, task := range i.Engine.Status().Stages[0].Tasks {
		if task.Phase == "running" {
			own[task.Task] = true
		}
	}
	return own
}

// P8: a config is polled by the instance that holds its token, wherever its record lies, and by no other.
func TestP8AConfigIsPolledByWhoHoldsItsToken(t *testing.T) {
	r := newRig(t)
	topic := r.configTopic("configs", 8)
	for key := range vectors {
		r.put(topic, 5, key, []byte("{}"))
	}
	spec := "every: 20ms\nconfig_topics: " + topic + "\n"
	a := r.polling(spec, seer(newEffects()))
	waitFor(t, a, "running", 8)
	b := r.polling(spec, seer(newEffects()))
	waitFor(t, b, "running", 4)
	waitFor(t, a, "running", 4)
	ownA, ownB := a.owned(), b.owned()
	for token := range int32(8) {
		if ownA[token] == ownB[token] {
			t.Errorf("token %d: one instance has it %v, the other %v", token, ownA[token], ownB[token])
		}
	}
	for key, token := range vectors {
		who := a
		if ownB[token] {
			who = b
		}
		line := fmt.Sprintf("%d polled %s ", token, key)
		who.log.await(t, line, who.log.count(line)+2)
	}
	// What was polled by whoever held no token of it would show under another task, or at the other instance.
	for _, i := range []*instance{a, b} {
		for _, line := range i.log.all() {
			before, rest, ok := strings.Cut(line, " polled ")
			if !ok {
				continue
			}
			n, err := strconv.Atoi(before)
			if err != nil {
				t.Fatalf("effect %q", line)
			}
			token := int32(n)
			if key, _, _ := strings.Cut(rest, " "); vectors[key] != token {
				t.Errorf("config %q was polled under token %d", key, token)
			}
			if i == b && !ownB[token] {
				t.Errorf("the second instance polled %s, whose token it never had", line)
			}
		}
	}
	a.stopped()
	b.stopped()
}

// P8: membership is a lease. The group's consumer reads none of its topic's records, though they are many.
func TestP8LeaseIsNeverRead(t *testing.T) {
	needFake(t)
	r := newRig(t)
	out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String}
	i := r.extract("", out, 5*time.Millisecond, 2, []string{"a", "b", "c"}, pages(t, out, 1))
	waitFor(t, i, "running", 2)
	fetches := r.fake.Watch(enginetest.Which{Key: fetchRequest, When: func(req kmsg.Request) bool {
		f := req.(*kmsg.FetchRequest)
		return f.SessionEpoch != -1 || len(f.Topics) > 0 // else a client that has been closed says good-bye
	}})
	line := fmt.Sprintf("%d polled a", engine.Token("a", 2))
	i.log.await(t, line, i.log.count(line)+30) // the last requests of the restore
	restored := fetches.Fired()
	i.log.await(t, line, i.log.count(line)+40)
	if n := fetches.Fired(); n != restored {
		t.Errorf("%d requests to read, of a stage that only polls", n-restored)
	}
	i.stopped()
	checkPages(t, r, out.Name, 40)
	if fetches.Fired() == restored {
		t.Error("the watch saw not even the test's own reading")
	}
}

// P9: a rebalance that takes some tokens away cancels the polls of these, and those of the others go on as if nothing were.
func TestP9LosingTokensCancelsOnlyTheirPolls(t *testing.T) {
	r := newRig(t)
	topic := r.configTopic("configs", 8)
	keys := []string{"translation", "", "ab", "abc", "a", "english", "batch-43"}
	for _, key := range keys {
		r.config(topic, 8, key, "{}")
	}
	out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String}
	spec := "every: 100ms\nconfig_topics: " + topic + "\n"
	var begun sync.WaitGroup
	begun.Add(len(keys))
	var mu sync.Mutex
	cancelled := map[string]error{}
	goOn := make(chan struct{})
	a := r.polling(spec, func(ctx context.Context, p *stream.Poll) error {
		if p.Cursor != nil {
			return nil
		}
		begun.Done()
		if err := p.Commit(ctx, page(out, p.Config.Key, 0, 1)); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			mu.Lock()
			defer mu.Unlock()
			cancelled[p.Config.Key] = p.Commit(ctx, page(out, p.Config.Key, 100, 1))
			return context.Cause(ctx)
		case <-goOn:
			return p.Commit(ctx, page(out, p.Config.Key, 1, 1))
		}
	})
	begun.Wait()
	for _, key := range keys {
		a.log.await(t, fmt.Sprintf("%d apply", engine.Token(key, 8)), 1)
	}
	b := r.polling(spec, func(ctx context.Context, p *stream.Poll) error {
		if at := number(t, p.Cursor); at < 2 {
			return p.Commit(ctx, page(out, p.Config.Key, at, 1))
		}
		return nil
	})
	waitFor(t, b, "running", 4)
	own := b.owned()
	mu.Lock()
	for _, key := range keys {
		err, was := cancelled[key]
		if lost := own[engine.Token(key, 8)]; lost != was {
			t.Errorf("config %q: its token was lost %v, its poll was cancelled %v", key, lost, was)
		}
		if was && err == nil {
			t.Errorf("config %q committed a page after the cancel", key)
		}
	}
	mu.Unlock()
	close(goOn)
	for _, key := range keys {
		if token := engine.Token(key, 8); own[token] {
			b.log.await(t, fmt.Sprintf("%d polled %s pages 1", token, key), 1)
		} else {
			a.log.await(t, fmt.Sprintf("%d polled %s pages 2", token, key), 1)
		}
	}
	a.stopped()
	b.stopped()
	checkPages(t, r, out.Name, 2*len(keys))
}

// overlaps counts polls that run at once for one config.
type overlaps struct {
	mu   sync.Mutex
	at   map[string]int
	most int
}

func (o *overlaps) during(key string, poll func() error) error {
	o.mu.Lock()
	o.at[key]++
	o.most = max(o.most, o.at[key])
	o.mu.Unlock()
	defer func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.at[key]--
	}()
	return poll()
}

// P8, R6: two, then three, then one instance over 64 configs, each of which fails now and then. Of each config the numbers come
// out without gap and without repeat, and no two polls of one run at once.
func TestP8InstancesComeAndGoOver64Configs(t *testing.T) {
	r := newRig(t)
	topic := r.configTopic("configs", 8)
	var keys []string
	for n := range 64 {
		keys = append(keys, fmt.Sprintf("config-%d", n))
		r.config(topic, 8, keys[n], "{}")
	}
	out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String}
	count, seen := &overlaps{at: map[string]int{}}, newEffects()
	start := func() *instance {
		return r.polling("every: 100ms\non_error: skip\nconfig_topics: "+topic+"\n", func(ctx context.Context, p *stream.Poll) error {
			return count.during(p.Config.Key, func() error {
				at := number(t, p.Cursor)
				if err := p.Commit(ctx, page(out, p.Config.Key, at, 2)); err != nil {
					return err
				}
				seen.add("%s.", p.Config.Key)
				if at%5 == 4 {
					return errors.New("no answer")
				}
				return p.Commit(ctx, page(out, p.Config.Key, at+2, 1))
			})
		})
	}
	again := func() {
		t.Helper()
		polled := map[string]int{}
		for _, key := range keys {
			polled[key] = seen.count(key + ".")
		}
		for _, key := range keys {
			seen.await(t, key+".", polled[key]+2)
		}
	}
	a, b := start(), start()
	shared(t, 8, a, b)
	again()
	c := start()
	shared(t, 8, a, b, c)
	again()
	a.stopped()
	shared(t, 8, b, c)
	again()
	b.stopped()
	shared(t, 8, c)
	again()
	c.stopped()
	checkPages(t, r, out.Name, 2*len(keys))
	if count.most != 1 {
		t.Errorf("%d polls of one config ran at once", count.most)
	}
}

// shared waits until instances run n tasks together, each its share.
func shared(t *testing.T, n int, of ...*instance) {
	t.Helper()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for deadline := time.Now().Add(30 * time.Second); ; <-again.C {
		sum, fair := 0, true
		for _, i := range of {
			own := len(i.owned())
			sum += own
			fair = fair && own >= n/len(of)
		}
		if sum == n && fair {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d instances run %d tasks, want %d", len(of), sum, n)
		}
	}
}
