package pipeline

import "testing"

func TestScalarsMeanWhatYAML12Says(t *testing.T) {
	for text, want := range map[string]jsonKind{
		"": isNull, "~": isNull, "null": isNull, "Null": isNull, "nULL": isText, "true": isBool, "False": isBool, "yes": isText, "on": isText,
		"0": isInteger, "5": isInteger, "-5": isInteger, "+5": isInteger, "12345678901234567890": isInteger, "--5": isText, "-": isText, "+": isText, ".": isText,
		"1.5": isFloat, ".5": isFloat, "5.": isFloat, "-0.0": isFloat, "1e3": isFloat, "1E+3": isFloat, "1.e3": isFloat, "1e": isText, "e3": isText, ".e3": isText, "1e3x": isText, "1.2.3": isText,
		"010": isOdd, "-007": isOdd, "00": isOdd, "01.5": isOdd, "0x1f": isOdd, "0xyz": isText, "0o17": isOdd, "0b11": isOdd, "1_000": isOdd, "_1": isText, "1_": isText,
		".inf": isOdd, "-.Inf": isOdd, ".nan": isOdd, "nan": isText, "Infinity": isText, "2026-01-01": isText, "1:30": isText, "5s": isText, "a": isText, "１": isText,
	} {
		if got := resolve(text); got != want {
			t.Errorf("%q is %d, want %d", text, got, want)
		}
	}
}

func TestNumbersBecomeJSON(t *testing.T) {
	for text, want := range map[string]string{
		"5": "5", "+5": "5", "-5": "-5", ".5": "0.5", "-.5": "-0.5", "5.": "5", "1.e3": "1e3", "1.50": "1.50", "-0.0": "-0.0", "1E+3": "1E+3", "12345678901234567890": "12345678901234567890",
	} {
		if got := number(text); got != want {
			t.Errorf("%q becomes %s, want %s", text, got, want)
		}
	}
}

func TestQuotedForm(t *testing.T) {
	for text, want := range map[string]string{
		`!x`: `'!x'`, `"a" == b`: `'"a" == b'`, `'a' == b`: `"'a' == b"`, `'a' == "b"`: `'''a'' == "b"'`, `'a\d'`: `'''a\d'''`,
	} {
		if got := quoted(text); got != want {
			t.Errorf("%s is quoted as %s, want %s", text, got, want)
		}
	}
}

// TestPlacesInQuotes counts the characters before the one with number n, the quote counted in.
func TestPlacesInQuotes(t *testing.T) {
	for _, c := range []struct {
		raw     string
		n, want int
	}{
		{`"abc"`, 0, 1}, {`"abc"`, 2, 3}, {`'it''s x'`, 3, 5}, {`"a\"b"`, 2, 4}, {`"\x41b"`, 1, 5}, {`"\u00e4b"`, 1, 7}, {`"\U0001F600b"`, 1, 11}, {`"äb"`, 1, 2}, {`"😀b"`, 1, 2},
	} {
		if got := written(c.raw, c.n); got != c.want {
			t.Errorf("character %d of %s stands behind %d, want %d", c.n, c.raw, got, c.want)
		}
	}
}

// A known word that goes on, or that ends before, is as good as one that is spelt nearly so.
func TestNearest(t *testing.T) {
	known := []string{"input_topics", "output_topics", "state", "state_key", "every"}
	for word, want := range map[string]string{"evry": "every", "input": "input_topics", "every_minute": "every", "out": "", "banana": "", "": ""} {
		if got := nearest(word, known); got != want {
			t.Errorf("%q is near %q, want %q", word, got, want)
		}
	}
}
