package mqtt

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxTopic is the longest topic and filter in bytes, of the protocol.
const maxTopic = 65535

// CheckFilter tells what is wrong with a topic filter, if anything.
func CheckFilter(filter string) error {
	switch {
	case filter == "":
		return fmt.Errorf("a topic filter is not empty")
	case len(filter) > maxTopic:
		return fmt.Errorf("a topic filter has at most %d bytes", maxTopic)
	case !utf8.ValidString(filter) || strings.ContainsRune(filter, 0):
		return fmt.Errorf("a topic filter is UTF-8 text without the character U+0000")
	case strings.HasPrefix(filter, "$share/"):
		return fmt.Errorf("topic filter %q: the shared group is added where it belongs; write the filter without $share", filter)
	}
	levels := strings.Split(filter, "/")
	for i, level := range levels {
		switch {
		case level == "#" && i < len(levels)-1:
			return fmt.Errorf("topic filter %q: # is the last level or none", filter)
		case len(level) > 1 && strings.ContainsAny(level, "+#"):
			return fmt.Errorf("topic filter %q: + and # are a whole level, and %q is more than that", filter, level)
		}
	}
	return nil
}

// Overlap tells whether two of the filters can match the same topic, and which. A broker delivers such a message once per
// filter, or once with no word of which one it was for.
func Overlap(filters []string) error {
	var tree filterTree
	for _, f := range filters {
		if other, clash := tree.add(f, 0); clash {
			return &OverlapError{Filter: f, Other: other}
		}
	}
	return nil
}

// OverlapError says that two filters can match the same topic.
type OverlapError struct {
	Filter, Other       string
	Config, OtherConfig string // the keys of the configs that they are from, where they are from configs
}

func (e *OverlapError) Error() string {
	of := func(filter, config string) string {
		if config == "" {
			return fmt.Sprintf("%q", filter)
		}
		return fmt.Sprintf("%q of config %q", filter, config)
	}
	first, second := of(e.Other, e.OtherConfig), of(e.Filter, e.Config)
	if e.Filter == e.Other {
		return fmt.Sprintf("topic filter %s is there already (%s): each message would come twice", second, first)
	}
	return fmt.Sprintf("topic filters %s and %s overlap: a message that both match would come twice, or count for one of them by chance", first, second)
}

// Code is the error's stable code.
func (e *OverlapError) Code() string { return CodeOverlap }

// filterTree holds topic filters that do not overlap, each with a number that its owner gave it. The zero tree is empty.
type filterTree struct{ root filterNode }

// filterNode is a level. A literal child is the rest of the topics that go on with its name, plus those that go on with any,
// hash those that go on in any way, or end here.
type filterNode struct {
	literal    map[string]*filterNode
	plus, hash *filterNode
	// end is set where a filter ends: at a node that is a hash, or below the filter's last level.
	end    bool
	filter string
	owner  int
}

// add puts filter into the tree, unless it overlaps with one that is there, which it then answers.
func (t *filterTree) add(filter string, owner int) (other string, clash bool) {
	if n := t.root.overlaps(filter, true); n != nil {
		return n.filter, true
	}
	n := &t.root
	for level := range strings.SplitSeq(filter, "/") {
		switch level {
		case "#":
			if n.hash == nil {
				n.hash = &filterNode{}
			}
			n = n.hash
		case "+":
			if n.plus == nil {
				n.plus = &filterNode{}
			}
			n = n.plus
		default:
			next := n.literal[level]
			if next == nil {
				if n.literal == nil {
					n.literal = map[string]*filterNode{}
				}
				next = &filterNode{}
				n.literal[level] = next
			}
			n = next
		}
	}
	n.end, n.filter, n.owner = true, filter, owner
	return "", false
}

// remove takes a filter out again.
func (t *filterTree) remove(filter string) {
	n := &t.root
	for level := range strings.SplitSeq(filter, "/") {
		if n == nil {
			return
		}
		switch level {
		case "#":
			n = n.hash
		case "+":
			n = n.plus
		default:
			n = n.literal[level]
		}
	}
	if n != nil {
		n.end = false
	}
}

// match is the filter that topic matches, and its owner.
func (t *filterTree) match(topic string) (filter string, owner int, ok bool) {
	n := t.root.match(topic, true)
	if n == nil {
		return "", 0, false
	}
	return n.filter, n.owner, true
}

// match looks for rest of a topic below n. A wildcard as the first level does not match a topic that begins with $.
func (n *filterNode) match(rest string, first bool) *filterNode {
	level, after, more := strings.Cut(rest, "/")
	wild := !first || !strings.HasPrefix(level, "$")
	step := func(next *filterNode) *filterNode {
		if next == nil {
			return nil
		}
		if more {
			return next.match(after, false)
		}
		return next.ends()
	}
	if found := step(n.literal[level]); found != nil {
		return found
	}
	if !wild {
		return nil
	}
	if found := step(n.plus); found != nil {
		return found
	}
	return n.hash.self()
}

// self is n if a filter ends there.
func (n *filterNode) self() *filterNode {
	if n != nil && n.end {
		return n
	}
	return nil
}

// ends is the filter that matches a topic which ends at n: n's own, or the # below it, which stands for no level too.
func (n *filterNode) ends() *filterNode {
	if n.end {
		return n
	}
	return n.hash.self()
}

// any is some filter at n or below it, of those that a wildcard as the first level can reach if first.
func (n *filterNode) any(first bool) *filterNode {
	if n.end {
		return n
	}
	if n.hash.self() != nil {
		return n.hash
	}
	if n.plus != nil {
		if found := n.plus.any(false); found != nil {
			return found
		}
	}
	for level, next := range n.literal {
		if first && strings.HasPrefix(level, "$") {
			continue
		}
		if found := next.any(false); found != nil {
			return found
		}
	}
	return nil
}

// overlaps is a filter below n that can match a topic which the rest of another filter matches too.
func (n *filterNode) overlaps(rest string, first bool) *filterNode {
	level, after, more := strings.Cut(rest, "/")
	if level == "#" {
		return n.any(first)
	}
	step := func(next *filterNode) *filterNode {
		switch {
		case next == nil:
			return nil
		case more:
			return next.overlaps(after, false)
		default:
			return next.ends()
		}
	}
	if level != "+" {
		if found := step(n.literal[level]); found != nil {
			return found
		}
		if first && strings.HasPrefix(level, "$") {
			return nil
		}
	} else {
		for name, next := range n.literal {
			if first && strings.HasPrefix(name, "$") {
				continue
			}
			if found := step(next); found != nil {
				return found
			}
		}
	}
	if found := step(n.plus); found != nil {
		return found
	}
	return n.hash.self()
}
