package stream

// arenaChunk is the size of an arena's chunks in bytes. A larger piece gets a chunk of its own.
const arenaChunk = 256 << 10

// Arena is a place for many small byte slices that die together. The zero Arena is ready. It is not safe for concurrent use.
type Arena struct {
	chunks [][]byte // chunks[0..used] have been written to since the last Reset
	used   int
}

// Grab answers an empty slice to append to, with room for at least n bytes. Only one piece is under way at a time: append
// to it, then give it to Keep. A piece that outgrows its room moves to the heap, which is slower but right.
func (a *Arena) Grab(n int) []byte {
	if a.used < len(a.chunks) {
		c := a.chunks[a.used]
		if cap(c)-len(c) >= n {
			return c[len(c):len(c):cap(c)]
		}
		a.used++
	}
	for a.used < len(a.chunks) {
		if c := a.chunks[a.used]; cap(c) >= n {
			return c[0:0:cap(c)]
		}
		a.used++
	}
	a.chunks = append(a.chunks, make([]byte, 0, max(n, arenaChunk)))
	a.used = len(a.chunks) - 1
	return a.chunks[a.used]
}

// Keep ends the piece that Grab began and answers it with its capacity cut, so that nobody appends into the next one.
func (a *Arena) Keep(piece []byte) []byte {
	if len(piece) == 0 {
		return piece
	}
	c := &a.chunks[a.used]
	if end := len(*c) + len(piece); end <= cap(*c) && &(*c)[:end][len(*c)] == &piece[0] {
		*c = (*c)[:end]
	}
	return piece[:len(piece):len(piece)]
}

// Copy keeps a copy of b.
func (a *Arena) Copy(b []byte) []byte { return a.Keep(append(a.Grab(len(b)), b...)) }

// Size is how many bytes are kept.
func (a *Arena) Size() int {
	size := 0
	for i, c := range a.chunks {
		if i > a.used {
			break
		}
		size += len(c)
	}
	return size
}

// arenaSpare is how many chunks an arena keeps over a Reset.
const arenaSpare = 64

// Reset makes all room free again. Slices that came from the arena must not be used any more.
func (a *Arena) Reset() {
	if len(a.chunks) > arenaSpare {
		clear(a.chunks[arenaSpare:])
		a.chunks = a.chunks[:arenaSpare]
	}
	kept := a.chunks[:0]
	for _, c := range a.chunks {
		if cap(c) == arenaChunk {
			kept = append(kept, c[:0])
		}
	}
	clear(a.chunks[len(kept):])
	a.chunks, a.used = kept, 0
}
