package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/flechtwerk/flechtwerk/connectors/http"
	"github.com/flechtwerk/flechtwerk/engine/expr"
	"github.com/flechtwerk/flechtwerk/engine/pipeline"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// poller is the source of an extractor with a request.
func (b *bodies) poller(p *pipeline.Pipeline, x *pipeline.Extractor, w wiring) (stream.Source, error) {
	h := x.HTTP
	client, err := b.clients.ofStage(p, h)
	if err != nil {
		return nil, fmt.Errorf("extractors.%s.http: %w", x.Name, err)
	}
	config := http.PollerConfig{
		Client: client, Tokens: b.clients.tokens,
		Request: http.RequestConfig{
			Method: h.Method, URL: h.URL, Query: httpParams(h.Query), Headers: httpParams(h.Headers), Body: httpBody(h.Body),
			Timeout: h.Timeout, MaxBytes: h.MaxBytes, MaxDecompressed: h.MaxBytes, Redirect: redirects[h.Redirect],
		},
		Auth: httpAuth(h.Auth), Paginate: httpPages(h.Paginate), Conditional: http.ConditionalDefault, Decode: h.Decode,
		Records: x.Records, Message: x.Message,
		RetryAfter: http.RetryAfterConfig{Most: h.RetryAfter.Most, Times: h.RetryAfter.Times, Off: h.RetryAfter.Off},
		Initial:    x.Initial, Vars: p.Vars, Now: w.now, Batch: http.BatchLimits{Records: w.batchRecords, Bytes: w.batchBytes}, Secrets: h.Secrets,
		Place: func(f *expr.Failure) string {
			at, ok := x.At(f)
			if !ok {
				return ""
			}
			return fmt.Sprintf("%s:%d:%d", at.File, at.Line, at.Column)
		},
		Events: pollerEvents(p.Name+"/"+x.Name, w),
	}
	if p.Fetch.MaxRedirects == 0 && h.Redirect == "follow" {
		config.Request.Redirect = http.Refuse
	}
	if h.Conditional != nil {
		config.Conditional = map[bool]http.Conditional{true: http.ConditionalOn, false: http.ConditionalOff}[*h.Conditional]
	}
	if t := h.Tail; t != nil {
		config.Tail = &http.Tail{Separator: []byte(t.Separator), MaxBytes: t.MaxBytes}
		if t.FromEnd {
			config.Tail.From = http.FromEnd
		}
		if t.Restart {
			config.Tail.Truncated = http.TruncatedRestart
		}
	}
	for _, r := range h.Expect {
		config.Expect = append(config.Expect, http.StatusRange(r))
	}
	if r := h.Retry; r != nil {
		config.Retry = &http.Retry{Times: r.Times, Min: r.Pause.Min, Max: r.Pause.Max, AnyMethod: r.AnyMethod}
	}
	for _, c := range x.Cursor {
		config.Cursor = append(config.Cursor, http.CursorField(c))
	}
	for _, t := range x.OutputTopics {
		config.Outputs = append(config.Outputs, &t.Topic)
	}
	if x.Relay.Present() {
		program := b.programs[&x.Relay]
		if program == nil {
			return nil, errors.New("the stage has no relay")
		}
		env, err := b.env(p, x.Name, x.OutputTopics, x.Initial, x.Timeout, w.now, w.log, w.metrics)
		if err != nil {
			return nil, err
		}
		config.NewRelay = func() (stream.Relay, error) { return program.NewRelay(env) }
		config.KeepBody = program.NamesResponse() && h.Tail == nil
	}
	source, err := http.NewPoller(config)
	if err != nil {
		return nil, fmt.Errorf("extractors.%s: %w", x.Name, err)
	}
	return source, nil
}

var redirects = map[string]http.Redirect{"follow": http.Follow, "manual": http.Manual, "error": http.Refuse}

func httpParams(list []pipeline.HTTPParam) []http.Param {
	var params []http.Param
	for _, p := range list {
		params = append(params, http.Param(p))
	}
	return params
}

func httpBody(b *pipeline.HTTPBody) http.BodyConfig {
	if b == nil {
		return http.BodyConfig{}
	}
	return http.BodyConfig{JSON: httpTree(b.JSON), Form: httpParams(b.Form), Text: b.Text}
}

func httpTree(t *pipeline.HTTPTree) *http.BodyTree {
	if t == nil {
		return nil
	}
	out := &http.BodyTree{Value: t.Value, Literal: t.Literal, Names: t.Names, List: t.List}
	for _, item := range t.Items {
		out.Items = append(out.Items, httpTree(item))
	}
	return out
}

func httpAuth(a *pipeline.HTTPAuth) *http.Auth {
	if a == nil {
		return nil
	}
	out := &http.Auth{Bearer: a.Bearer}
	if b := a.Basic; b != nil {
		out.Basic = &http.Basic{User: b.User, Password: b.Password}
	}
	if k := a.APIKey; k != nil {
		out.APIKey = &http.APIKey{In: http.InQuery, Name: k.Name, Value: k.Value}
		if k.InHeader {
			out.APIKey.In = http.InHeader
		}
	}
	if o := a.OAuth2; o != nil {
		out.OAuth2 = &http.OAuth2{TokenURL: o.TokenURL, ClientID: o.ClientID, ClientSecret: o.ClientSecret, RefreshToken: o.RefreshToken,
			Scopes: o.Scopes, Params: httpParams(o.Params), InBody: o.InBody}
	}
	return out
}

var places = map[string]http.Place{"query": http.InQuery, "header": http.InHeader, "body": http.InBody}

func httpPages(p *pipeline.HTTPPages) *http.Paginate {
	if p == nil {
		return nil
	}
	out := &http.Paginate{
		Style: http.OnePage, Next: p.Next, Rel: p.Link, Param: http.PageParam{In: places[p.ParamIn], Name: p.ParamName}, Start: int64(p.Start),
		Until: p.Until, StopWhen: p.StopWhen, MaxPages: p.MaxPages, OtherHosts: p.OtherHosts,
	}
	switch {
	case p.Next != nil:
		out.Style = http.NextURL
	case p.Link != "":
		out.Style = http.NextLink
	case p.Cursor != nil:
		out.Style, out.Next = http.NextCursor, p.Cursor
	case p.HasPage:
		out.Style = http.PageNumber
	case p.HasOffset:
		out.Style = http.Offset
	}
	return out
}

// pollerEvents are the lines of the log about requests that go on. A warning that each poll repeats is summed up.
func pollerEvents(stage string, w wiring) http.PollerEvents {
	return http.PollerEvents{
		Warned: func(i http.PollWarning) {
			w.lines.repeated(slog.LevelWarn, i.Code+" "+stage+" "+i.Config, i.Text, []any{"stage", stage, "code", i.Code, "config", i.Config, "url", i.URL})
		},
		Waiting: func(i http.PollWait) {
			level := slog.LevelInfo
			if i.For < time.Second {
				level = slog.LevelDebug
			}
			w.log.Log(context.Background(), level, "the request waits before it is sent again", "stage", stage, "config", i.Config, "url", i.URL, "why", i.Why, "for", i.For)
		},
	}
}
