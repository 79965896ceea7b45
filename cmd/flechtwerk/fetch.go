package main

import (
	"context"
	"errors"
	"sync"

	"github.com/flechtwerk/flechtwerk/connectors/http"
	"github.com/flechtwerk/flechtwerk/engine/pipeline"
	"github.com/flechtwerk/flechtwerk/script"
)

// clients are the HTTP clients of pipelines. Rates, breakers and connections of a host are shared by all of them.
type clients struct {
	hosts  *http.Hosts
	tokens *http.Tokens

	events http.Events // set before the first client is made

	mu   sync.Mutex
	made map[*pipeline.Pipeline]*http.Client
	more []*http.Client // those of single stages
}

func newClients() *clients {
	return &clients{hosts: http.NewHosts(), tokens: http.NewTokens(), made: map[*pipeline.Pipeline]*http.Client{}}
}

// of is the client of a pipeline, with what its fetch: says.
func (c *clients) of(p *pipeline.Pipeline) (*http.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if client := c.made[p]; client != nil {
		return client, nil
	}
	client, err := http.New(c.config(p))
	if err != nil {
		return nil, err
	}
	c.made[p] = client
	return client, nil
}

// ofStage is the client of a stage's request: that of its pipeline, unless the stage speaks of connections itself.
func (c *clients) ofStage(p *pipeline.Pipeline, h *pipeline.HTTP) (*http.Client, error) {
	if h.TLS == nil && h.Proxy == "" {
		return c.of(p)
	}
	config := c.config(p)
	config.Proxy = h.Proxy
	if t := h.TLS; t != nil {
		of := http.TLSConfig{CA: t.CA, Cert: t.Cert, Key: t.Key, ServerName: t.ServerName, InsecureSkipVerify: t.Insecure}
		var err error
		if config.TLS, err = of.Build(); err != nil {
			return nil, err
		}
	}
	client, err := http.New(config)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.more = append(c.more, client)
	return client, nil
}

// Close ends the connections that nobody uses.
func (c *clients) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, client := range c.made {
		client.Close()
	}
	for _, client := range c.more {
		client.Close()
	}
}

func (c *clients) config(p *pipeline.Pipeline) http.Config {
	d := p.Fetch
	return http.Config{
		Hosts: c.hosts, Events: c.events, UserAgent: d.UserAgent, BaseURL: d.BaseURL, Timeout: d.Timeout,
		Rate:     http.Rate{Requests: d.Rate.Requests, Per: d.Rate.Per},
		Breaker:  http.Breaker{Failures: d.Breaker.Failures, Pause: d.Breaker.Pause},
		MaxBytes: d.MaxBytes, MaxDecompressed: d.MaxBytes, MaxRedirects: d.MaxRedirects,
	}
}

// fetcher is the fetch of scripts that goes out through client. Without redirects (max_redirects: 0) one is an error.
func fetcher(client *http.Client, follow bool) func(context.Context, *script.FetchRequest) (*script.FetchResponse, error) {
	return func(ctx context.Context, r *script.FetchRequest) (*script.FetchResponse, error) {
		request := &http.Request{Method: r.Method, URL: r.URL, Body: r.Body, Timeout: r.Timeout, Query: pairs(r.Query), Headers: pairs(r.Headers)}
		switch {
		case r.Redirect == "manual":
			request.Redirect = http.Manual
		case r.Redirect == "error" || !follow:
			request.Redirect = http.Refuse
		}
		answer, err := client.Do(ctx, request)
		if err != nil {
			return nil, fetchError(err)
		}
		return &script.FetchResponse{
			Status: answer.Status, Headers: answer.Headers, URL: answer.URL, Shown: http.MaskURL(answer.URL), Elapsed: answer.Elapsed,
			Body: &fetchBody{answer},
		}, nil
	}
}

func pairs(list []script.Pair) []http.Pair {
	pairs := make([]http.Pair, len(list))
	for i, p := range list {
		pairs[i] = http.Pair(p)
	}
	return pairs
}

// fetchBody is a body with the errors of scripts.
type fetchBody struct{ answer *http.Response }

func (b *fetchBody) Read(p []byte) (int, error) {
	n, err := b.answer.Body.Read(p)
	return n, fetchError(err)
}

func (b *fetchBody) Close() error { return b.answer.Body.Close() }

// fetchError is an error of a client as scripts have it. That a name has no address is one way not to get a connection.
func fetchError(err error) error {
	var e *http.Error
	if !errors.As(err, &e) {
		return err
	}
	code := e.Code
	if code == http.CodeDNS {
		code = http.CodeConnect
	}
	return &script.FetchError{Code: code, Message: e.Error(), Err: err}
}
