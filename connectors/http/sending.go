package http

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// send signs a request, sends it, waits where the server says so, and refuses what is not expected. The body of its answer
// is the caller's to close.
func (w *walk) send(ctx context.Context, request Request) (*Response, error) {
	w.shown = w.secrets.hide(MaskURL(request.URL))
	token, err := w.token(ctx, "")
	if err != nil {
		return nil, err
	}
	for waits, renewed := 0, false; ; {
		signed := request
		if w.isHome(request.URL) {
			w.credentials.sign(&signed, token)
		}
		response, err := w.config.Client.Do(ctx, &signed)
		if err != nil {
			return nil, err
		}
		status := response.Status
		if w.expects(status) {
			return response, nil
		}
		_ = response.Body.Close()
		if status == http.StatusUnauthorized && token != "" && !renewed {
			renewed = true
			if token, err = w.token(ctx, token); err != nil {
				return nil, err
			}
			continue
		}
		failed := &PollError{URL: w.config.method() + " " + w.shown, Status: status, code: CodeStatus, text: w.config.statusText(status)}
		if (status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable) && !w.config.RetryAfter.Off && waits < w.config.RetryAfter.Times {
			if wait, ok := RetryAfter(response.Headers, time.Now(), w.config.RetryAfter.Most); ok {
				waits++
				if err := w.pause(ctx, wait, failed); err != nil {
					return nil, err
				}
				if token, err = w.token(ctx, ""); err != nil {
					return nil, err
				}
				continue
			}
		}
		return nil, failed
	}
}

// isHome tells whether the request's secrets are meant for where a URL leads.
func (w *walk) isHome(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (!u.IsAbs() || hostName(u) == w.home)
}

// expects tells whether a status is an answer.
func (w *walk) expects(status int) bool {
	switch {
	case status == http.StatusNotModified:
		return true
	case w.config.Tail != nil && (status == http.StatusPartialContent || status == http.StatusRequestedRangeNotSatisfiable):
		return true
	case len(w.config.Expect) == 0:
		return isSuccess(status)
	}
	for _, r := range w.config.Expect {
		if r.From <= status && status <= r.To {
			return true
		}
	}
	return false
}

func isSuccess(status int) bool { return status >= 200 && status <= 299 }

// statusText is a status that is not expected, with what may be done about it.
func (c *PollerConfig) statusText(status int) string {
	expected := "200 to 299"
	if len(c.Expect) > 0 {
		var ranges []string
		for _, r := range c.Expect {
			if r.From == r.To {
				ranges = append(ranges, strconv.Itoa(r.From))
			} else {
				ranges = append(ranges, fmt.Sprintf("%d to %d", r.From, r.To))
			}
		}
		expected = strings.Join(ranges, ", ")
	}
	text := fmt.Sprintf("status %d, expected %s", status, expected)
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		text += "; look at auth, and at what it may read"
	case http.StatusNotFound, http.StatusGone:
		text += "; look at the url, or let `expect` make it an answer without records"
	case http.StatusTooManyRequests:
		text += "; a rate in the pipeline's `fetch:` asks less often"
	}
	return text
}
