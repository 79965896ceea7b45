package rawjson

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

var texts = []string{
	`{}`, ` { } `, `[]`, `null`, `true`, `false`, `0`, `-0`, `1.5e-10`, `"a"`, `"\u00e9\ud83d\ude00"`, `"é😀"`,
	`{"a":1,"b":[1,2,{"c":null}],"a":2}`, `{"long name with more than eight bytes":"and a value that is long as well"}`,
	``, ` `, `{`, `}`, `{"a"}`, `{"a":}`, `{"a":1,}`, `[1,]`, `[,1]`, `01`, `-`, `1.`, `.5`, `1e`, `+1`, `tru`, `nul`, `"`, `"\x"`,
	`"\u12g4"`, "\"\x01\"", "\"tab\tinside\"", "\"\xff\"", "\"12345678\xff\"", "\"\xed\xa0\x80\"", `{"a":1} x`, `{"a":1}{"b":2}`, `{a:1}`, `'a'`, `[1 2]`, `NaN`,
}

// W4: what Check accepts is what encoding/json accepts, less invalid UTF-8.
func TestW4CheckAgreesWithEncodingJSON(t *testing.T) {
	for _, text := range texts {
		_, _, err := Check([]byte(text), nil)
		want := json.Valid([]byte(text)) && utf8.ValidString(text)
		if got := err == nil; got != want {
			t.Errorf("Check(%q) = %v, want valid %v", text, err, want)
		}
	}
}

// W4: numbers are read in steps of eight bytes, so each length of what is before and behind the point counts, right numbers and wrong ones, with
// much text behind them and with little.
func TestW4NumbersOfAllLengths(t *testing.T) {
	digits := "123456789012345678901"
	var numbers []string
	for before := range len(digits) {
		for behind := -1; behind < len(digits)-1; behind++ {
			text := digits[:before]
			if behind >= 0 {
				text += "." + digits[:behind]
			}
			for _, end := range []string{"", "e5", "E-12", "e", ".", ".5", "-", "x"} {
				numbers = append(numbers, text+end, "-"+text+end, "0"+text+end)
			}
		}
	}
	wrong := 0
	for _, n := range numbers {
		for _, around := range []string{`%`, `[%]`, `[%,1,2,3]`, `{"a":%}`, `{"a":%,"b":"a text that is longer than a step"}`, `{"b":[%,%]} `} {
			data := []byte(strings.ReplaceAll(around, "%", n))
			want := json.Valid(data)
			if !want {
				wrong++
			}
			var s Shapes
			if _, _, _, err := s.Check([]byte(strings.ReplaceAll(around, "%", "1")), nil); err != nil {
				t.Fatal(err)
			}
			_, _, plain := Check(data, nil)
			_, _, _, shaped := s.Check(data, nil)
			if (plain == nil) != want || (shaped == nil) != want {
				t.Fatalf("%s: Check %v, with a shape %v, want valid %v", data, plain, shaped, want)
			}
		}
	}
	if wrong == 0 || wrong == 6*len(numbers) {
		t.Errorf("%d of %d texts are wrong", wrong, 6*len(numbers))
	}
}

func FuzzCheck(f *testing.F) {
	for _, text := range texts {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		kind, members, err := Check(data, nil)
		if want := json.Valid(data) && utf8.Valid(data); (err == nil) != want {
			t.Fatalf("Check(%q) = %v, want valid %v", data, err, want)
		}
		if err != nil {
			return
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, data); err != nil {
			t.Fatal(err)
		}
		if got := Compact(nil, data); !bytes.Equal(got, compact.Bytes()) {
			t.Fatalf("Compact(%q) = %q, want %q", data, got, compact.Bytes())
		}
		if kind != Object {
			return
		}
		var want map[string]json.RawMessage
		if err := json.Unmarshal(data, &want); err != nil {
			t.Fatal(err)
		}
		for name, value := range want {
			if got := Find(data, members, name); !bytes.Equal(got, bytes.TrimSpace(value)) && utf8.ValidString(name) {
				t.Fatalf("Find(%q, %q) = %q, want %q", data, name, got, value)
			}
		}
	})
}

func FuzzText(f *testing.F) {
	f.Add(`a"b\c` + "\n\x00é😀")
	f.Fuzz(func(t *testing.T, s string) {
		raw := AppendString(nil, s)
		var want string
		if err := json.Unmarshal(raw, &want); err != nil {
			t.Fatalf("AppendString(%q) = %q: %v", s, raw, err)
		}
		if got, _ := Text(raw); got != want {
			t.Fatalf("Text(%q) = %q, want %q", raw, got, want)
		}
	})
}

func FuzzFloat(f *testing.F) {
	for _, v := range []float64{0, 1, -1, 0.1, 1e-6, 1e-7, 1e21, 1e20, 123456789012345680000, math.MaxFloat64, 5e-324, 1 << 53} {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, v float64) {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return
		}
		raw := AppendFloat(nil, v)
		if got := Float(raw); got != v {
			t.Fatalf("Float(%q) = %v, want %v", raw, got, v)
		}
		// encoding/json prints floats as ECMA-262 does, but for -0.
		if want, _ := json.Marshal(v); v != 0 && string(raw) != string(want) {
			t.Fatalf("AppendFloat(%v) = %q, want %q", v, raw, want)
		}
	})
}

// Short decimals are read without strconv, and must come out as it reads them.
func TestFloatOfDecimals(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		text := strconv.FormatInt(rng.Int64N(1<<uint(1+rng.IntN(62))), 10)
		if point := rng.IntN(20); point < len(text) && point > 0 {
			text = text[:point] + "." + text[point:]
		}
		if rng.IntN(3) == 0 {
			text = "0." + text
		}
		if _, _, err := Check([]byte(text), nil); err != nil {
			continue
		}
		for _, text := range []string{text, "-" + text} {
			want, _ := strconv.ParseFloat(text, 64)
			if got := Float([]byte(text)); got != want {
				t.Fatalf("Float(%q) = %v, want %v", text, got, want)
			}
		}
	}
	if got := Float([]byte("-0.0")); got != 0 || !math.Signbit(got) {
		t.Errorf("-0.0 is read as %v", got)
	}
}

func TestElements(t *testing.T) {
	data := []byte(` [ 1 , "a,]" , {"b":[2]} ,[]] `)
	var got []string
	for _, s := range Elements(data, nil) {
		got = append(got, string(data[s.Start:s.End]))
	}
	if diff := cmp.Diff([]string{`1`, `"a,]"`, `{"b":[2]}`, `[]`}, got); diff != "" {
		t.Error(diff)
	}
	if got := Elements([]byte("[]"), nil); len(got) != 0 {
		t.Error(got)
	}
}

var sample = []byte(`{"sensor_id":"sensor-0421","timestamp":1767225600123,"temperature":87.25,"humidity":41.5,"pressure":1013.25,"battery":0.87,"status":"ok","firmware":"2.14.3","site":"plant-7","location":{"lat":52.520008,"lon":13.404954,"floor":3,"room":"b-12"},"samples":[87.1,87.2,87.3,87.4],"note":"calibrated in spring, next due in autumn"}`)

func BenchmarkCheck(b *testing.B) {
	members := make([]Member, 0, 16)
	b.SetBytes(int64(len(sample)))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := Check(sample, members[:0]); err != nil {
			b.Fatal(err)
		}
	}
}
