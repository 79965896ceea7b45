package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// newLogger writes lines of one event each: logfmt, JSON, or, on a terminal, logfmt with colours and a short time.
func newLogger(w io.Writer, format string, level slog.Leveler, colour bool) *slog.Logger {
	o := &slog.HandlerOptions{Level: level, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) > 0 {
			return a
		}
		switch a.Key {
		case slog.TimeKey:
			a.Value = slog.StringValue(a.Value.Time().UTC().Format("2006-01-02T15:04:05.000Z"))
		case slog.LevelKey:
			a.Value = slog.StringValue(strings.ToLower(a.Value.String()))
		default:
			if d, ok := a.Value.Any().(time.Duration); ok {
				a.Value = slog.StringValue(d.Round(time.Microsecond).String())
			}
		}
		return a
	}}
	switch {
	case format == "json":
		return slog.New(slog.NewJSONHandler(w, o))
	case colour:
		return slog.New(&terminalHandler{w: w, level: level, mu: &sync.Mutex{}})
	default:
		return slog.New(slog.NewTextHandler(w, o))
	}
}

// isTerminal tells whether w shows its lines to a person.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// terminalHandler writes for eyes: short time, coloured level, message, faint keys.
type terminalHandler struct {
	w     io.Writer
	level slog.Leveler
	attrs []slog.Attr
	group string
	mu    *sync.Mutex // w
}

const (
	faint  = "\x1b[2m"
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	blue   = "\x1b[34m"
	plainT = "\x1b[0m"
)

func (h *terminalHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level.Level() }

func (h *terminalHandler) Handle(_ context.Context, r slog.Record) error {
	colour, name := blue, "debug"
	switch {
	case r.Level >= slog.LevelError:
		colour, name = red, "error"
	case r.Level >= slog.LevelWarn:
		colour, name = yellow, "warn "
	case r.Level >= slog.LevelInfo:
		colour, name = green, "info "
	}
	var b strings.Builder
	b.WriteString(faint + r.Time.Format("15:04:05.000") + plainT + " " + colour + name + plainT + " " + r.Message)
	for _, a := range h.attrs {
		h.attr(&b, "", a)
	}
	r.Attrs(func(a slog.Attr) bool {
		h.attr(&b, h.group, a)
		return true
	})
	b.WriteByte('\n')
	h.mu.Lock()
	defer h.mu.Unlock()
	_, err := io.WriteString(h.w, b.String())
	return err
}

func (h *terminalHandler) attr(b *strings.Builder, prefix string, a slog.Attr) {
	v := a.Value.Resolve()
	if v.Kind() == slog.KindGroup {
		for _, inner := range v.Group() {
			h.attr(b, prefix+a.Key+".", inner)
		}
		return
	}
	text := v.String()
	if v.Kind() == slog.KindDuration {
		text = v.Duration().Round(time.Microsecond).String()
	}
	if text == "" || strings.ContainsAny(text, " \"=\n\t") {
		text = strconv.Quote(text)
	}
	b.WriteString(" " + faint + prefix + a.Key + "=" + plainT + text)
}

func (h *terminalHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *h
	c.attrs = append([]slog.Attr(nil), h.attrs...)
	for _, a := range attrs {
		a.Key = h.group + a.Key
		c.attrs = append(c.attrs, a)
	}
	return &c
}

func (h *terminalHandler) WithGroup(name string) slog.Handler {
	c := *h
	c.group = h.group + name + "."
	return &c
}
