package pipeline

import (
	"testing"
	"time"
)

func TestScheduleFollowsTheClock(t *testing.T) {
	for _, c := range []struct{ name, text, zone, from, want string }{
		{"utc", "0 6 * * *", "", "2026-01-01T06:00:00Z", "2026-01-02T06:00:00Z"},
		{"just before", "0 6 * * *", "UTC", "2026-01-01T05:59:59.999Z", "2026-01-01T06:00:00Z"},
		{"winter", "0 6 * * *", "Europe/Berlin", "2026-01-01T00:00:00Z", "2026-01-01T05:00:00Z"},
		{"summer", "0 6 * * *", "Europe/Berlin", "2026-07-01T00:00:00Z", "2026-07-01T04:00:00Z"},
		{"weekdays", "30 8 * * 1-5", "", "2026-01-02T08:30:00Z", "2026-01-05T08:30:00Z"},
		{"leap day", "0 0 29 2 *", "", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z"},
		{"daily", "@daily", "Asia/Kolkata", "2026-01-01T00:00:00Z", "2026-01-01T18:30:00Z"},

		// 2026-03-29 in Berlin: after 01:59:59 comes 03:00:00.
		{"leapt over", "30 2 * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", "2026-03-29T01:30:00Z"},
		{"leapt over, asked for late", "30 2 * * *", "Europe/Berlin", "2026-03-29T01:10:00Z", "2026-03-29T01:30:00Z"},
		{"the day after", "30 2 * * *", "Europe/Berlin", "2026-03-29T01:30:00Z", "2026-03-30T00:30:00Z"},
		{"hours go on", "0 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", "2026-03-29T01:00:00Z"},

		// 2026-10-25 in Berlin: after 02:59:59 comes 02:00:00.
		{"the first of two", "30 2 * * *", "Europe/Berlin", "2026-10-25T00:00:00Z", "2026-10-25T00:30:00Z"},
		{"not the second", "30 2 * * *", "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"},
		{"every hour twice", "30 * * * *", "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"},
		{"half an hour back", "45 1 * * *", "Australia/Lord_Howe", "2026-04-04T14:00:00Z", "2026-04-04T14:45:00Z"},
	} {
		s, err := ParseSchedule(c.text, c.zone)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		from, _ := time.Parse(time.RFC3339Nano, c.from)
		if got := s.Next(from).Format(time.RFC3339Nano); got != c.want {
			t.Errorf("%s: after %s comes %s, want %s", c.name, c.from, got, c.want)
		}
	}
}

// TestScheduleRunsOnceADay walks through years with all leaps of a few zones.
func TestScheduleRunsOnceADay(t *testing.T) {
	for _, zone := range []string{"UTC", "Europe/Berlin", "America/Sao_Paulo", "Australia/Lord_Howe", "America/St_Johns", "Pacific/Apia"} {
		for _, text := range []string{"0 0 * * *", "30 2 * * *", "15 1 * * *"} {
			s, err := ParseSchedule(text, zone)
			if err != nil {
				t.Fatal(err)
			}
			at := time.Date(2010, 1, 1, 0, 0, 0, 0, time.UTC)
			end := at.AddDate(3, 0, 0)
			n := 0
			for {
				next := s.Next(at)
				if !next.After(at) {
					t.Fatalf("%s in %s: after %s comes %s", text, zone, at, next)
				}
				if !next.Before(end) {
					break
				}
				if n++; next.Sub(at) > 50*time.Hour {
					t.Errorf("%s in %s: nothing from %s to %s", text, zone, at, next)
				}
				at = next
			}
			if days := int(end.Sub(time.Date(2010, 1, 1, 0, 0, 0, 0, time.UTC)).Hours() / 24); n < days-2 || n > days+1 {
				t.Errorf("%s in %s runs %d times in %d days", text, zone, n, days)
			}
		}
	}
}

func TestSchedulesThatAreNone(t *testing.T) {
	for _, c := range [][2]string{
		{"", ""}, {"* * * *", ""}, {"* * * * * *", ""}, {"60 * * * *", ""}, {"0 0 30 2 *", ""}, {"@every 5m", ""}, {"@never", ""}, {"TZ=UTC * * * * *", ""},
		{"TZ=UTC", ""}, {"CRON_TZ=", ""}, {"* * * * *", "Local"}, {"* * * * *", "Nowhere"}, {"* * * * *", "../etc/passwd"}, {"a b c d e", ""},
	} {
		if s, err := ParseSchedule(c[0], c[1]); err == nil {
			t.Errorf("%q in %q is taken: %s", c[0], c[1], s)
		}
	}
}
