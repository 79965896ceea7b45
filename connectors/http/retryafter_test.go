package http

import (
	"net/http"
	"testing"
	"time"
)

func TestH2RetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	for _, test := range []struct {
		text, date string
		want       time.Duration
		known      bool
	}{
		{"", "", 0, false},
		{"120", "", 2 * time.Minute, true},
		{" 7 ", "", 7 * time.Second, true},
		{"0", "", 0, true},
		{"86400", "", time.Hour, true},
		{"99999999999999999999", "", time.Hour, true},
		{"-1", "", 0, false},
		{"1.5", "", 0, false},
		{"soon", "", 0, false},
		{at(90 * time.Second), "", 90 * time.Second, true},
		{at(-time.Minute), "", 0, true},
		{at(24 * time.Hour), "", time.Hour, true},
		{"Friday, 02-Jan-26 03:05:05 GMT", "", time.Minute, true},
		{at(10*time.Minute + 30*time.Second), at(10 * time.Minute), 30 * time.Second, true},
		{at(-10 * time.Minute), at(-11 * time.Minute), time.Minute, true},
		{at(time.Minute), "nonsense", time.Minute, true},
		{"5", at(10 * time.Minute), 5 * time.Second, true},
	} {
		headers := http.Header{}
		for name, value := range map[string]string{"Retry-After": test.text, "Date": test.date} {
			if value != "" {
				headers.Set(name, value)
			}
		}
		got, known := RetryAfter(headers, now, time.Hour)
		if got != test.want || known != test.known {
			t.Errorf("%q at %q: %s %v, want %s %v", test.text, test.date, got, known, test.want, test.known)
		}
	}
}
