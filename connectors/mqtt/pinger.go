package mqtt

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho/log"
)

// pinger sends a ping at twice the rate that the broker asks for, whatever else goes on, and takes a broker that is silent for
// three of them as gone. While nothing is read because the inbox is full, silence means nothing. It is a paho.Pinger; paho's
// own would end the connection then.
type pinger struct {
	wire  *wire
	why   atomic.Pointer[error] // of its end; paho closes the connection on it, and who reads from that may be heard first
	heard atomic.Bool           // something has come since the last ping
}

// silentPings is how many pings in a row may have no answer.
const silentPings = 3

func (p *pinger) Run(ctx context.Context, _ net.Conn, keepAlive uint16) error {
	if keepAlive == 0 {
		return nil
	}
	every := time.Duration(keepAlive) * time.Second / 2
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	silent := 0
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		}
		silent++
		if p.heard.Swap(false) || p.wire.paused.Load() {
			silent = 0
		}
		if silent >= silentPings {
			err := fmt.Errorf("the broker has been silent for %s", every*silentPings)
			p.why.Store(&err)
			return err
		}
		if _, err := packets.NewControlPacket(packets.PINGREQ).WriteTo(p.wire); err != nil {
			return fmt.Errorf("send a ping: %w", err)
		}
	}
}

func (p *pinger) PacketSent()         {}
func (p *pinger) PacketReceived()     { p.heard.Store(true) }
func (p *pinger) PingResp()           {}
func (p *pinger) SetDebug(log.Logger) {}
