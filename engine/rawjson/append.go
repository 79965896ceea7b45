package rawjson

import (
	"math"
	"math/bits"
	"strconv"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// AppendString appends s as a JSON string. Only what JSON demands is escaped: quotes, backslashes, control characters.
// Invalid UTF-8 becomes U+FFFD.
func AppendString(dst []byte, s string) []byte {
	n := plainLength(s)
	dst = append(append(dst, '"'), s[:n]...)
	if n < len(s) {
		dst = appendEscaped(dst, s[n:])
	}
	return append(dst, '"')
}

// plainLength is how many bytes at the beginning of s need no escape and are ASCII.
func plainLength(s string) int {
	i := 0
	for b := Bytes(s); i+8 <= len(b); i += 8 {
		if special := plainText(word(b, i)); special != 0 {
			return i + bits.TrailingZeros64(special)>>3
		}
	}
	for i < len(s) && s[i] >= 0x20 && s[i] != '"' && s[i] != '\\' && s[i] < utf8.RuneSelf {
		i++
	}
	return i
}

// appendEscaped appends the inside of a JSON string.
func appendEscaped(dst []byte, s string) []byte {
	start := 0
	for i := 0; i < len(s); {
		b := s[i]
		if b >= 0x20 && b != '"' && b != '\\' && b < utf8.RuneSelf {
			i++
			continue
		}
		if b >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 {
				dst = append(dst, s[start:i]...)
				dst = append(dst, "\uFFFD"...)
				i++
				start = i
				continue
			}
			i += size
			continue
		}
		dst = append(dst, s[start:i]...)
		switch b {
		case '"', '\\':
			dst = append(dst, '\\', b)
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\f':
			dst = append(dst, '\\', 'f')
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[b>>4], hexDigits[b&15])
		}
		i++
		start = i
	}
	return append(dst, s[start:]...)
}

// AppendFloat appends f as JavaScript's JSON.stringify prints it (ECMA-262, Number::toString): the shortest digits that
// read back as f, plain between 1e-6 and 1e21, -0 as 0. f must be finite.
func AppendFloat(dst []byte, f float64) []byte {
	if f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		return strconv.AppendInt(dst, int64(f), 10)
	}
	abs := math.Abs(f)
	if abs >= 1e-6 && abs < 1e21 {
		return strconv.AppendFloat(dst, f, 'f', -1, 64)
	}
	dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
	// Go pads the exponent to two digits (1e-07); JavaScript does not.
	if n := len(dst); dst[n-4] == 'e' && dst[n-2] == '0' {
		dst[n-2] = dst[n-1]
		dst = dst[:n-1]
	}
	return dst
}

// IsShortest tells of a checked number of up to fifteen digits whether AppendFloat would write it as it stands; of longer
// ones, and of those with an exponent, it says no.
func IsShortest(raw []byte) bool {
	// As many digits are told apart by doubles, so that no shorter text stands for the same one.
	n := len(raw)
	if n > 16 {
		return false
	}
	i := 0
	if raw[0] == '-' {
		i = 1
	}
	digits, point := n-i, -1
	for j := i; j < n; j++ {
		switch b := raw[j]; {
		case b == '.':
			point, digits = j, digits-1
		case b-'0' > 9:
			return false
		}
	}
	if digits > 15 {
		return false
	}
	if point < 0 {
		return raw[i] != '0' || i == 0
	}
	// -0.0 and 1.50 are shorter, and what is below 1e-6 is written with an exponent.
	return raw[n-1] != '0' && (raw[i] != '0' || n-point < 6 || string(raw[point+1:point+6]) != "00000" || raw[point+6] != '0')
}

// Compact appends data without the white space between its tokens. Strings and numbers stay as they are.
func Compact(dst, data []byte) []byte {
	inString := false
	for i := 0; i < len(data); i++ {
		b := data[i]
		if inString {
			dst = append(dst, b)
			switch b {
			case '\\':
				i++
				dst = append(dst, data[i])
			case '"':
				inString = false
			}
			continue
		}
		switch b {
		case ' ', '\t', '\n', '\r':
		case '"':
			inString = true
			dst = append(dst, b)
		default:
			dst = append(dst, b)
		}
	}
	return dst
}
