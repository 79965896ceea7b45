package http

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

func compress(t testing.TB, name string, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser = gzip.NewWriter(&b)
	switch name {
	case "zlib":
		w = zlib.NewWriter(&b)
	case "flate":
		w, _ = flate.NewWriter(&b, flate.DefaultCompression)
	}
	_, err := w.Write(content)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// benchmarkServer serves one body, ready made, so that the server costs as little as it can.
func benchmarkServer(b *testing.B, body []byte, headers ...string) *httptest.Server {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		_, _ = w.Write(body)
	}))
	b.Cleanup(server.Close)
	return server
}

func get(b *testing.B, c *Client, url string) {
	r, err := c.Do(b.Context(), &Request{URL: url})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkSmall is one small GET after the other, server and client in one process; BenchmarkSmallParallel has one after
// the other on each processor. BenchmarkSmallBare is the transport of the standard library alone.
func BenchmarkSmall(b *testing.B) {
	server := benchmarkServer(b, []byte(`{"price":1}`))
	c, err := New(Config{Proxy: "direct"})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	b.ReportAllocs()
	for b.Loop() {
		get(b, c, server.URL)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
}

func BenchmarkSmallBare(b *testing.B) {
	server := benchmarkServer(b, []byte(`{"price":1}`))
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	b.ReportAllocs()
	for b.Loop() {
		request, _ := http.NewRequestWithContext(b.Context(), http.MethodGet, server.URL, nil)
		r, err := transport.RoundTrip(request)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			b.Fatal(err)
		}
		r.Body.Close()
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
}

func BenchmarkSmallParallel(b *testing.B) {
	server := benchmarkServer(b, []byte(`{"price":1}`))
	c, err := New(Config{Proxy: "direct"})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	b.ReportAllocs()
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			get(b, c, server.URL)
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
}

func BenchmarkLarge(b *testing.B) {
	const length = 50 << 20
	body := bytes.Repeat([]byte("0123456789abcde\n"), length/16)
	for _, test := range []struct {
		name    string
		sent    []byte
		headers []string
	}{
		{"plain", body, nil},
		{"gzip", compress(b, "gzip", body), []string{"Content-Encoding", "gzip"}},
	} {
		b.Run(test.name, func(b *testing.B) {
			server := benchmarkServer(b, test.sent, test.headers...)
			c, err := New(Config{Proxy: "direct"})
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			b.SetBytes(length)
			b.ReportAllocs()
			for b.Loop() {
				get(b, c, server.URL)
			}
		})
	}
}
