package script

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/flechtwerk/flechtwerk/engine/decode/decodetest"
	"github.com/flechtwerk/flechtwerk/engine/rawjson"
	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// reading is a record of about 330 bytes: a dozen members, one nested object, one array.
func reading(i int) string {
	return fmt.Sprintf(`{"sensor_id":"sensor-%04d","timestamp":%d,"temperature":%d.25,"humidity":41.5,"pressure":1013.25,"battery":0.87,"status":"ok","firmware":"2.14.3","site":"plant-7","location":{"lat":52.520008,"lon":13.404954,"floor":3,"room":"b-12"},"samples":[87.1,87.2,87.3,87.4],"note":"calibrated in spring, next due in autumn"}`,
		i%1000, 1767225600123+i, 70+i%21)
}

const benchBatch = 1000

func benchmark(b *testing.B, body string) {
	benchmarkOver(b, body, reading, storeMap{}, benchBatch)
}

// benchmarkOver runs a body over values, with states that are in a store, in batches of so many records.
func benchmarkOver(b *testing.B, body string, text func(int) string, store storeMap, size int) {
	p := mustCompile(b, Source{Body: bodyText(body)})
	tr, err := p.NewTransform(Env{Stage: "s", Outputs: out, Initial: []byte(`{"count":0,"sum":0}`), Fetch: answerAtOnce})
	if err != nil {
		b.Fatal(err)
	}
	in := &stream.Input{Name: "in", Topic: stream.Topic{Name: "in", Key: stream.String}}
	batch := &stream.Batch{Fail: func(_ int, err error) error { return err }}
	records := make([]stream.Record, size)
	var shapes rawjson.Shapes
	for i := range records {
		value := []byte(text(i))
		kind, members, shape, err := shapes.Check(value, nil)
		if err != nil {
			b.Fatal(err)
		}
		key := fmt.Sprintf("sensor-%04d", i%100)
		records[i] = stream.Record{Input: in, Key: []byte(key), StateKey: key, Value: value, Kind: kind, Members: members, Shape: shape}
	}
	b.ReportAllocs()
	b.ResetTimer()
	start, best := decodetest.CPU(), time.Hour
	for done := 0; done < b.N; done += size {
		batch.Reset()
		if p.NamesState() {
			batch.States = store
		}
		batch.Records = append(batch.Records, records[:min(size, b.N-done)]...)
		began := time.Now()
		if err := tr.Run(context.Background(), batch); err != nil {
			b.Fatal(err)
		}
		if took := time.Since(began); len(batch.Records) == size {
			best = min(best, took)
		}
	}
	if best < time.Hour {
		b.ReportMetric(float64(best)/float64(size), "best-ns/op") // of one batch: on a busy machine the others say little
	}
	b.ReportMetric(float64(decodetest.CPU()-start)/float64(b.N), "cpu-ns/op")
}

func answerAtOnce(context.Context, *FetchRequest) (*FetchResponse, error) {
	return &FetchResponse{Status: 200, URL: "http://x/", Shown: "http://x/", Body: io.NopCloser(strings.NewReader(`{"limit":85}`))}, nil
}

func BenchmarkEmpty(b *testing.B)   { benchmark(b, `;`) }
func BenchmarkReadOne(b *testing.B) { benchmark(b, `for (; msg.value.temperature > 1000;) throw 1;`) }

// The same where the condition is worked out in Go, and the body is never called.
func BenchmarkPassOne(b *testing.B) { benchmark(b, `if (msg.value.temperature > 1000) throw 1;`) }
func BenchmarkMutateEmit(b *testing.B) {
	benchmark(b, `msg.value.count = 1; msg.value.mean = msg.value.temperature / 2; yield Message({ value: msg.value });`)
}
func BenchmarkSpreadEmit(b *testing.B) {
	benchmark(b, `yield Message({ value: { ...msg.value, count: 1, mean: msg.value.temperature / 2 } });`)
}
func BenchmarkStateRoundTrip(b *testing.B) {
	benchmark(b, `state.count += 1; state.sum += msg.value.temperature; yield State(state);`)
}
func BenchmarkB1(b *testing.B) {
	benchmark(b, `state.count += 1; state.sum += msg.value.temperature; yield State(state); yield Message({ value: { ...msg.value, count: state.count, mean: state.sum / state.count } });`)
}
func BenchmarkB2(b *testing.B) {
	benchmark(b, `if (msg.value.temperature > 85) yield Message({ value: { sensor_id: msg.value.sensor_id, timestamp: msg.value.timestamp, fahrenheit: msg.value.temperature * 9 / 5 + 32, alert: true } });`)
}

func BenchmarkNewVM(b *testing.B) {
	p := mustCompile(b, Source{Body: bodyText(`yield Message({ value: 1 });`)})
	for b.Loop() {
		if _, err := p.NewTransform(Env{Stage: "s", Outputs: out}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	for b.Loop() {
		mustCompile(b, Source{Body: bodyText(`state.count += 1; state.sum += msg.value.temperature; yield State(state); yield Message({ value: { ...msg.value, count: state.count, mean: state.sum / state.count } });`)})
	}
}

// A body that awaits a value that is there.
func BenchmarkAwait(b *testing.B) {
	benchmark(b, `const value = await msg.value.temperature; yield Message({ value: { value } });`)
}

// A body that awaits what memo remembers.
func BenchmarkAwaitMemo(b *testing.B) {
	benchmark(b, `const value = await memo('value', '1h', async () => ({ limit: 85 })); yield Message({ value: { value } });`)
}

// A body that awaits an asynchronous function of its own.
func BenchmarkAwaitFunction(b *testing.B) {
	benchmark(b, `const twice = async x => x * 2; const value = await twice(msg.value.temperature); yield Message({ value: { value } });`)
}

// A body that awaits a helper that yields.
func BenchmarkAwaitHelper(b *testing.B) {
	benchmark(b, `async function* emit(value) { yield Message({ value: { value } }) } yield* emit(msg.value.temperature);`)
}

// A body that awaits a request, which is answered at once.
func BenchmarkAwaitFetch(b *testing.B) {
	benchmark(b, `const value = await fetch('http://x/'); yield Message({ value: { value: value.status } });`)
}

// The same, and the answer's content.
func BenchmarkAwaitFetchContent(b *testing.B) {
	benchmark(b, `const value = await (await fetch('http://x/')).json(); yield Message({ value: { value } });`)
}

// largeValue is a record of about n bytes: a reading with an array of readings in it.
func largeValue(n int) func(int) string {
	return func(i int) string {
		one := reading(i)
		return strings.TrimSuffix(one, "}") + `,"history":[` + one + strings.Repeat(","+one, n/len(one)) + `]}`
	}
}

// A script that touches one member of a large value, beside the same of a small one.
func BenchmarkLargeValues(b *testing.B) {
	for _, size := range []int{0, 10 << 10, 100 << 10} {
		value := largeValue(size)
		if size == 0 {
			value = reading
		}
		for name, body := range map[string]string{
			"read":   `for (; msg.value.temperature > 1000;) throw 1;`,
			"spread": `yield Message({ value: { ...msg.value, mean: msg.value.temperature / 2 } });`,
			"pass":   `yield Message({ value: msg.value });`,
		} {
			b.Run(fmt.Sprintf("%s/%dB", name, len(value(0))), func(b *testing.B) { benchmarkOver(b, body, value, storeMap{}, 100) })
		}
	}
}

// A script that changes one member of a large state, beside the same of a small one: every record of a batch has one key, so
// that the state is written once for a batch, and read from the store never again.
func BenchmarkLargeStates(b *testing.B) {
	for _, size := range []int{0, 100 << 10, 1 << 20} {
		state := `{"count":0,"sum":0}`
		if size > 0 {
			state = strings.TrimSuffix(largeValue(size)(0), "}") + `,"count":0,"sum":0}`
		}
		store := storeMap{}
		for i := range 100 {
			store[fmt.Sprintf("sensor-%04d", i)] = state
		}
		for _, records := range []int{100, 1000} {
			b.Run(fmt.Sprintf("%dB/%d of a key in a batch", len(state), records/100), func(b *testing.B) {
				benchmarkOver(b, `state.count += 1; state.sum += msg.value.temperature; yield State(state);`, reading, store, records)
			})
		}
	}
}
