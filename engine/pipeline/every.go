package pipeline

import (
	"fmt"
	"reflect"
	"regexp"
	"time"
)

// Every is a duration, or an expression that gives one.
type Every struct {
	leaf
	Duration time.Duration // 0 for an expression
	x        Expression
}

// expressionText tells an expression from what was meant as a duration: it names something, or has brackets or quotes.
var (
	expressionText = regexp.MustCompile("\\b(?:config|state|vars|now)\\b|[?(\\[\"'`]")
	holes          = regexp.MustCompile(`\$\{[^}]*\}`)
)

func (x *Every) decode(d *decoder, n *node, what string) bool {
	if n.tag != "" || n.kind != scalar || n.style == block || n.style == folded || expressionText.MatchString(holes.ReplaceAllString(n.text, "")) {
		if n.kind == list || n.kind == mapping || n.kind == empty {
			d.wrongType(n, what, "a duration such as 30s")
			return false
		}
		if !x.x.decode(d, n, what) {
			return false
		}
		x.node = n
		return true
	}
	var t Duration
	if !t.decode(d, n, what) {
		return false
	}
	x.node, x.Duration = n, t.Value
	return true
}

// Cron is a schedule: five fields, or these under `at` with a `zone`.
type Cron struct {
	leaf
	Schedule *Schedule
	// missing says that part of it comes from the environment and could not be had.
	missing bool
}

// cronSpec is the long form of Cron.
type cronSpec struct {
	At   Text `json:"at" need:"it is the schedule"`
	Zone Text `json:"zone"`
}

func (c *Cron) decode(d *decoder, n *node, what string) bool {
	var spec cronSpec
	if n.kind == mapping {
		if !d.structure(n, reflect.ValueOf(&spec).Elem(), what) || !spec.At.given() {
			return false
		}
	} else {
		if n.kind != scalar || n.tag != "" {
			d.wrongType(n, what, `a schedule such as "0 6 * * *"`)
			return false
		}
		if !spec.At.decode(d, n, what) {
			return false
		}
	}
	if spec.At.missing || spec.Zone.missing {
		c.node, c.missing = n, true
		return true
	}
	if _, err := loadZone(spec.Zone.Value); err != nil && spec.Zone.given() {
		message := fmt.Sprintf("%s.zone is the name of a time zone, and %s is none", what, spec.Zone.node.text)
		d.report(spec.Zone.node, "cron.zone", message, "write one such as Europe/Berlin or UTC")
		return false
	}
	schedule, err := ParseSchedule(spec.At.Value, spec.Zone.Value)
	if err != nil {
		d.report(spec.At.node, "cron.invalid", fmt.Sprintf("%s is no schedule: %v", what, err), `as in "*/10 6-18 * * 1-5": every ten minutes, from 6 to 18 h, on weekdays`)
		return false
	}
	c.node, c.Schedule = n, schedule
	return true
}
