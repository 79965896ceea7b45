// Command flechtwerk validates and runs pipelines.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// sameSignal is how long after the first signal a further one counts as the same: timeout(1) and some supervisors signal a
// process and then its whole group.
const sameSignal = 200 * time.Millisecond

func main() {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		first := time.Now()
		cancel()
		for s := range signals {
			if time.Since(first) < sameSignal {
				continue
			}
			if number, ok := s.(syscall.Signal); ok {
				os.Exit(128 + int(number))
			}
			os.Exit(exitFailed)
		}
	}()
	p := &program{env: os.Environ(), stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}
	stop := profile()
	status := p.start(ctx, os.Args[1:])
	stop()
	os.Exit(status)
}
