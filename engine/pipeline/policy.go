package pipeline

import (
	"fmt"
	"slices"
	"strings"

	"github.com/flechtwerk/flechtwerk/engine/wording"
)

// InvalidPolicy says what becomes of a record that cannot be decoded, or of a config that is not what a stage wants.
type InvalidPolicy struct {
	leaf
	Value Policy
	To    Text // of DeadLetter
}

func (p *InvalidPolicy) decode(d *decoder, n *node, what string) bool {
	if isLetter, ok := d.deadLetter(n, what, &p.To); isLetter {
		if ok {
			p.node, p.Value = n, DeadLetter
		}
		return ok
	}
	word, ok := d.policy(n, what, []string{"fail", "skip"}, []string{"dlq", "value"})
	if ok {
		p.node, p.Value = n, policyOf(word)
	}
	return ok
}

// RecordPolicy says what becomes of a record whose script or expression fails.
type RecordPolicy struct {
	leaf
	Value Policy
	Retry Backoff
}

func (p *RecordPolicy) decode(d *decoder, n *node, what string) (ok bool) {
	p.Value, p.Retry, ok = d.retryPolicy(n, what, []string{"dlq"})
	if ok {
		p.node = n
	}
	return ok
}

// PollPolicy says what becomes of a poll that fails.
type PollPolicy struct {
	leaf
	Value Policy
	Retry Backoff
	To    Text // of DeadLetter
}

func (p *PollPolicy) decode(d *decoder, n *node, what string) (ok bool) {
	if isLetter, ok := d.deadLetter(n, what, &p.To); isLetter {
		if ok {
			p.node, p.Value = n, DeadLetter
		}
		return ok
	}
	p.Value, p.Retry, ok = d.retryPolicy(n, what, nil)
	if ok {
		p.node = n
	}
	return ok
}

// deadLetter reads { dlq: topic }. It answers false first for anything else.
func (d *decoder) deadLetter(n *node, what string, to *Text) (isLetter, ok bool) {
	value := n.find("dlq")
	if value == nil || !strings.HasPrefix(what, "extractors.") {
		return false, false
	}
	ok = true
	for _, e := range n.entries {
		if e.key.text != "dlq" {
			d.report(e.key, "field.unknown", fmt.Sprintf("%s has no field %q beside `dlq`", what, e.key.text), "it has one policy")
			ok = false
		}
	}
	return true, to.decode(d, value, what+".dlq") && ok
}

func policyOf(word string) Policy {
	switch word {
	case "skip":
		return Skip
	case "retry":
		return Retry
	default:
		return Fail
	}
}

// policy reads one of a few words. later are the keys that the mapping form does not support yet.
func (d *decoder) policy(n *node, what string, known, later []string) (word string, ok bool) {
	if n.kind == mapping && len(n.entries) == 1 {
		if key := n.entries[0].key; slices.Contains(later, key.text) {
			d.report(key, "not_supported", fmt.Sprintf("`%s: { %s: … }` is not supported yet", lastOf(what), key.text), "use "+wording.List(known, "or"))
			return "", false
		}
	}
	return d.word(n, what, known, later)
}

// retryPolicy reads fail, skip, retry or { retry: 1s..5m }.
func (d *decoder) retryPolicy(n *node, what string, later []string) (Policy, Backoff, bool) {
	if value := n.find("retry"); value != nil {
		for _, e := range n.entries {
			if e.key.text != "retry" {
				d.report(e.key, "field.unknown", fmt.Sprintf("%s has no field %q beside `retry`", what, e.key.text), "it has one policy")
			}
		}
		b, ok := d.backoff(value, what+".retry")
		return Retry, b, ok
	}
	word, ok := d.policy(n, what, []string{"fail", "skip", "retry"}, later)
	if !ok {
		return Fail, Backoff{}, false
	}
	if p := policyOf(word); p != Retry {
		return p, Backoff{}, true
	}
	return Retry, DefaultBackoff, true
}

// backoff reads a range of durations such as 1s..5m.
func (d *decoder) backoff(n *node, what string) (Backoff, bool) {
	const want = "a range of durations such as 1s..5m"
	if n.kind != scalar || n.tag != "" {
		d.wrongType(n, what, want)
		return Backoff{}, false
	}
	e := d.expand(n)
	if e.missing {
		return DefaultBackoff, true
	}
	from, to, isRange := strings.Cut(e.text, "..")
	if !isRange {
		hint := "the first pause and the longest one"
		if _, err := ParseDuration(e.text); err == nil && !e.env {
			hint = fmt.Sprintf("write %s..%s for pauses that do not grow", e.text, e.text)
		}
		d.report(n, "retry.invalid", fmt.Sprintf("%s is %s, and %s is none", what, want, n.text), hint)
		return Backoff{}, false
	}
	least, err := ParseDuration(strings.TrimSpace(from))
	most, err2 := ParseDuration(strings.TrimSpace(to))
	switch {
	case err != nil || err2 != nil:
		d.report(n, "retry.invalid", fmt.Sprintf("%s is %s, and %s is none", what, want, n.text), "a duration is 250ms, 30s, 5m, 48h or 7d")
	case least <= 0:
		d.report(n, "retry.invalid", fmt.Sprintf("%s begins with no pause at all", what), "the shortest is 1ms")
	case most < least:
		d.report(n, "retry.invalid", fmt.Sprintf("%s ends below where it begins", what), "write the first pause first, and the longest one after it")
	default:
		return Backoff{least, most}, true
	}
	return Backoff{}, false
}
