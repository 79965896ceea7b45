package engine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/flechtwerk/flechtwerk/engine/pipeline"
	"github.com/flechtwerk/flechtwerk/engine/rawjson"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// enrichment completes the configs of an extractor.
//
//  1. It runs where a config is polled, so on one instance, and before the config's first poll. Neither who else reads the
//     config topic nor configs.get sees what comes of it.
//  2. What comes of it is kept in the changelog of the config's token, under a key of the engine's own, with a hash of what
//     it was made of: the config as it was written, with its defaults, and the script. It is committed as a page is, before
//     the poll that it is for. So a restart, and another instance, finds it as it finds the cursor, and does not ask again
//     unless the config or the script has changed.
//  3. A run that fails leaves nothing. It concerns its config alone, and follows on_error as a failed poll does.
type enrichment struct {
	stream.Enrich
	spec *pipeline.ConfigSpec
}

// newEnrichment answers nil for an extractor that polls its configs as they are.
func newEnrichment(e *Engine, p *pipeline.Pipeline, x *pipeline.Extractor) (*enrichment, error) {
	if !x.Enrich.Present() {
		return nil, nil
	}
	body, err := e.o.Handlers.Enrich(p, x)
	if err != nil {
		return nil, err
	}
	return &enrichment{body, x.Config}, nil
}

// hash tells what a result was made of.
func (e *enrichment) hash(raw []byte) string {
	h := sha256.New()
	h.Write(e.Digest())
	h.Write(rawjson.Canonical(nil, raw))
	return hex.EncodeToString(h.Sum(nil))
}

// completed is a config as it was written and as it is polled.
type completed struct{ raw, config []byte }

// remembered answers the config of a stored result that was made of what hash tells, or nil.
func remembered(stored []byte, hash string) []byte {
	_, members, err := rawjson.Check(stored, nil)
	if err != nil || string(rawjson.Find(stored, members, "of")) != strconv.Quote(hash) {
		return nil
	}
	return rawjson.Find(stored, members, "config")
}

// enrichError is why a config could not be completed.
type enrichError struct{ err error }

func (e *enrichError) Error() string { return "enrich: " + e.err.Error() }
func (e *enrichError) Unwrap() error { return e.err }

// complete answers the config as it is polled: what is known of it, or what enrich makes of it now.
func (c *cycle) complete(round, hard context.Context, raw []byte) ([]byte, error) {
	e := c.w.enrich
	if e == nil {
		return raw, nil
	}
	if c.full.config != nil && bytes.Equal(c.full.raw, raw) {
		return c.full.config, nil
	}
	hash := e.hash(raw)
	stored, err := c.w.cursor(enrichedKey + c.key)
	if err != nil {
		return nil, fmt.Errorf("read what enrich gave: %w", err)
	}
	if stored != nil {
		// What no longer fits the schema was made for another one.
		if config := remembered(stored, hash); config != nil && e.spec.Check(config) == nil {
			c.full = completed{raw, config}
			return config, nil
		}
	}
	config, err := c.ask(round, hard, raw, hash)
	if err != nil {
		return nil, err
	}
	c.full = completed{raw, config}
	return config, nil
}

// ask runs enrich and commits what it gives.
func (c *cycle) ask(round, hard context.Context, raw []byte, hash string) ([]byte, error) {
	w := c.w
	place := w.room.take(round)
	if place == nil {
		return nil, context.Cause(round)
	}
	defer place.leave()
	began := time.Now()
	info := PollInfo{TaskInfo: w.task.info, Config: c.key, Policy: w.spec.OnError}
	config, err := w.enrich.Complete(round, stream.Config{Key: c.key, Value: raw})
	if err == nil {
		err = w.enrich.spec.Check(config)
		if err != nil {
			err = fmt.Errorf("the completed config is not what the schema demands: %w", err)
		}
	}
	if err != nil && round.Err() != nil {
		return nil, context.Cause(round)
	}
	if err == nil {
		place.rest()
		_, err = w.commit(hard, enrichedKey+c.key, &stream.Page{Moved: true, Cursor: fmt.Appendf(nil, `{"of":"%s","config":%s}`, hash, config)})
		if refused := (*pageError)(nil); errors.As(err, &refused) {
			err = refused.err
		} else if err != nil {
			return nil, &commitError{err}
		}
	}
	info.Duration = time.Since(began)
	if err != nil {
		c.began = began
		err = &enrichError{err}
	}
	info.Err = err
	w.task.events().ConfigEnriched(info)
	return config, err
}

// afterEnrich is when on_error: skip has enrich run again: when the next poll were due.
func (c *cycle) afterEnrich(now time.Time) time.Time {
	switch x := c.w.spec; {
	case x.Schedule != nil:
		return x.Schedule.Next(now)
	case x.EveryExpr == nil:
		return c.began.Add(x.Every)
	default:
		return now.Add(noPeriodPause)
	}
}
