package rawjson

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
)

func TestCanonical(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{` { "b" : 1.0 , "a" : [ 1e2 , -0 , 1E-7 ] } `, `{"a":[100,0,1e-7],"b":1}`},
		{`{"a":1,"b":2,"a":{"d":1,"c":[]}}`, `{"a":{"c":[],"d":1},"b":2}`},
		{`{"\u0061":"\u00e9\/"}`, `{"a":"é/"}`},
		{`{"😀":1,"\uffee":2}`, `{"￮":2,"😀":1}`},
		{`9223372036854775808`, `9223372036854775808`},
		{`1e400`, `1e400`},
		{`{}`, `{}`}, {`[]`, `[]`}, {`null`, `null`}, {` true `, `true`}, {`"x"`, `"x"`},
	} {
		if got := string(Canonical(nil, []byte(c.in))); got != c.want {
			t.Errorf("Canonical(%s) = %s, want %s", c.in, got, c.want)
		}
	}
}

func FuzzCanonical(f *testing.F) {
	for _, text := range texts {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, _, err := Check(data, nil); err != nil {
			return
		}
		once := Canonical(nil, data)
		if _, _, err := Check(once, nil); err != nil {
			t.Fatalf("Canonical(%q) = %q: %v", data, once, err)
		}
		if twice := Canonical(nil, once); !bytes.Equal(once, twice) {
			t.Fatalf("Canonical(%q) = %q, and again %q", data, once, twice)
		}
		var before, after any
		if json.Unmarshal(data, &before) == nil {
			if err := json.Unmarshal(once, &after); err != nil || !reflect.DeepEqual(before, after) {
				t.Fatalf("Canonical(%q) = %q changes the value: %v", data, once, err)
			}
		}
	})
}
