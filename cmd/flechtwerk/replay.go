package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/flechtwerk/flechtwerk/connectors/connectortest/replay"
	connector "github.com/flechtwerk/flechtwerk/connectors/http"
	"github.com/flechtwerk/flechtwerk/engine"
)

func (p *program) replayCommand() *cobra.Command {
	var listen string
	cmd := &cobra.Command{
		Use:   "replay DIR",
		Short: "Serve a folder as a web server that can be told to misbehave",
		Long: `Replay serves the files of a folder with ETag, Last-Modified, Date and ranges, so that a pipeline can be tried against
recorded answers. A file ` + replay.RulesFile + ` in the folder says what is to be otherwise, rule by rule, and how often:

  {"rules": [
    {"path": "/feed.json", "status": 503, "times": 3},
    {"path": "/items", "query": {"page": "2"}, "file": "items-2.json"},
    {"path": "/items", "status": 429, "retry_after": "2s", "times": 1},
    {"path": "/app.log", "grow": {"from": 100, "by": 50}},
    {"path": "/big.csv", "fault": "truncate", "times": 1}
  ]}

The address is printed on standard output, each request on standard error. It is for tests and demonstrations.`,
		Args: exactly(1, "a folder"),
		RunE: func(cmd *cobra.Command, args []string) error { return p.replay(cmd.Context(), args[0], listen) },
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "`host:port` to listen on; port 0 is any free one")
	return cmd
}

// replay serves until ctx is done.
func (p *program) replay(ctx context.Context, dir, listen string) error {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return usageError("%s is no folder", dir)
	}
	settings, err := p.settings()
	if err != nil {
		return err
	}
	handler, err := replay.New(replay.Config{Files: os.DirFS(dir)})
	if err != nil {
		return fmt.Errorf("%w: %w", engine.ErrPipeline, err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return fmt.Errorf("listen on %s (--listen): %w: %w", listen, err, engine.ErrSurroundings)
	}
	log := newLogger(p.stderr, settings.LogFormat, settings.LogLevel, p.colour(p.stderr))
	server := &http.Server{Handler: logged(handler, log), ReadHeaderTimeout: 10 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	address := "http://" + listener.Addr().String()
	if p.flags.json {
		err = json.NewEncoder(p.stdout).Encode(map[string]string{"address": address})
	} else {
		_, err = fmt.Fprintf(p.stdout, "%s serves %s\n", address, dir)
	}
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	unhook := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer unhook()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", dir, err)
	}
	return nil
}

// logged writes a line for each request that was answered, or was not.
func logged(handler http.Handler, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := &answered{ResponseWriter: w}
		began := time.Now()
		defer func() {
			attrs := []any{"method", r.Method, "url", connector.MaskURL(r.URL.RequestURI()), "status", answer.status, "bytes", answer.bytes, "took", time.Since(began)}
			for _, name := range []string{"Range", "If-None-Match", "If-Modified-Since"} {
				if value := r.Header.Get(name); value != "" {
					attrs = append(attrs, name, value)
				}
			}
			log.Info("request", attrs...)
		}()
		handler.ServeHTTP(answer, r)
	})
}

// answered notes the status of an answer; it stays 0 where none was sent.
type answered struct {
	http.ResponseWriter
	status int
	bytes  int
}

func (a *answered) WriteHeader(status int) {
	a.status = status
	a.ResponseWriter.WriteHeader(status)
}

func (a *answered) Write(b []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	n, err := a.ResponseWriter.Write(b)
	a.bytes += n
	return n, err
}

// Unwrap lets http.ResponseController take over the connection.
func (a *answered) Unwrap() http.ResponseWriter { return a.ResponseWriter }
