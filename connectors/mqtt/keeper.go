package mqtt

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// parting is how a session ends for the broker.
type parting uint8

const (
	stay    parting = iota // the broker keeps it
	forGood                // the broker forgets it
)

// keeper holds a connection to the broker, and its subscriptions as the configs say.
type keeper struct {
	*Session
	push  *stream.Push
	leave chan struct{} // closed when the session is to unsubscribe
	end   chan parting  // how it ends, once
	ended chan struct{} // closed when run has returned
	err   error         // valid once ended is closed
	bye   parting
	said  map[string]string // what is wrong with configs, by key
}

// routes say whose a topic is.
type routes struct {
	tree    filterTree
	configs []stream.Config
	owners  map[string]int // filter → place in configs
	filters []string       // all, sorted
}

// errEnd is the cause by which a keeper is told to end.
var errEnd = errors.New("the session is told to end")

// run keeps a connection until it is told to end. An error is one that does not get better by itself.
func (k *keeper) run(ctx context.Context) error {
	// A context of the keeper's own ends attempts under way when the end is near.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case k.bye = <-k.end:
			cancel(errEnd)
		case <-ctx.Done():
		}
	}()
	wait := k.config.Backoff.Min
	for {
		if err := k.wanted(ctx); err != nil {
			return ended(err)
		}
		began := time.Now()
		l, err := k.open(ctx)
		if err == nil {
			err = k.serve(ctx, l)
		}
		var fatal *Error
		switch {
		case ctx.Err() != nil:
			return ended(context.Cause(ctx))
		case errors.As(err, &fatal):
			return err
		}
		if time.Since(began) > k.config.Backoff.Max {
			wait = k.config.Backoff.Min
		}
		pause := wait/2 + rand.N(wait/2+1)
		wait = min(2*wait, k.config.Backoff.Max)
		why := err.Error()
		k.trouble.Store(&why)
		call(k.config.Events.Disconnected, DisconnectedInfo{Broker: k.broker, Err: err, Retry: pause})
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ended(context.Cause(ctx))
		}
	}
}

// ended is nil for an end that was asked for.
func ended(cause error) error {
	var fatal *Error
	if errors.As(cause, &fatal) {
		return cause
	}
	return nil
}

// wanted waits until there is something to subscribe to. Until then the broker keeps what may wait for this client identifier.
func (k *keeper) wanted(ctx context.Context) error {
	for {
		changed, err := k.route()
		if err != nil {
			return err
		}
		if len(k.routes.Load().filters) > 0 || len(k.known) > 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-k.leave:
			return nil // to end what the broker may have of an earlier life
		case <-changed:
		}
	}
}

// route makes the routes of the configs as they are now. A config that has no place among them follows the policy.
func (k *keeper) route() (changed <-chan struct{}, err error) {
	now, changed := k.push.Configs()
	if old := k.routes.Load(); old != nil && slices.EqualFunc(old.configs, now, func(a, b stream.Config) bool { return a.Key == b.Key && string(a.Value) == string(b.Value) }) {
		return changed, nil
	}
	r := &routes{configs: slices.Clone(now), owners: map[string]int{}}
	for i, c := range r.configs {
		if err := r.add(i, k.config.Filters); err != nil {
			if err := k.refuse(c.Key, err); err != nil {
				return nil, err
			}
		}
	}
	r.filters = slices.Sorted(maps.Keys(r.owners))
	k.routes.Store(r)
	return changed, nil
}

// add adds the filters of the config at place i: all of them, or none.
func (r *routes) add(i int, filtersOf func(stream.Config) ([]string, error)) error {
	c := r.configs[i]
	filters, err := filtersOf(c)
	if err == nil && len(filters) == 0 {
		err = errors.New("it has no topic filter")
	}
	if err != nil {
		return &Error{Code: CodeFilter, Config: c.Key, Err: err}
	}
	for j, f := range filters {
		err := CheckFilter(f)
		code := CodeFilter
		if err == nil {
			if other, clash := r.tree.add(f, i); clash {
				code = CodeOverlap
				err = &OverlapError{Filter: f, Other: other, Config: c.Key, OtherConfig: r.configs[r.owners[other]].Key}
			}
		}
		if err != nil {
			for _, f := range filters[:j] {
				r.tree.remove(f)
				delete(r.owners, f)
			}
			return &Error{Code: code, Config: c.Key, Err: err}
		}
		r.owners[f] = i
	}
	return nil
}

// refuse says what becomes of a config that cannot be served. It says the same only once.
func (k *keeper) refuse(key string, err error) error {
	if k.config.OnError.Kind == Fail {
		return err
	}
	if text := err.Error(); k.said[key] == text {
		return nil
	} else {
		k.said[key] = text
	}
	call(k.config.Events.ConfigRefused, MessageInfo{Config: key, Err: err})
	return nil
}

// serve subscribes, and follows the configs until the connection is gone or ctx ends. It closes the connection.
func (k *keeper) serve(ctx context.Context, l *link) error {
	bye := stay
	defer func() {
		k.subscribed.Store(false)
		k.current.Store(nil)
		l.close(k.push.Grace, bye == forGood)
		if ctx.Err() != nil {
			call(k.config.Events.Disconnected, DisconnectedInfo{Broker: k.broker})
		}
	}()
	call(k.config.Events.Connected, ConnectedInfo{Broker: k.broker, Resumed: l.resumed})
	if l.resumed {
		if n := k.inbox.forget(l); n > 0 {
			call(k.config.Events.Redelivery, n)
		}
	} else {
		clear(k.known)
	}
	k.current.Store(l)
	// A new session has no subscriptions, and those of an old one may be of another life of this process.
	subscribed := map[string]bool{}
	for {
		changed, err := k.route()
		if err != nil {
			return err
		}
		leaving := false
		select {
		case <-k.leave:
			leaving = true
		default:
		}
		if err := k.adjust(ctx, l, subscribed, leaving); err != nil {
			return err
		}
		k.subscribed.Store(true)
		leave := k.leave
		if leaving {
			k.settle()
			leave, changed = nil, nil
		}
		select {
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), errEnd) {
				bye = k.bye
			}
			return context.Cause(ctx)
		case <-l.gone:
			l.lose()
			return l.reason
		case <-changed:
		case <-leave:
		}
	}
}

// adjust makes the broker's subscriptions those of the routes, or none for who leaves.
func (k *keeper) adjust(ctx context.Context, l *link, subscribed map[string]bool, leaving bool) error {
	wanted := k.routes.Load().filters
	if leaving {
		for _, f := range wanted {
			k.known[f] = true // perhaps of an earlier life
		}
		wanted = nil
	}
	var remove, add []string
	for f := range k.known {
		if _, found := slices.BinarySearch(wanted, f); !found {
			remove = append(remove, f)
		}
	}
	for _, f := range wanted {
		if !subscribed[f] {
			add = append(add, f)
		}
	}
	if len(remove) > 0 {
		slices.Sort(remove)
		if err := l.unsubscribe(ctx, remove); err != nil {
			return err
		}
		for _, f := range remove {
			delete(k.known, f)
			delete(subscribed, f)
		}
		call(k.config.Events.Unsubscribed, SubscribedInfo{remove})
	}
	if len(add) == 0 {
		return nil
	}
	refused, err := l.subscribe(ctx, add)
	if err != nil {
		return err
	}
	for _, f := range slices.Sorted(maps.Keys(refused)) {
		why := refused[f]
		var known *Error
		if !errors.As(why, &known) {
			return why // it may be accepted another time
		}
		r := k.routes.Load()
		key := r.configs[r.owners[f]].Key
		if err := k.refuse(key, &Error{Code: known.Code, Topic: f, Config: key, Err: known.Err}); err != nil {
			return err
		}
	}
	done := add[:0]
	for _, f := range add {
		subscribed[f] = true // refused ones are not asked for again on this connection
		if refused[f] == nil {
			k.known[f] = true
			done = append(done, f)
		}
	}
	call(k.config.Events.Subscribed, SubscribedInfo{done})
	return nil
}

func (k *keeper) settle() {
	select {
	case k.settled <- struct{}{}:
	default:
	}
}
