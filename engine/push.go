package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/flechtwerk/flechtwerk/engine/pipeline"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// pushing is the work of a stage whose source tells without being asked. Its task is the instance: one session, one
// transactional id, no group and no changelog. A page is handed over by the session's goroutine, and Commit does all the rest
// on that goroutine:
//
//	floor → begin → produce → end          the way of nearly every page
//	  any doubt → close the client → pause → new client → fence → the same page again
//
// What holds throughout:
//
//  1. Commit answers nil only after the broker has answered the end of a transaction that holds the whole page. What is
//     acknowledged at the source is therefore in Kafka.
//  2. Whatever else happens to a transaction (the connection breaks, the answer to its end is lost, the broker aborts it
//     because Kafka was away for longer than a transaction may be open) leaves its fate in doubt. There is no changelog and
//     no offset that could tell, and none is needed: the page is sent again, under a new epoch, after the fence has ended
//     whatever was open. If the transaction in doubt had been committed after all, its messages are there twice. The source's
//     own promise is at least once, so that this is allowed; to leave the page out would not be.
//  3. The same page, in the same order: a session has one page under way, and nothing overtakes it. So first appearances keep
//     the order in which messages arrived.
//  4. Kafka's absence is waited out. The session's bounds keep what arrives meanwhile small, and its own clock keeps the
//     connection to the source alive.
//  5. Nobody but another process with the same instance name ends our epoch while a transaction of ours is younger than the
//     broker's time-out. It would fence us again and again, and take the session at the source from us as well, so that
//     this ends the process and names the instance.
//  6. A record that Kafka will never take leaves no doubt: nothing of the page is there, and the session is told which message
//     it was.
type pushing struct {
	s       *stage
	spec    *pipeline.Extractor
	session stream.Session
	info    TaskInfo

	// Used by Commit, which one goroutine calls at a time, and by run before and after.
	producer *producer
	tx       transaction
	ended    time.Time // of the last transaction

	mu    sync.Mutex
	phase phase
}

func newPushStage(e *Engine, p *pipeline.Pipeline, x *pipeline.Extractor) (*stage, error) {
	arrivals, err := newArrivals(e, p, x)
	if err != nil {
		return nil, err
	}
	session, err := e.o.Handlers.Session(p, x, e.o.Instance, arrivals)
	if err != nil {
		return nil, err
	}
	s := &stage{engine: e, pipeline: p, name: x.Name, kind: "extractor", app: x.ApplicationID, outputs: slices.Clone(x.OutputTopics),
		release: session.Close, configTopics: x.ConfigTopics}
	for _, letters := range []*pipeline.Topic{x.InvalidTo, x.ErrorTo} {
		if letters != nil && !slices.Contains(s.outputs, letters) {
			s.outputs = append(s.outputs, letters)
		}
	}
	s.info = StageInfo{Pipeline: p.Name, Stage: x.Name, ApplicationID: s.app}
	s.configs = &configs{s: s, spec: x.Config, where: x.Where, topics: x.ConfigTopics, inline: x.Configs, policy: x.OnInvalid}
	if x.OnInvalid == pipeline.DeadLetter {
		s.configs.policy = pipeline.Skip // a config that is left out stays in its topic
	}
	if err := s.configs.start(); err != nil {
		return nil, err
	}
	s.push = &pushing{s: s, spec: x, session: session, info: TaskInfo{Pipeline: p.Name, Stage: x.Name}}
	return s, nil
}

// run holds the session until ctx is done, or something goes wrong that cannot be waited out.
func (p *pushing) run(ctx context.Context) error {
	o := &p.s.engine.o
	grace, end := context.WithCancelCause(context.Background())
	defer end(nil)
	stopping := context.AfterFunc(ctx, func() {
		p.setPhase(phaseStopping)
		time.AfterFunc(o.ShutdownTimeout, func() { end(errTooLong) })
	})
	defer stopping()
	defer func() {
		if p.producer != nil {
			p.producer.close()
		}
		p.events().TaskStopped(p.info)
	}()
	p.events().TaskAssigned(p.info)
	// What an earlier process of this name has left open is settled before the source is asked for more.
	err := p.fence(ctx)
	if err != nil && !fatal(err) {
		err = p.renew(ctx, err, 0)
	}
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return err
	}
	p.setPhase(phaseRunning)
	p.events().TaskRunning(p.info)
	err = p.session.Run(ctx, &stream.Push{
		Configs: p.configs,
		Lookup:  func() stream.Configs { set, _ := p.s.configs.now(); return set },
		Commit:  p.commit,
		Gather:  o.CommitInterval,
		Grace:   grace,
	})
	if ctx.Err() != nil && grace.Err() != nil {
		p.s.warn("task.abandoned", fmt.Sprintf("the session was still at work after %v: what it was at is dropped, and comes again from where it came", o.ShutdownTimeout))
		return nil
	}
	return err
}

// configs are those that take part: a suspended one does not.
func (p *pushing) configs() ([]stream.Config, <-chan struct{}) {
	set, changed := p.s.configs.now()
	var list []stream.Config
	for _, key := range set.Keys() {
		if value := set.Get(key); active(value) {
			list = append(list, stream.Config{Key: key, Value: value})
		}
	}
	return list, changed
}

// commit writes a page. It returns when that is certain, or ctx is done.
func (p *pushing) commit(ctx context.Context, page *stream.Page) error {
	if len(page.Messages) == 0 {
		return context.Cause(ctx)
	}
	p.tx.messages = page.Messages
	defer func() { p.tx.messages = nil }()
	if !pause(ctx, time.Until(p.ended.Add(commitFloor))) {
		return context.Cause(ctx)
	}
	for failures := 0; ; failures++ {
		began := time.Now()
		err := p.try(ctx)
		if err == nil {
			p.ended = time.Now()
			return nil
		}
		if refused := (*recordError)(nil); errors.As(err, &refused) {
			if !refused.among {
				return p.refused(refused)
			}
			p.producer.alone = true // once more, so that it is known which record it is
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := p.judge(err, time.Since(began)); err != nil {
			return err
		}
		if err := p.renew(ctx, err, failures); err != nil {
			return err
		}
		p.setPhase(phaseRunning)
		p.events().TaskRunning(p.info)
	}
}

// try writes the page once.
func (p *pushing) try(ctx context.Context) error {
	info := transactionInfo(p.info, &p.tx, len(p.tx.messages))
	_, err := p.producer.commit(ctx, &p.tx, p.events(), &info)
	p.producer.alone = false
	return err
}

// refused tells of a message that Kafka will never take.
func (p *pushing) refused(r *recordError) error {
	m := &p.tx.messages[r.index]
	err := fmt.Errorf("the broker refused a record: %w", r.err)
	if errors.Is(r.err, kerr.MessageTooLarge) {
		err = tooLarge(m.Topic.Name, m.Key, len(m.Key)+len(m.Value), int(p.s.maxMessage(m.Topic.Name)))
	}
	return &stream.RefusedError{Message: r.index, Err: err}
}

// judge answers err if waiting does not help. took is how long the transaction was open at most.
func (p *pushing) judge(err error, took time.Duration) error {
	switch {
	case fatal(err):
		return err
	case (errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch)) && took < transactionTimeout:
		return fmt.Errorf("%w: instance.id %s: another process runs %s under the same name; give each its own: %w", ErrSurroundings, p.s.engine.o.Instance, p.s.app, err)
	}
	return nil
}

// renew replaces the producer after a doubt, as often as it takes.
func (p *pushing) renew(ctx context.Context, why error, failures int) error {
	for ; ; failures++ {
		p.producer.close()
		info := p.info
		info.Err = why
		p.setPhase(phaseRestarting)
		p.events().TaskRestarting(info)
		if !pause(ctx, restart(failures)) {
			return context.Cause(ctx)
		}
		if why = p.fence(ctx); why == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if fatal(why) {
			return why
		}
	}
}

// fence makes a new producer the only one of the transactional id; an open transaction of an earlier one is ended by it.
func (p *pushing) fence(ctx context.Context) error {
	began := time.Now()
	producer, err := newProducer(p.s.engine.kafka, instanceID(p.s.app, p.s.engine.o.Instance), membership{}, p.s.maxMessage)
	if err != nil {
		return &fatalError{err}
	}
	p.producer = producer
	if err := producer.fence(ctx); err != nil {
		return err
	}
	info := p.info
	info.Duration = time.Since(began)
	p.events().TaskFenced(info)
	at("after-fence")
	return nil
}

func (p *pushing) events() *Events { return &p.s.engine.o.Events }

func (p *pushing) setPhase(to phase) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.phase != phaseStopping {
		p.phase = to
	}
}

func (p *pushing) status(st *StageStatus) {
	p.mu.Lock()
	st.Tasks = []TaskStatus{{Phase: p.phase.String()}}
	p.mu.Unlock()
	session := p.session.Status()
	st.Session = &session
	st.Joined = session.Subscribed
	configs, _ := p.configs()
	st.Polled = len(configs)
	if st.Polled == 0 {
		st.Joined = true // nothing to subscribe to
	}
}
