package decode

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/flechtwerk/flechtwerk/engine/decode/decodetest"
)

// repeated is a body of head, as many blocks as make size bytes, and tail; it is made while it is read.
type repeated struct {
	parts [][]byte
	at    []byte
	next  int
	times int
}

func body(head, block, tail string, size int) io.Reader {
	return &repeated{parts: [][]byte{[]byte(head), []byte(block), []byte(tail)}, times: size / len(block)}
}

func (r *repeated) Read(p []byte) (int, error) {
	for len(r.at) == 0 {
		switch {
		case r.next == 0 || r.next == r.times+1:
			r.at = r.parts[min(r.next, 2)]
			if r.next > 0 {
				r.at = r.parts[2]
			}
		case r.next > r.times:
			return 0, io.EOF
		default:
			r.at = r.parts[1]
		}
		r.next++
	}
	n := copy(p, r.at)
	r.at = r.at[n:]
	return n, nil
}

// largest is what a streamed body may take of the process's memory, in MB.
const largest = 150

func benchmark(b *testing.B, c Config, size int, open func() io.Reader) {
	d, err := New(c)
	if err != nil {
		b.Fatal(err)
	}
	debug.FreeOSMemory()
	decodetest.Peak()
	items, rounds := 0, 0
	b.SetBytes(int64(size))
	began := decodetest.CPU()
	for b.Loop() {
		x := d.Open(open())
		items = 0
		rounds++
		for {
			if _, err := x.Next(); err != nil {
				if !errors.Is(err, io.EOF) {
					b.Fatal(err)
				}
				break
			}
			items++
		}
	}
	if items < 1000 {
		b.Fatalf("%d items", items)
	}
	if held := decodetest.Peak(); held > 0 {
		if held > largest {
			b.Errorf("%.0f MB held, more than %d", held, largest)
		}
		b.ReportMetric(held, "MB-held")
	}
	b.ReportMetric(float64(items), "items")
	// On a busy machine the time on the clock says little.
	b.ReportMetric(float64(rounds*size)/(decodetest.CPU()-began).Seconds()/1e6, "MB/cpu-s")
}

// listing is about a hundred items of 300 bytes, between commas.
func listing(separator string) string {
	var b bytes.Buffer
	for i := range 100 {
		if i > 0 {
			b.WriteString(separator)
		}
		fmt.Fprintf(&b, `{"id":"item-%06d","name":"Sensor of hall %d","price":%d.25,"available":true,"tags":["indoor","calibrated","v2"],"location":{"lat":52.520008,"lon":13.404954,"floor":%d},"note":"next due in autumn, see the \"blue\" folder","updated":"2026-01-01T00:00:%02dZ","owner":null,"ratio":0.8731}`, i, i%9, i, i%5, i%60)
	}
	return b.String() + separator
}

func BenchmarkJSONListing(b *testing.B) {
	const size = 10 << 20
	benchmark(b, Config{List: true, Path: []string{"data", "items"}}, size, func() io.Reader {
		return body(`{"next":"abc","data":{"items":[`, listing(","), `{}],"count":9}}`, size)
	})
}

func BenchmarkNDJSON(b *testing.B) {
	const size = 50 << 20
	benchmark(b, Config{Format: NDJSON}, size, func() io.Reader { return body("", listing("\n"), "", size) })
}

func BenchmarkCSV(b *testing.B) {
	const size = 20 << 20
	var rows bytes.Buffer
	for i := range 200 {
		fmt.Fprintf(&rows, "%d,item-%06d,Sensor of hall %d,%d.25,true,52.520008,13.404954,\"next due, in autumn\",2026-01-01T00:00:00Z,\n", i, i, i%9, i)
	}
	benchmark(b, Config{Format: CSV}, size, func() io.Reader {
		return body("n,id,name,price,available,lat,lon,note,updated,owner\n", rows.String(), "", size)
	})
}

func BenchmarkXML(b *testing.B) {
	const size = 20 << 20
	var entries bytes.Buffer
	for i := range 100 {
		fmt.Fprintf(&entries, "<entry id=\"%d\"><title>Sensor of hall %d</title><price unit=\"EUR\">%d.25</price><tag>indoor</tag><tag>v2</tag><at lat=\"52.5\" lon=\"13.4\"/></entry>\n", i, i%9, i)
	}
	benchmark(b, Config{Format: XML, List: true, Path: []string{"feed", "entry"}}, size, func() io.Reader {
		return body("<feed><title>t</title>", entries.String(), "</feed>", size)
	})
}

// A transit feed: a message with vehicles, each with its trip and position.
func BenchmarkProtobuf(b *testing.B) {
	const size = 50 << 20
	s := schemaOf(b, files{"feed.proto": `syntax = "proto2"; package transit;
		message Feed { optional Header header = 1; repeated Entity entity = 2; }
		message Header { optional string version = 1; }
		message Entity { required string id = 1; optional Vehicle vehicle = 4; }
		message Vehicle { optional Trip trip = 1; optional Position position = 2; optional uint32 stop = 3; optional Status status = 4; optional uint64 timestamp = 5; }
		message Trip { optional string trip_id = 1; optional string start_date = 3; optional string route_id = 5; }
		message Position { optional float latitude = 1; optional float longitude = 2; optional float bearing = 3; }
		enum Status { INCOMING_AT = 0; STOPPED_AT = 1; IN_TRANSIT_TO = 2; }`}, "feed.proto")
	float := func(number protowire.Number, bits uint32) []byte {
		return protowire.AppendFixed32(protowire.AppendTag(nil, number, protowire.Fixed32Type), bits)
	}
	var entities []byte
	for i := range 200 {
		vehicle := wireOf(
			tagged(1, wireOf(tagged(1, fmt.Sprintf("trip-%08d", i)), tagged(3, "20260101"), tagged(5, fmt.Sprintf("line-%d", i%30)))),
			tagged(2, wireOf(float(1, 0x42521481+uint32(i)), float(2, 0x41567ae1+uint32(i)), float(3, 0x43340000))),
			tagged(3, i), tagged(4, i%3), tagged(5, 1767225600+i))
		entities = append(entities, tagged(2, wireOf(tagged(1, fmt.Sprintf("vehicle-%d", i)), tagged(4, vehicle)))...)
	}
	benchmark(b, Config{Format: Protobuf, Message: messageOf(b, s, "transit.Feed"), List: true, Path: []string{"entity"}}, size, func() io.Reader {
		return body(string(tagged(1, tagged(1, "2.0"))), string(entities), "", size)
	})
}
