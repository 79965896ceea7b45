package pipeline

import (
	"fmt"
	"math"
	"net/url"
	"regexp"
	"strconv"
	"time"
)

// Rate is how many requests may be sent within some time: 10/s, 100/m or 5000/h.
type Rate struct {
	leaf
	Value FetchRate
}

var rateText = regexp.MustCompile(`^([1-9][0-9]{0,8})/(s|m|h)$`)

func (r *Rate) decode(d *decoder, n *node, what string) bool {
	const want = "a number of requests per s, m or h, such as 10/s"
	if n.kind != scalar || n.tag != "" {
		d.wrongType(n, what, want)
		return false
	}
	e := d.expand(n)
	if e.missing {
		r.node = n
		return true
	}
	m := rateText.FindStringSubmatch(e.text)
	if m == nil {
		d.report(n, "field.value", fmt.Sprintf("%s is %s, and %s is none", what, want, n.text), "")
		return false
	}
	requests, _ := strconv.Atoi(m[1]) // the expression lets digits through, and few of them
	r.node, r.Value = n, FetchRate{requests, units[m[2]]}
	return true
}

// Size is a number of bytes: 65536, 64KiB, 16MiB or 1GiB.
type Size struct {
	leaf
	Value int64
}

var (
	sizeText = regexp.MustCompile(`^([1-9][0-9]*)(KiB|MiB|GiB)?$`)
	sizes    = map[string]int64{"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
)

func (s *Size) decode(d *decoder, n *node, what string) bool {
	const want = "a number of bytes such as 65536 or 16MiB"
	if n.kind != scalar || n.tag != "" {
		d.wrongType(n, what, want)
		return false
	}
	e := d.expand(n)
	if e.missing {
		s.node = n
		return true
	}
	if m := sizeText.FindStringSubmatch(e.text); m != nil {
		if v, err := strconv.ParseInt(m[1], 10, 64); err == nil && v <= math.MaxInt64/sizes[m[2]] {
			s.node, s.Value = n, v*sizes[m[2]]
			return true
		}
	}
	d.report(n, "field.value", fmt.Sprintf("%s is %s, and %s is none", what, want, n.text), "the units are KiB, MiB and GiB")
	return false
}

// Limit is a whole number from 0 on.
type Limit struct {
	leaf
	Value int
}

func (l *Limit) decode(d *decoder, n *node, what string) bool {
	const want = "a whole number from 0 on"
	e := d.expand(n)
	if n.kind != scalar || n.tag != "" || !e.env && n.style != bare || !e.env && resolve(n.text) != isInteger && resolve(n.text) != isFloat {
		d.wrongType(n, what, want)
		return false
	}
	if e.missing {
		l.node = n
		return true
	}
	v, err := strconv.Atoi(e.text)
	if err != nil || v < 0 || v > math.MaxInt32 {
		d.report(n, "field.value", fmt.Sprintf("%s is %s, and %s is none", what, want, n.text), tooLarge(e.text))
		return false
	}
	l.node, l.Value = n, v
	return true
}

// fetch is what the requests of the pipeline have in common.
func (d *draft) fetch() FetchDefaults {
	out := DefaultFetch
	spec := d.spec.Fetch
	if spec == nil {
		return out
	}
	out.UserAgent = spec.UserAgent.Value
	if base := &spec.BaseURL; base.given() && !base.missing {
		out.BaseURL = base.Value
		if u, err := url.Parse(base.Value); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			d.report(base.node, "field.value", "fetch.base_url is the beginning of a URL, with its scheme and host, and "+base.node.text+" is none", "as in https://api.example.com/v1")
		}
	}
	out.Rate = spec.Rate.Value
	if spec.Timeout.given() {
		out.Timeout = spec.Timeout.Value
	}
	if spec.MaxBytes.given() && spec.MaxBytes.Value > 0 {
		out.MaxBytes = spec.MaxBytes.Value
	}
	if spec.MaxRedirects.given() {
		out.MaxRedirects = spec.MaxRedirects.Value
	}
	if b := spec.Breaker; b != nil && b.Failures.given() {
		out.Breaker = FetchBreaker{b.Failures.Value, 30 * time.Second}
		if b.Pause.given() {
			out.Breaker.Pause = b.Pause.Value
		}
	}
	return out
}
