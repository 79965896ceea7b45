package expr

import (
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
)

var hashes = map[string]func() hash.Hash{"md5": md5.New, "sha1": sha1.New, "sha256": sha256.New, "sha384": sha512.New384, "sha512": sha512.New}

var checkHash = oneOf(0, "the algorithm", "md5", "sha1", "sha256", "sha384", "sha512")

// codecFunctions are encodings, digests and the conversions of JSON and of time.
var codecFunctions = map[string]*function{
	"hash": {min: 2, max: 3, takes: []types{tText, tText | tBytes, tText}, result: tText | tBytes, check: checkHash, call: func(env *Env, a []Value, pos int) Value {
		make, ok := hashes[a[0].str]
		if !ok {
			return env.fail(pos, CodeValue, "hash knows md5, sha1, sha256, sha384 and sha512")
		}
		return digest(env, make(), a[1].str, a[2:], pos)
	}},
	"hmac": {min: 3, max: 4, takes: []types{tText, tText | tBytes, tText | tBytes, tText}, result: tText | tBytes, check: checkHash, call: func(env *Env, a []Value, pos int) Value {
		make, ok := hashes[a[0].str]
		if !ok {
			return env.fail(pos, CodeValue, "hmac knows md5, sha1, sha256, sha384 and sha512")
		}
		return digest(env, hmac.New(make, []byte(a[1].str)), a[2].str, a[3:], pos)
	}},
	"murmur2": {min: 1, max: 1, takes: []types{tText | tBytes}, result: tNumber, call: func(_ *Env, a []Value, _ int) Value {
		return intValue(int64(murmur2(a[0].str)))
	}},
	"hex.encode": {min: 1, max: 1, takes: []types{tText | tBytes}, result: tText, call: func(env *Env, a []Value, _ int) Value {
		env.spend(2 * len(a[0].str))
		return textValue(hex.EncodeToString(rawjson.Bytes(a[0].str)))
	}},
	"hex.decode": {min: 1, max: 1, takes: []types{tText}, result: tBytes, call: func(env *Env, a []Value, pos int) Value {
		b, err := hex.DecodeString(a[0].str)
		if err != nil {
			return env.fail(pos, CodeValue, "hex.decode takes pairs of hexadecimal digits")
		}
		return bytesValue(b)
	}},
	"base64.encode": {min: 1, max: 1, takes: []types{tText | tBytes}, result: tText, call: encodeBase64},
	"toBase64":      {min: 1, max: 1, takes: []types{tText | tBytes}, result: tText, call: encodeBase64},
	"base64.decode": {min: 1, max: 1, takes: []types{tText}, result: tBytes, call: func(env *Env, a []Value, pos int) Value {
		b, err := base64.StdEncoding.DecodeString(a[0].str)
		if err != nil {
			return env.fail(pos, CodeValue, "base64.decode takes base64 with its padding")
		}
		return bytesValue(b)
	}},
	"fromBase64": {min: 1, max: 1, takes: []types{tText}, result: tText, call: func(env *Env, a []Value, pos int) Value {
		b, err := base64.StdEncoding.DecodeString(a[0].str)
		if err != nil || !valid(string(b)) {
			return env.fail(pos, CodeValue, "fromBase64 takes the base64, with its padding, of a text; base64.decode makes bytes")
		}
		return textValue(string(b))
	}},
	"toJSON":         {min: 1, max: 1, takes: []types{tAny}, result: tText, call: func(env *Env, a []Value, pos int) Value { return jsonText(env, a[0], pos) }},
	"json.stringify": {min: 1, max: 1, takes: []types{tAny}, result: tText, call: func(env *Env, a []Value, pos int) Value { return jsonText(env, a[0], pos) }},
	"fromJSON":       {min: 1, max: 1, takes: []types{tText}, result: tAny, call: parseJSON},
	"json.parse":     {min: 1, max: 1, takes: []types{tText}, result: tAny, call: parseJSON},
	"time.iso":       {min: 1, max: 2, takes: []types{tNumber, tMap}, result: tText, call: isoTime},
}

func digest(env *Env, h hash.Hash, data string, as []Value, pos int) Value {
	env.spend(len(data))
	h.Write(rawjson.Bytes(data))
	sum := h.Sum(nil)
	if len(as) == 0 {
		return textValue(hex.EncodeToString(sum))
	}
	switch as[0].str {
	case "hex":
		return textValue(hex.EncodeToString(sum))
	case "bytes":
		return bytesValue(sum)
	}
	return env.fail(pos, CodeValue, `a digest is answered as "hex" or as "bytes"`)
}

func encodeBase64(env *Env, a []Value, _ int) Value {
	env.spend(2 * len(a[0].str))
	return textValue(base64.StdEncoding.EncodeToString(rawjson.Bytes(a[0].str)))
}

func parseJSON(env *Env, a []Value, pos int) Value {
	env.spend(len(a[0].str))
	if _, _, err := rawjson.Check(rawjson.Bytes(a[0].str), nil); err != nil {
		return env.fail(pos, CodeValue, "the text is not JSON")
	}
	return rawRoot(rawjson.Bytes(a[0].str))
}

// murmur2 is Kafka's (org.apache.kafka.common.utils.Utils.murmur2), by which Java's producer picks a partition.
func murmur2(data string) int32 {
	const m = 0x5bd1e995
	h := uint32(0x9747b28c) ^ uint32(len(data))
	for ; len(data) >= 4; data = data[4:] {
		k := binary.LittleEndian.Uint32(rawjson.Bytes(data[:4])) * m
		k ^= k >> 24
		h = h*m ^ k*m
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
	h ^= h >> 15
	return int32(h)
}

// isoTime prints ms since 1970 as JavaScript's toISOString does, with 3 digits of the second or as many as asked for.
func isoTime(env *Env, a []Value, pos int) Value {
	const most = 8.64e15 // ms; what a Date of JavaScript holds
	digits := int64(3)
	if len(a) == 2 {
		var ok bool
		if digits, ok = resolve(env.member(a[1], "digits")).whole(); !ok || digits < 0 || digits > 9 {
			return env.fail(pos, CodeValue, "time.iso takes {digits: n} with n from 0 to 9")
		}
	}
	if a[0].kind == kBig || !(math.Abs(a[0].double()) <= most) {
		return env.fail(pos, CodeValue, "time.iso takes milliseconds since 1970 within 100,000,000 days")
	}
	ms := int64(math.Floor(a[0].double()))
	rest := a[0].double() - float64(ms)
	t := time.UnixMilli(ms).UTC()
	if rest > 0 && digits > 3 {
		t = t.Add(time.Duration(rest * float64(time.Millisecond)))
	}
	layout := "-01-02T15:04:05"
	if digits > 0 {
		layout += "." + strings.Repeat("0", int(digits))
	}
	year := t.Year()
	var out string
	switch {
	case year < 0:
		out = "-" + padded(-year, 6)
	case year > 9999:
		out = "+" + padded(year, 6)
	default:
		out = padded(year, 4)
	}
	return textValue(out + t.Format(layout) + "Z")
}

func padded(n, width int) string {
	s := strconv.Itoa(n)
	return strings.Repeat("0", max(0, width-len(s))) + s
}

func appendInt(dst []byte, n int64) []byte { return strconv.AppendInt(dst, n, 10) }
