//go:build faults

package engine

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// killPoints counts down how often each point may still be passed. FLECHTWERK_KILL is a list like
// `after-fence:1,end-sent:3`: the process ends itself by SIGKILL when it passes that point for the n-th time.
var killPoints = struct {
	sync.Mutex
	left map[string]int
}{left: parseKillPoints(os.Getenv("FLECHTWERK_KILL"))}

func parseKillPoints(text string) map[string]int {
	points := map[string]int{}
	for item := range strings.SplitSeq(text, ",") {
		if item == "" {
			continue
		}
		name, count, _ := strings.Cut(item, ":")
		n, err := strconv.Atoi(count)
		if err != nil || n < 1 {
			panic(fmt.Sprintf("FLECHTWERK_KILL: %q is not point:count", item))
		}
		points[name] = n
	}
	return points
}

// at passes a kill point. The line on standard error is what a test looks for to know that the fault fired.
func at(point string) {
	killPoints.Lock()
	defer killPoints.Unlock()
	n, ok := killPoints.left[point]
	if !ok {
		return
	}
	if n--; n > 0 {
		killPoints.left[point] = n
		return
	}
	fmt.Fprintf(os.Stderr, "flechtwerk: kill point %s\n", point)
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// killOnEndSent passes the point end-sent when an EndTxn request has been written to the broker and not been answered.
func killOnEndSent() []kgo.Opt { return []kgo.Opt{kgo.WithHooks(endSent{})} }

type endSent struct{}

func (endSent) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if key == int16(kmsg.EndTxn) && err == nil {
		at("end-sent")
	}
}
