package http_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	nethttp "net/http"
	"net/http/httptest"
	"runtime/debug"
	"testing"
	"time"

	"github.com/flechtwerk/flechtwerk/connectors/http"
	"github.com/flechtwerk/flechtwerk/engine/decode"
	"github.com/flechtwerk/flechtwerk/engine/decode/decodetest"
	"github.com/flechtwerk/flechtwerk/engine/expr"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// largestPoll is what a poll of a streamed body may take of the process's memory, in MB, that of the server and of the test
// included.
const largestPoll = 150

// served is a body of head, many times block, and tail.
type served struct {
	head, block, tail string
	size              int // about
	items             int // in a block
}

func (s served) ServeHTTP(w nethttp.ResponseWriter, _ *nethttp.Request) {
	_, _ = io.WriteString(w, s.head)
	block := []byte(s.block)
	for range s.times() {
		if _, err := w.Write(block); err != nil {
			return
		}
	}
	_, _ = io.WriteString(w, s.tail)
}

func (s served) times() int { return s.size / len(s.block) }

// manyItems are items of 300 bytes.
func manyItems(separator string) served {
	var b bytes.Buffer
	const n = 100
	for i := range n {
		fmt.Fprintf(&b, `{"id":"item-%06d","name":"Sensor of hall %d","price":%d.25,"available":true,"tags":["indoor","calibrated","v2"],"location":{"lat":52.520008,"lon":13.404954,"floor":%d},"note":"next due in autumn, see the \"blue\" folder","updated":"2026-01-01T00:00:%02dZ","owner":null,"ratio":0.8731}%s`,
			i, i%9, i, i%5, i%60, separator)
	}
	return served{block: b.String(), items: n}
}

// vehicles are entities of a transit feed in protobuf.
func vehicles() served {
	tagged := func(number int, content []byte) []byte {
		out := binary.AppendUvarint(nil, uint64(number)<<3|2)
		return append(binary.AppendUvarint(out, uint64(len(content))), content...)
	}
	double := func(number int, f float64) []byte {
		return binary.LittleEndian.AppendUint64(binary.AppendUvarint(nil, uint64(number)<<3|1), math.Float64bits(f))
	}
	var b []byte
	const n = 100
	for i := range n {
		vehicle := append(tagged(1, fmt.Appendf(nil, "trip-%08d", i)), tagged(2, append(double(1, 52.5+float64(i)), double(2, 13.4)...))...)
		b = append(b, tagged(2, append(tagged(1, fmt.Appendf(nil, "vehicle-%d", i)), tagged(4, vehicle)...))...)
	}
	return served{block: string(b), items: n}
}

const vehicleSchema = `syntax = "proto3";
message Feed { repeated Entity entity = 2; }
message Entity { string id = 1; Vehicle vehicle = 4; }
message Vehicle { string trip = 1; Position position = 2; }
message Position { double latitude = 1; double longitude = 2; }`

// benchmarkPoll polls a body from a server on this machine, through a message that takes the item apart, and commits to
// nobody.
func benchmarkPoll(b *testing.B, body served, set func(c *http.PollerConfig)) {
	server := httptest.NewServer(body)
	b.Cleanup(server.Close)
	client, err := http.New(http.Config{Proxy: "direct"})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(client.Close)
	url, err := expr.CompileTemplate(server.URL, expr.Config)
	if err != nil {
		b.Fatal(err)
	}
	m, wrong := expr.CompileMessage(&expr.Tree{Kind: expr.Map, Names: []string{"key", "value"}, Items: []*expr.Tree{{Text: "item.id"}, {Text: "item"}}}, expr.Item)
	if wrong != nil {
		b.Fatal(wrong[0].Err)
	}
	config := http.PollerConfig{Client: client, Request: http.RequestConfig{URL: url}, Outputs: []*stream.Topic{{Name: "out", Key: stream.String}}, Message: m}
	set(&config)
	source, err := http.NewPoller(config)
	if err != nil {
		b.Fatal(err)
	}
	debug.FreeOSMemory()
	decodetest.Peak()
	messages, pages := 0, 0
	b.SetBytes(int64(body.times() * len(body.block)))
	before, began := decodetest.CPU(), time.Now()
	for b.Loop() {
		messages, pages = 0, 0
		err := source.Poll(b.Context(), &stream.Poll{Config: stream.Config{Key: "k", Value: []byte("{}")}, Commit: func(_ context.Context, page *stream.Page) error {
			messages += len(page.Messages)
			pages++
			return nil
		}})
		if err != nil {
			b.Fatal(err)
		}
	}
	used, took := decodetest.CPU()-before, time.Since(began)
	if want := body.times() * body.items; messages < want || messages > want+1 {
		b.Fatalf("%d messages of %d items", messages, want)
	}
	if held := decodetest.Peak(); held > 0 {
		if held > largestPoll {
			b.Errorf("%.0f MB held, more than %d", held, largestPoll)
		}
		b.ReportMetric(held, "MB-held")
	}
	b.ReportMetric(float64(messages), "items")
	b.ReportMetric(float64(pages), "pages")
	b.ReportMetric(used.Seconds()/took.Seconds(), "cpus") // of server and client
}

func BenchmarkPollJSONListing(b *testing.B) {
	body := manyItems(",")
	body.head, body.tail, body.size = `{"data":{"items":[`, `{"id":"last"}]},"next":null}`, 10<<20
	records, err := expr.Compile("body.data.items", expr.Response, expr.AList)
	if err != nil {
		b.Fatal(err)
	}
	benchmarkPoll(b, body, func(c *http.PollerConfig) { c.Records = records })
}

func BenchmarkPollNDJSON(b *testing.B) {
	body := manyItems("\n")
	body.size = 50 << 20
	benchmarkPoll(b, body, func(c *http.PollerConfig) { c.Decode.Format = decode.NDJSON })
}

func BenchmarkPollCSV(b *testing.B) {
	var rows bytes.Buffer
	const n = 100
	for i := range n {
		fmt.Fprintf(&rows, "item-%06d,Sensor of hall %d,%d.25,true,52.520008,13.404954,\"next due, in autumn\",2026-01-01T00:00:00Z,\n", i, i%9, i)
	}
	body := served{head: "id,name,price,available,lat,lon,note,updated,owner\n", block: rows.String(), size: 20 << 20, items: n}
	benchmarkPoll(b, body, func(c *http.PollerConfig) { c.Decode.Format = decode.CSV })
}

func BenchmarkPollProtobuf(b *testing.B) {
	schema, err := decode.ReadSchema("feed.proto", func(string) ([]byte, error) { return []byte(vehicleSchema), nil })
	if err != nil {
		b.Fatal(err)
	}
	feed, err := schema.Message("Feed")
	if err != nil {
		b.Fatal(err)
	}
	records, err := expr.Compile("body.entity", expr.Response, expr.AList)
	if err != nil {
		b.Fatal(err)
	}
	body := vehicles()
	body.size = 50 << 20
	benchmarkPoll(b, body, func(c *http.PollerConfig) {
		c.Decode.Format, c.Decode.Message, c.Records = decode.Protobuf, feed, records
	})
}
