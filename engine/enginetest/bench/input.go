package main

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"
)

// The shape of the input.
const (
	partitions = 4
	sensors    = 1000
	hotShare   = 0.29 // of the readings are above 85 degrees
)

// Input makes readings of sensors as JSON objects of a dozen members, one of them an object and one an array, about 330
// bytes. Equal seeds make equal readings; their times are fixed.
type Input struct {
	rng  *rand.Rand
	next int
}

func newInput(seed uint64) *Input { return &Input{rng: rand.New(rand.NewPCG(seed, 0))} }

// Next is one reading, its key and its time. The slices are the caller's.
func (in *Input) Next() (key, value []byte, at time.Time) {
	sensor := in.rng.IntN(sensors)
	at = time.Date(2026, 1, 5, 6, 0, 0, 0, time.UTC).Add(time.Duration(in.next) * 7 * time.Millisecond)
	in.next++
	temperature := 55 + 30*in.rng.Float64()
	if in.rng.Float64() < hotShare {
		temperature = 85.01 + 20*in.rng.Float64()
	}
	value = make([]byte, 0, 352)
	value = fmt.Appendf(value, `{"sensor_id":"sensor-%04d","timestamp":"%s","sequence":%d,"temperature":`,
		sensor, at.Format("2006-01-02T15:04:05.000Z"), in.next)
	value = strconv.AppendFloat(value, temperature, 'f', 2, 64)
	value = fmt.Appendf(value, `,"humidity":%.1f,"pressure":%.2f,"battery":%d,"status":"%s","firmware":"2.14.%d"`,
		20+60*in.rng.Float64(), 980+50*in.rng.Float64(), in.rng.IntN(101), [...]string{"ok", "ok", "ok", "degraded"}[in.rng.IntN(4)], in.rng.IntN(10))
	value = fmt.Appendf(value, `,"site":"hall-%02d north"`, sensor%40)
	value = fmt.Appendf(value, `,"location":{"lat":%.5f,"lon":%.5f,"floor":%d},"samples":[%.2f,%.2f,%.2f,%.2f,%.2f,%.2f,%.2f,%.2f]}`,
		52+in.rng.Float64(), 13+in.rng.Float64(), sensor%7,
		temperature-0.4, temperature-0.1, temperature+0.2, temperature+0.3, temperature-0.2, temperature+0.1, temperature, temperature+0.4)
	return fmt.Appendf(nil, "sensor-%04d", sensor), value, at
}
