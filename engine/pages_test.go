package engine_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flechtwerk/flechtwerk/engine"
	"github.com/flechtwerk/flechtwerk/engine/enginetest"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// crowd is the spec of an extractor whose configs share a token and are polled all the time.
func crowd(configs int, more string) (spec string, keys []string) {
	spec = fmt.Sprintf("every: 1ms\nworkers: %d\n%sconfigs:\n", configs, more)
	for n := range configs {
		keys = append(keys, fmt.Sprint("c", n))
		spec += "  " + keys[n] + ": {}\n"
	}
	return spec, keys
}

// grouped tells of transactions with several pages.
func grouped(i *effects) func(*engine.Options) {
	return func(o *engine.Options) {
		tell := func(what string) func(engine.TransactionInfo) {
			return func(info engine.TransactionInfo) {
				if len(info.Configs) > 1 {
					i.add("%s %s", what, strings.Join(info.Configs, ","))
				}
			}
		}
		o.Events = engine.Tee(o.Events, engine.Events{TransactionCommitted: tell("together"), TransactionAborted: tell("apart")})
	}
}

// P1, P4: pages of several configs that wait at the same time are one transaction, and each is still whole: who hands a page
// over goes on after its commit, with every cursor in its place, here and in the changelog.
func TestP1PagesOfSeveralConfigsInOneTransaction(t *testing.T) {
	r := newRig(t)
	out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String}
	spec, keys := crowd(12, "")
	seen := newEffects()
	dir := t.TempDir()
	var sent, confirmed [12]atomic.Int64
	index := map[string]int{}
	for n, key := range keys {
		index[key] = n
	}
	i := r.polling(spec, func(ctx context.Context, p *stream.Poll) error {
		at, n := number(t, p.Cursor), index[p.Config.Key]
		for range 3 {
			if int64(at) < confirmed[n].Load() {
				t.Errorf("config %s is at %d again, and %d were confirmed", p.Config.Key, at, confirmed[n].Load())
			}
			if err := p.Commit(ctx, page(out, p.Config.Key, at, 2)); err != nil {
				return err
			}
			at += 2
			confirmed[n].Store(int64(at))
			sent[n].Add(1)
		}
		return nil
	}, grouped(seen), func(o *engine.Options) { o.State = engine.State{Dir: dir, Memory: 8 << 20} })
	i.ends(seen)
	seen.await(t, "together", 20)
	for _, key := range keys {
		i.log.await(t, "0 polled "+key+" pages 3", 2)
	}
	i.stopped()
	pages := int64(0)
	for n := range sent {
		pages += sent[n].Load()
	}
	if transactions := int64(i.log.count("0 commit")); transactions*2 > pages {
		t.Errorf("%d pages took %d transactions", pages, transactions)
	}
	checkPages(t, r, out.Name, int(pages)*2)
	r.checkFold(dir, 1)
}

// A page that a topic does not take fails alone: those that waited with it are committed, once, and their polls go on.
func TestS5ARefusedPageHurtsNoOtherOfItsTransaction(t *testing.T) {
	for name, large := range map[string]func(*stream.Page){
		"one of its messages":   func(p *stream.Page) { p.Messages[1].Value = []byte(quoted(3000)) },
		"a partition not there": func(p *stream.Page) { p.Messages[1].Partition = 7 },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			out := &stream.Topic{Name: r.topic("out", 1, "max.message.bytes=2000"), Key: stream.String}
			spec, keys := crowd(12, "on_error: skip\n")
			seen := newEffects()
			var told atomic.Int64
			i := r.polling(spec, func(ctx context.Context, p *stream.Poll) error {
				at := number(t, p.Cursor)
				next := page(out, p.Config.Key, at, 2)
				if p.Config.Key != "c3" {
					return p.Commit(ctx, next)
				}
				large(next)
				err := p.Commit(ctx, next)
				if err == nil {
					t.Error("the page was taken")
				} else {
					told.Add(1)
				}
				return err
			}, grouped(seen))
			i.ends(seen)
			seen.await(t, "apart", 5)
			for _, key := range keys {
				if key != "c3" {
					i.log.await(t, "0 polled "+key+" pages 1 err <nil>", 3)
				}
			}
			if n := i.log.count("0 running"); n != 1 {
				t.Errorf("the task began %d times; effects:\n%s", n, i.log)
			}
			if n := i.log.count("0 polled c3 pages 0 err"); n == 0 || told.Load() == 0 {
				t.Errorf("the page to blame failed %d times, and its poll was told of %d", n, told.Load())
			}
			if st := i.Engine.Status().Stages[0]; len(st.Configs) != 1 || st.Configs[0].Config != "c3" {
				t.Errorf("in trouble are %+v, want c3 alone", st.Configs)
			}
			i.stopped()
			checkPages(t, r, out.Name, 60)
			for _, rec := range enginetest.ReadCommitted(t, r.opts(), out.Name) {
				if string(rec.Key) == "c3" {
					t.Fatalf("a message of the refused page is at offset %d", rec.Offset)
				}
			}
		})
	}
}

// A transaction takes no more than batch.bytes, but always one page.
func TestPagesOfATransactionAreBounded(t *testing.T) {
	r := newRig(t)
	out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String}
	spec, keys := crowd(8, "")
	seen := newEffects()
	i := r.polling(spec, func(ctx context.Context, p *stream.Poll) error {
		return p.Commit(ctx, page(out, p.Config.Key, number(t, p.Cursor), 2))
	}, grouped(seen), func(o *engine.Options) { o.BatchBytes = 1 })
	for _, key := range keys {
		i.log.await(t, "0 polled "+key+" pages 1", 3)
	}
	i.stopped()
	if n := seen.count("together"); n > 0 {
		t.Errorf("%d transactions held several pages; first %s", n, seen.all()[0])
	}
	checkPages(t, r, out.Name, 48)
}

// P7: the stop of a task finds pages waiting for each other. Each is committed or not, as its poll is told, and nobody hangs.
func TestP7StopWhilePagesWait(t *testing.T) {
	r := newRig(t)
	out := &stream.Topic{Name: r.topic("out", 1), Key: stream.String}
	spec, _ := crowd(16, "")
	poll := func(ctx context.Context, p *stream.Poll) error {
		at := number(t, p.Cursor)
		for {
			if err := p.Commit(ctx, page(out, p.Config.Key, at, 1)); err != nil {
				return err
			}
			at++
		}
	}
	for range 5 {
		seen := newEffects()
		i := r.polling(spec, poll, grouped(seen)).ends(seen)
		seen.await(t, "together", 3)
		began := time.Now()
		i.stopped()
		if took := time.Since(began); took > 8*time.Second {
			t.Errorf("the stop took %v", took)
		}
	}
	checkPages(t, r, out.Name, 100)
}
