package script

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/dop251/goja"
)

// hashes are the algorithms of hash and hmac. md5 and sha1 are there for the checksums of others.
var hashes = map[string]func() hash.Hash{"md5": md5.New, "sha1": sha1.New, "sha256": sha256.New, "sha512": sha512.New}

func (v *vm) algorithm(function string, value goja.Value) func() hash.Hash {
	make, ok := hashes[v.textOf(function, "the algorithm", value)]
	if !ok {
		v.unfit(function, "the algorithm", value, "md5, sha1, sha256 or sha512")
	}
	return make
}

func (v *vm) hash(call goja.FunctionCall) goja.Value {
	h := v.algorithm("hash", call.Argument(0))()
	h.Write(v.dataOf("hash", "the data", call.Argument(1)))
	return v.digest(h, v.wants("hash", call, 2, "bytes"))
}

func (v *vm) hmac(call goja.FunctionCall) goja.Value {
	h := hmac.New(v.algorithm("hmac", call.Argument(0)), v.dataOf("hmac", "the key", call.Argument(1)))
	h.Write(v.dataOf("hmac", "the data", call.Argument(2)))
	return v.digest(h, v.wants("hmac", call, 3, "bytes"))
}

func (v *vm) digest(h hash.Hash, raw bool) goja.Value {
	if raw {
		return v.array(h.Sum(nil))
	}
	return v.rt.ToValue(hex.EncodeToString(h.Sum(nil)))
}

// murmur2 is the hash that Kafka's Java client partitions by, or the partition itself where their number is given.
func (v *vm) murmur2(call goja.FunctionCall) goja.Value {
	h := murmur2(v.dataOf("murmur2", "the argument", call.Argument(0)))
	count := call.Argument(1)
	if goja.IsUndefined(count) {
		return v.rt.ToValue(h)
	}
	n := v.integerOf("murmur2", "the number of partitions", count, 1, math.MaxInt32)
	return v.rt.ToValue(h & 0x7fffffff % int32(n))
}

// murmur2 is org.apache.kafka.common.utils.Utils.murmur2.
func murmur2(data []byte) int32 {
	const m = 0x5bd1e995
	h := uint32(0x9747b28c) ^ uint32(len(data))
	for len(data) >= 4 {
		k := uint32(data[0]) | uint32(data[1])<<8 | uint32(data[2])<<16 | uint32(data[3])<<24
		k *= m
		k ^= k >> 24
		k *= m
		h = h*m ^ k
		data = data[4:]
	}
	switch len(data) {
	case 3:
		h ^= uint32(data[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(data[1]) << 8
		fallthrough
	case 1:
		h = (h ^ uint32(data[0])) * m
	}
	h ^= h >> 13
	h *= m
	return int32(h ^ h>>15)
}

func newHex(v *vm) goja.Value {
	return v.functions("hex", map[string]func(goja.FunctionCall) goja.Value{
		"encode": func(call goja.FunctionCall) goja.Value {
			data := v.dataOf("hex.encode", "the argument", call.Argument(0))
			return v.encoded("hex.encode", hex.EncodedLen(len(data)), func() string { return hex.EncodeToString(data) })
		},
		"decode": func(call goja.FunctionCall) goja.Value {
			data, err := hex.DecodeString(v.textOf("hex.decode", "the argument", call.Argument(0)))
			if err != nil {
				v.raise("SyntaxError", codeSyntax, "hex.decode: the text is not made of pairs of hexadecimal digits")
			}
			return v.decoded("hex.decode", data, v.wants("hex.decode", call, 1, "text"))
		},
	})
}

func newBase64(v *vm) goja.Value {
	return v.functions("base64", map[string]func(goja.FunctionCall) goja.Value{
		"encode": func(call goja.FunctionCall) goja.Value {
			data, alphabet := v.dataOf("base64.encode", "the first argument", call.Argument(0)), base64.StdEncoding
			if v.wants("base64.encode", call, 1, "url") {
				alphabet = base64.RawURLEncoding
			}
			return v.encoded("base64.encode", alphabet.EncodedLen(len(data)), func() string { return alphabet.EncodeToString(data) })
		},
		"decode": func(call goja.FunctionCall) goja.Value {
			data, err := decodeBase64(v.textOf("base64.decode", "the argument", call.Argument(0)))
			if err != nil {
				v.raise("SyntaxError", codeSyntax, "base64.decode: the text is not base64")
			}
			return v.decoded("base64.decode", data, v.wants("base64.decode", call, 1, "text"))
		},
	})
}

// decodeBase64 takes both alphabets, padded or not, with line breaks.
func decodeBase64(text string) ([]byte, error) {
	text = strings.NewReplacer("-", "+", "_", "/", "\n", "", "\r", "").Replace(text)
	if padded := strings.TrimRight(text, "="); len(padded) != len(text) {
		if len(text)%4 != 0 {
			return nil, base64.CorruptInputError(len(padded))
		}
		return base64.StdEncoding.DecodeString(text)
	}
	return base64.RawStdEncoding.DecodeString(text)
}

// encoded is a text of size bytes.
func (v *vm) encoded(function string, size int, text func() string) goja.Value {
	if size > maxString {
		v.raise("RangeError", codeTooLarge, "%s: the text would have %d characters; %d are the most", function, size, maxString)
	}
	return v.rt.ToValue(text())
}

// decoded is data as bytes, or as the text that it is in UTF-8.
func (v *vm) decoded(function string, data []byte, text bool) goja.Value {
	switch {
	case !text:
		return v.array(data)
	case !utf8.Valid(data):
		v.raise("TypeError", codeUTF8, "%s: the bytes are not UTF-8; take them as bytes", function)
	case len(data) > maxString:
		v.raise("RangeError", codeTooLarge, "%s: the text would have %d bytes; %d are the most", function, len(data), maxString)
	}
	return v.rt.ToValue(string(data))
}

func openGzip(r io.Reader) (io.Reader, error)    { return gzip.NewReader(r) }
func openZlib(r io.Reader) (io.Reader, error)    { return zlib.NewReader(r) }
func openDeflate(r io.Reader) (io.Reader, error) { return flate.NewReader(r), nil }

// maxInflated is the largest limit that a script may ask for, in bytes.
const maxInflated = 256 << 20

// limit is the option of that name: how many bytes may come out.
func (v *vm) limit(function string, o *goja.Object) int64 {
	n := option(o, "limit")
	if n == nil {
		return maxBytes
	}
	return v.integerOf(function, "the option limit", n, 1, maxInflated)
}

// inflater is a function that decompresses bytes, up to a limit.
func (v *vm) inflater(function string, open func(io.Reader) (io.Reader, error)) func(goja.FunctionCall) goja.Value {
	return func(call goja.FunctionCall) goja.Value {
		data := v.dataOf(function, "the first argument", call.Argument(0))
		limit, text := int64(maxBytes), false
		for i := 1; i < 3; i++ {
			if arg := call.Argument(i); goja.IsString(arg) {
				text = v.wants(function, call, i, "text")
			} else if o := v.options(function, arg, "limit"); o != nil {
				limit = v.limit(function, o)
			}
		}
		r, err := open(bytes.NewReader(data))
		var inflated []byte
		if err == nil {
			inflated, err = io.ReadAll(io.LimitReader(r, limit+1))
		}
		switch {
		case errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF):
			v.raise("SyntaxError", codeSyntax, "%s: the data end too early", function)
		case err != nil:
			v.raise("SyntaxError", codeSyntax, "%s: the data are damaged or of another format", function)
		case int64(len(inflated)) > limit:
			v.raise("RangeError", codeTooLarge, "%s: more than %d bytes came out; the option limit allows more", function, limit)
		}
		return v.decoded(function, inflated, text)
	}
}

// findBytes makes indexOf of byte arrays take a byte array too.
func findBytes(v *vm) {
	typed := v.rt.GlobalObject().Get("Uint8Array").(*goja.Object).Prototype().Get("prototype").(*goja.Object)
	original, _ := goja.AssertFunction(typed.Get("indexOf"))
	must(typed.DefineDataProperty("indexOf", v.native("indexOf", 1, func(call goja.FunctionCall) goja.Value {
		what, ok := call.Argument(0).(*goja.Object)
		owner, is := call.This.(*goja.Object)
		if ok && is && isByteArray(owner) && isByteArray(what) {
			data, bytesThere := owner.Export().([]byte)
			wanted, bytesWanted := what.Export().([]byte)
			if bytesThere && bytesWanted {
				return v.rt.ToValue(indexFrom(data, wanted, call.Argument(1).ToInteger()))
			}
		}
		result, err := original(call.This, call.Arguments...)
		must(err)
		return result
	}), goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_FALSE))
}

// indexFrom finds wanted in data at or after start, which counts from the end if it is negative.
func indexFrom(data, wanted []byte, start int64) int {
	if start < 0 {
		start = max(0, start+int64(len(data)))
	}
	if start > int64(len(data)) {
		return -1
	}
	if i := bytes.Index(data[start:], wanted); i >= 0 {
		return i + int(start)
	}
	return -1
}
