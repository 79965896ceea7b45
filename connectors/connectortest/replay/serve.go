package replay

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"
)

// contentTypes are fixed here, since those of the system differ from machine to machine.
var contentTypes = map[string]string{
	".json": "application/json", ".geojson": "application/geo+json", ".ndjson": "application/x-ndjson",
	".csv": "text/csv; charset=utf-8", ".tsv": "text/tab-separated-values; charset=utf-8",
	".txt": "text/plain; charset=utf-8", ".log": "text/plain; charset=utf-8", ".html": "text/html; charset=utf-8",
	".xml": "application/xml", ".zip": "application/zip", ".gz": "application/gzip", ".pb": "application/x-protobuf",
}

// describe sets the headers that tell of a file, as far as the rule has not.
func (h *Handler) describe(out http.Header, rule *Rule, f *found, suffix string) error {
	if out.Get("Content-Type") == "" {
		kind, known := contentTypes[path.Ext(f.name)]
		if !known {
			kind = "application/octet-stream"
		}
		out.Set("Content-Type", kind)
	}
	if out.Get("Etag") == "" && !rule.leavesOut("ETag") {
		tag, err := h.tag(f)
		if err != nil {
			return err
		}
		out.Set("Etag", `"`+tag+suffix+`"`)
	}
	if rule.leavesOut("Last-Modified") {
		f.modified = time.Time{}
	}
	return nil
}

// serveFile lets the standard library answer, with ranges and conditions.
func (h *Handler) serveFile(w http.ResponseWriter, r *http.Request, rule *Rule, f *found) {
	defer f.Close()
	if err := h.describe(w.Header(), rule, f, ""); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if rule.Range == "ignore" {
		r = r.Clone(r.Context())
		r.Header.Del("Range")
		w = &withoutRanges{ResponseWriter: w}
	}
	http.ServeContent(w, r, "", f.modified, f.content)
}

// serveWhole sends a body that knows no ranges.
func (h *Handler) serveWhole(w http.ResponseWriter, r *http.Request, rule *Rule, f *found) {
	defer f.Close()
	content, err := io.ReadAll(f.content)
	if err == nil && rule.Encoding != "" && strings.Contains(r.Header.Get("Accept-Encoding"), rule.Encoding) {
		w.Header().Set("Content-Encoding", rule.Encoding)
		content, err = encode(rule.Encoding, content)
	}
	if err == nil {
		err = h.describe(w.Header(), rule, f, "-"+rule.Encoding)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if rule.Status == 0 || rule.Status == http.StatusOK {
		if w.Header().Get("Etag") != "" && r.Header.Get("If-None-Match") == w.Header().Get("Etag") {
			w.Header().Del("Content-Encoding")
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(content)))
	w.WriteHeader(max(rule.Status, http.StatusOK))
	if r.Method != http.MethodHead {
		_, _ = w.Write(content)
	}
}

func encode(encoding string, content []byte) ([]byte, error) {
	var b bytes.Buffer
	var w io.WriteCloser = gzip.NewWriter(&b)
	if encoding == "deflate" {
		w = zlib.NewWriter(&b)
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	err := w.Close()
	return b.Bytes(), err
}

type tagKey struct {
	name     string
	size     int64
	modified time.Time
	version  int
}

// tag is made of the content, so that a file that was written again unchanged keeps it.
func (h *Handler) tag(f *found) (string, error) {
	key := tagKey{f.name, f.size, f.modified, f.version}
	h.mu.Lock()
	tag, known := h.tags[key]
	h.mu.Unlock()
	if known && !f.modified.IsZero() { // what has no date is a rule's text
		return tag, nil
	}
	hash := sha256.New()
	if _, err := f.content.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	if _, err := io.Copy(hash, f.content); err != nil {
		return "", err
	}
	if _, err := f.content.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	tag = fmt.Sprintf("%x", hash.Sum(nil)[:8])
	h.mu.Lock()
	h.tags[key] = tag
	h.mu.Unlock()
	return tag, nil
}

// withoutRanges is a server that does not say that it knows ranges.
type withoutRanges struct{ http.ResponseWriter }

func (w *withoutRanges) WriteHeader(status int) {
	w.Header().Del("Accept-Ranges")
	w.ResponseWriter.WriteHeader(status)
}
