package pipeline

import (
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // the image has no files of its own

	"github.com/robfig/cron/v3"

	"github.com/flechtwerk/flechtwerk/engine/wording"
)

// Schedule is when to do something, as cron has it, in a time zone.
//
// Where clocks are put forward or back:
//
//  1. A schedule for every hour goes by time that passes: no hour of it is left out or done twice.
//  2. Any other goes by the clock on the wall, once each: a time that the clock passes twice counts when it comes first, and
//     one that it leaps over counts as much later as it leaps.
type Schedule struct {
	text string
	zone *time.Location
	cron *cron.SpecSchedule
}

// everyHour is the bit of a field of cron.SpecSchedule that was written as *.
const everyHour = 1 << 63

// leap is more than any clock is put forward or back.
const leap = 3 * time.Hour

// ParseSchedule reads the five fields of cron (minute, hour, day of the month, month, day of the week), or @hourly, @daily,
// @weekly, @monthly or @yearly. zone is a name of the IANA database; empty is UTC.
func ParseSchedule(text, zone string) (*Schedule, error) {
	location, err := loadZone(zone)
	if err != nil {
		return nil, err
	}
	switch {
	case strings.HasPrefix(text, "TZ="), strings.HasPrefix(text, "CRON_TZ="):
		return nil, errors.New("its time zone stands beside it, as in `{ at: \"0 6 * * *\", zone: Europe/Berlin }`")
	case strings.HasPrefix(text, "@every"):
		return nil, errors.New("`@every` is written as `every:`")
	case !strings.HasPrefix(text, "@") && len(strings.Fields(text)) != 5:
		return nil, fmt.Errorf("it has %s, and a schedule has five: minute, hour, day of the month, month, day of the week", wording.Count(len(strings.Fields(text)), "field"))
	}
	parsed, err := cron.ParseStandard(text)
	if err != nil {
		return nil, errors.New("a field is *, a number in its range, a range such as 1-5, a list such as 1,15, or a step such as */10")
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return nil, errors.New("cron has none like it")
	}
	spec.Location = time.UTC
	s := &Schedule{text: text, zone: location, cron: spec}
	if s.Next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, errors.New("there is no such day")
	}
	return s, nil
}

func loadZone(name string) (*time.Location, error) {
	if name == "Local" {
		return nil, errors.New("the time zone Local is another one on every machine; name one such as Europe/Berlin")
	}
	location, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("there is no time zone %q; a name is one such as Europe/Berlin", name)
	}
	return location, nil
}

// Next is the first time after t, in UTC.
func (s *Schedule) Next(t time.Time) time.Time {
	if s.cron.Hour&everyHour != 0 {
		spec := *s.cron
		spec.Location = s.zone
		return spec.Next(t.UTC()).UTC()
	}
	for wall := face(t.In(s.zone)).Add(-leap); ; {
		if wall = s.cron.Next(wall); wall.IsZero() {
			return time.Time{}
		}
		if at := s.when(wall); at.After(t) {
			return at
		}
	}
}

// face is what a clock in t's zone shows, as if it were UTC.
func face(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}

// when is the moment in which the clock shows wall first, in UTC.
func (s *Schedule) when(wall time.Time) time.Time {
	t := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), 0, 0, s.zone)
	if shown := face(t); shown.Before(wall) { // leapt over
		return t.Add(wall.Sub(shown)).UTC()
	}
	for _, earlier := range []time.Duration{30 * time.Minute, time.Hour, 2 * time.Hour} {
		if before := t.Add(-earlier); face(before).Equal(wall) {
			return before.UTC()
		}
	}
	return t.UTC()
}

func (s *Schedule) String() string { return s.text + " " + s.zone.String() }
