package stream

import (
	"bytes"
	"fmt"
	"testing"
)

func TestArenaPiecesDoNotOverlap(t *testing.T) {
	var a Arena
	for round := range 3 {
		var pieces, want [][]byte
		for i := range 2000 {
			n := i * 7 % 1500
			if i%500 == 0 {
				n = arenaChunk + i
			}
			p := a.Grab(10) // most pieces outgrow what they asked for
			text := bytes.Repeat(fmt.Appendf(nil, "%d-%d.", round, i), n/4+1)
			p = append(p, text...)
			pieces, want = append(pieces, a.Keep(p)), append(want, text)
			if i%100 == 0 {
				_ = append(a.Grab(3), "abandoned"...)
			}
		}
		for i := range pieces {
			if !bytes.Equal(pieces[i], want[i]) {
				t.Fatalf("round %d piece %d was overwritten", round, i)
			}
			if cap(pieces[i]) != len(pieces[i]) {
				t.Fatalf("piece %d can be appended into its neighbour", i)
			}
		}
		a.Reset()
	}
}
