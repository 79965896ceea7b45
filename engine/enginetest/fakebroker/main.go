// Command fakebroker is a fake Kafka in a process of its own, so that it is neither in the process that a test kills nor in
// the one that a benchmark measures. It prints its bootstrap address, runs until its standard input ends, and keeps nothing.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	port := flag.Int("port", 0, "port on 127.0.0.1; 0 takes any free one")
	settings := map[string]string{}
	flag.Func("set", "a broker setting, name=value; may be given more than once", func(text string) error {
		name, value, ok := strings.Cut(text, "=")
		if !ok {
			return fmt.Errorf("%q is not name=value", text)
		}
		settings[name] = value
		return nil
	})
	flag.Parse()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(*port), kfake.GroupMinSessionTimeout(100*time.Millisecond),
		kfake.BrokerConfigs(settings))
	if err != nil {
		fmt.Fprintln(os.Stderr, "start a fake Kafka:", err)
		os.Exit(1)
	}
	fmt.Println(cluster.ListenAddrs()[0])
	_, _ = io.Copy(io.Discard, os.Stdin)
	cluster.Close()
}
