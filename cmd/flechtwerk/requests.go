package main

import (
	"log/slog"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/flechtwerk/flechtwerk/connectors/http"
)

// maxHosts is how many hosts have series of their own. Hosts come from scripts, perhaps from their data, and each is a series
// that the process and Prometheus keep.
const maxHosts = 100

// otherHosts is what all further ones are counted as.
const otherHosts = "other"

// requests counts what goes out over HTTP, whoever asks: fetch of scripts and extractors.
type requests struct {
	total, waited *prometheus.CounterVec
	seconds       *prometheus.HistogramVec
	open          *prometheus.GaugeVec

	mu    sync.Mutex
	hosts map[string]bool // those with series; under mu
}

func newRequests(registry *prometheus.Registry) *requests {
	r := &requests{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "flechtwerk_http_requests_total",
			Help: "HTTP requests, each redirect counted, by host and by status, or by what failed.",
		}, []string{"host", "code"}),
		waited: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "flechtwerk_http_wait_seconds_total",
			Help: "Time that requests waited for a connection or for their place under the rate limit.",
		}, []string{"host"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "flechtwerk_http_request_seconds",
			Help:    "Time of requests that went out, up to the end of the answer's body.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2, 14),
		}, []string{"host"}),
		open: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "flechtwerk_http_breaker_open",
			Help: "1 while a host is left alone after too many failures, 0 once it is asked again.",
		}, []string{"host"}),
		hosts: map[string]bool{},
	}
	registry.MustRegister(r.total, r.waited, r.seconds, r.open)
	return r
}

// label is what a host is counted as.
func (r *requests) label(host string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.hosts[host] {
		if len(r.hosts) >= maxHosts {
			return otherHosts
		}
		r.hosts[host] = true
	}
	return host
}

func (r *requests) done(i http.RequestInfo) {
	host, code := r.label(i.Host), i.Code
	if code == "" {
		code = strconv.Itoa(i.Status)
	}
	r.total.WithLabelValues(host, code).Inc()
	r.waited.WithLabelValues(host).Add(i.Waited.Seconds())
	if i.Took > 0 {
		r.seconds.WithLabelValues(host).Observe(i.Took.Seconds())
	}
}

// Requests is what HTTP clients call: metrics count, and the log tells of hosts that are left alone.
func (m *Metrics) Requests(l *eventLog) http.Events {
	r := m.requests
	return http.Events{
		RequestDone: r.done,
		BreakerOpened: func(i http.BreakerInfo) {
			r.open.WithLabelValues(r.label(i.Host)).Set(1)
			l.repeated(slog.LevelWarn, "breaker "+i.Host, "a host fails and is left alone for a while", []any{"code", "fetch.breaker", "host", i.Host, "failures", i.Failures, "last", i.Last})
		},
		BreakerClosed: func(i http.BreakerInfo) {
			r.open.WithLabelValues(r.label(i.Host)).Set(0)
			l.log.Info("a host answers again", "host", i.Host)
		},
	}
}
