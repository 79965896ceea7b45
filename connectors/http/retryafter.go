package http

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// RetryAfter reads the header of that name, which says in seconds or as a date when to ask again (RFC 9110, section
// 10.2.3). A wait longer than most is most; a date that has passed is no wait. It answers false where there is no such
// header, or none that can be read.
//
// A date is taken by the clock of the server where that tells its time (Date), so that a clock that is wrong, on either
// side, does no harm.
func RetryAfter(headers http.Header, now time.Time, most time.Duration) (time.Duration, bool) {
	text := strings.TrimSpace(headers.Get("Retry-After"))
	if text == "" {
		return 0, false
	}
	if digits := strings.Trim(text, "0123456789"); digits == "" {
		seconds, err := strconv.ParseInt(text, 10, 64)
		if err != nil || seconds > int64(most/time.Second) {
			return most, true
		}
		return time.Duration(seconds) * time.Second, true
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0, false
	}
	if date, err := http.ParseTime(headers.Get("Date")); err == nil {
		now = date
	}
	return min(max(at.Sub(now), 0), most), true
}
