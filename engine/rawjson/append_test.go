package rawjson

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// What IsShortest says yes to is what AppendFloat writes; and it says yes to what most records have.
func TestIsShortest(t *testing.T) {
	for _, text := range []string{"0", "7", "-7", "1.5", "-0.25", "123456789012345", "0.000001", "20.125", "1234567.89012345"} {
		if !IsShortest([]byte(text)) {
			t.Errorf("%s is as AppendFloat writes it", text)
		}
	}
	numbers := []string{"-0", "0.0", "1.0", "1.50", "0.0000001", "0.0000010", "1e3", "1E3", "1e-7", "1234567890123456", "0.1234567890123456", "12345678901234567890", "-0.000000", "100.00", "0.00001", "0.00000"}
	r := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		text := fmt.Sprint(r.IntN(1000))
		if n := r.IntN(4); n > 0 {
			text = fmt.Sprint(r.Uint64N(1 << (1 + r.IntN(63))))
		}
		if r.IntN(3) > 0 {
			text = fmt.Sprintf("%s.%0*d", text, 1+r.IntN(9), r.IntN(1000))
		}
		if r.IntN(3) == 0 {
			text = "-" + text
		}
		numbers = append(numbers, text)
	}
	for _, text := range numbers {
		if written := string(AppendFloat(nil, Float([]byte(text)))); IsShortest([]byte(text)) && written != text {
			t.Errorf("%s is written as %s", text, written)
		}
	}
}
