// Command flechtwerk validates and runs pipelines.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		if s, ok := (<-signals).(syscall.Signal); ok {
			os.Exit(128 + int(s))
		}
		os.Exit(exitFailed)
	}()
	p := &program{env: os.Environ(), stdout: os.Stdout, stderr: os.Stderr}
	os.Exit(p.start(ctx, os.Args[1:]))
}
