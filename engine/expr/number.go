package expr

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
)

// numberFunctions are the functions of numbers.
var numberFunctions = map[string]*function{
	"abs": {min: 1, max: 1, takes: []types{tNumber}, result: tNumber, call: func(env *Env, a []Value, pos int) Value {
		v := a[0]
		switch {
		case v.kind == kBig:
			return env.bigNumber(pos)
		case v.kind == kFloat:
			return floatValue(math.Abs(v.float()))
		case v.int() == math.MinInt64:
			return env.overflow(pos)
		case v.int() < 0:
			return intValue(-v.int())
		}
		return intValue(v.int())
	}},
	"ceil":  {min: 1, max: 1, takes: []types{tNumber}, result: tNumber, call: rounding(math.Ceil)},
	"floor": {min: 1, max: 1, takes: []types{tNumber}, result: tNumber, call: rounding(math.Floor)},
	"round": {min: 1, max: 1, takes: []types{tNumber}, result: tNumber, call: rounding(math.Round)},
	"int": {min: 1, max: 1, takes: []types{tNumber | tText}, result: tNumber, call: func(env *Env, a []Value, pos int) Value {
		v := a[0]
		switch v.kind {
		case kText:
			n, err := strconv.ParseInt(v.str, 10, 64)
			if err != nil {
				return env.fail(pos, CodeValue, "int takes a text that is a whole number within 64 bits; num(x) is nil for others")
			}
			return intValue(n)
		case kFloat:
			f := math.Trunc(v.float())
			if !(f >= -(1<<63) && f < 1<<63) {
				return env.overflow(pos)
			}
			return intValue(int64(f))
		case kBig:
			return env.bigNumber(pos)
		default:
			return intValue(v.int())
		}
	}},
	"float": {min: 1, max: 1, takes: []types{tNumber | tText}, result: tNumber, call: func(env *Env, a []Value, pos int) Value {
		v := a[0]
		if v.kind == kText {
			n, ok := strictNumber(v.str)
			if !ok || n.kind == kBig && !rawjson.IsInteger(rawjson.Bytes(n.str)) {
				return env.fail(pos, CodeValue, "float takes a text that is a number; num(x) is nil for others")
			}
			v = n
		}
		if v.kind == kBig {
			f, _ := strconv.ParseFloat(v.str, 64)
			if math.IsInf(f, 0) {
				return env.bigNumber(pos)
			}
			return floatValue(f)
		}
		return floatValue(v.double())
	}},
	"num": {min: 1, max: 1, takes: []types{tNumber | tText}, result: tNumber | tNil, call: func(_ *Env, a []Value, _ int) Value {
		if a[0].kind != kText {
			return a[0]
		}
		n, ok := strictNumber(a[0].str)
		if !ok {
			return Value{}
		}
		if n.kind != kBig {
			n.str = ""
		}
		return n
	}},
	"max":     {min: 1, max: -1, takes: []types{tNumber | tList | tNil}, result: tNumber | tNil, call: extreme(1)},
	"min":     {min: 1, max: -1, takes: []types{tNumber | tList | tNil}, result: tNumber | tNil, call: extreme(-1)},
	"mean":    {min: 1, max: -1, takes: []types{tNumber | tList}, result: tNumber, call: mean},
	"median":  {min: 1, max: -1, takes: []types{tNumber | tList}, result: tNumber, call: median},
	"bitand":  bits(func(x, y int64) int64 { return x & y }),
	"bitor":   bits(func(x, y int64) int64 { return x | y }),
	"bitxor":  bits(func(x, y int64) int64 { return x ^ y }),
	"bitnand": bits(func(x, y int64) int64 { return x &^ y }),
	"bitshl":  shift64(func(x int64, by uint) int64 { return x << by }),
	"bitshr":  shift64(func(x int64, by uint) int64 { return x >> by }),
	"bitushr": shift64(func(x int64, by uint) int64 { return int64(uint64(x) >> by) }),
	"bitnot": {min: 1, max: 1, takes: []types{tNumber}, result: tNumber, call: func(env *Env, a []Value, pos int) Value {
		n, ok := a[0].whole()
		if !ok {
			return env.fail(pos, CodeOperand, "bitnot takes a whole number within 64 bits")
		}
		return intValue(^n)
	}},
	"duration": {min: 1, max: 1, takes: []types{tText}, result: tNumber, call: func(env *Env, a []Value, pos int) Value {
		ms, ok := durationMS(a[0].str)
		if !ok {
			return env.fail(pos, CodeValue, "duration takes a text such as 250ms, 30s, 5m, 48h or 7d")
		}
		return ms
	}},
}

// rounding leaves whole numbers as they are and rounds doubles.
func rounding(f func(float64) float64) func(*Env, []Value, int) Value {
	return func(_ *Env, a []Value, _ int) Value {
		if a[0].kind == kFloat {
			return floatValue(f(a[0].float()))
		}
		return a[0]
	}
}

// strictNumber reads a text that is a number as JSON writes it, with nothing around it.
func strictNumber(text string) (Value, bool) {
	if text == "" || text[0] != '-' && text[0]-'0' > 9 {
		return Value{}, false
	}
	kind, _, err := rawjson.Check(rawjson.Bytes(text), nil)
	if err != nil || kind != rawjson.Number || skipValue(text, 0) != len(text) {
		return Value{}, false
	}
	return parseNumber(text), true
}

// numbers calls do for each number among the values and, nested, in their lists; nil is left out.
func (env *Env) numbers(name string, values []Value, pos int, do func(Value)) bool {
	for i := range values {
		if !env.number(name, values[i], pos, do) {
			return false
		}
	}
	return true
}

func (env *Env) number(name string, v Value, pos int, do func(Value)) bool {
	if !env.spend(costVisit) {
		return false
	}
	v = env.resolve(v)
	switch {
	case v.kind == kNil:
	case v.isList():
		for it := elementsOf(v); it.next(); {
			if !env.number(name, it.value, pos, do) {
				return false
			}
		}
	case v.types() == tNumber:
		do(v)
	default:
		env.fail(pos, CodeOperand, name+" takes numbers or lists of them, and here is "+v.types().String())
		return false
	}
	return true
}

func extreme(sign int) func(*Env, []Value, int) Value {
	name := map[int]string{1: "max", -1: "min"}[sign]
	return func(env *Env, a []Value, pos int) Value {
		var best Value
		env.numbers(name, a, pos, func(v Value) {
			if best.kind == kNil {
				best = v
				return
			}
			if c, ok := compareNumbers(v, best); ok && c*sign > 0 {
				best = v
			}
		})
		return best
	}
}

func mean(env *Env, a []Value, pos int) Value {
	sum, n := 0.0, 0
	env.numbers("mean", a, pos, func(v Value) {
		if v.kind == kBig {
			env.bigNumber(pos)
			return
		}
		sum += v.double()
		n++
	})
	if n == 0 {
		return floatValue(0)
	}
	return floatValue(sum / float64(n))
}

func median(env *Env, a []Value, pos int) Value {
	var all []float64
	env.numbers("median", a, pos, func(v Value) {
		if v.kind == kBig {
			env.bigNumber(pos)
			return
		}
		all = append(all, v.double())
	})
	slices.Sort(all)
	switch n := len(all); {
	case n == 0:
		return floatValue(0)
	case n%2 == 1:
		return floatValue(all[n/2])
	default:
		return floatValue((all[n/2-1] + all[n/2]) / 2)
	}
}

func bits(f func(x, y int64) int64) *function {
	return &function{min: 2, max: 2, takes: []types{tNumber}, result: tNumber, call: func(env *Env, a []Value, pos int) Value {
		x, ok := a[0].whole()
		y, ok2 := a[1].whole()
		if !ok || !ok2 {
			return env.fail(pos, CodeOperand, "operations on bits take whole numbers within 64 bits")
		}
		return intValue(f(x, y))
	}}
}

func shift64(f func(x int64, by uint) int64) *function {
	return &function{min: 2, max: 2, takes: []types{tNumber}, result: tNumber, call: func(env *Env, a []Value, pos int) Value {
		x, ok := a[0].whole()
		by, ok2 := a[1].whole()
		if !ok || !ok2 || by < 0 {
			return env.fail(pos, CodeOperand, "a shift takes whole numbers within 64 bits, and the second is not negative")
		}
		return intValue(f(x, uint(min(by, 64))))
	}}
}

// durationMS reads 1h30m, 7d and the like as milliseconds.
func durationMS(text string) (Value, bool) {
	units := []struct {
		name string
		ms   float64
	}{{"ms", 1}, {"us", 1e-3}, {"µs", 1e-3}, {"ns", 1e-6}, {"s", 1e3}, {"m", 6e4}, {"h", 36e5}, {"d", 864e5}}
	rest, negative := strings.CutPrefix(text, "-")
	if rest == "" {
		return Value{}, false
	}
	total := 0.0
next:
	for rest != "" {
		end := 0
		for end < len(rest) && (rest[end]-'0' <= 9 || rest[end] == '.') {
			end++
		}
		n, err := strconv.ParseFloat(rest[:end], 64)
		if err != nil {
			return Value{}, false
		}
		rest = rest[end:]
		for _, u := range units {
			if after, ok := strings.CutPrefix(rest, u.name); ok {
				total += n * u.ms
				rest = after
				continue next
			}
		}
		return Value{}, false
	}
	if negative {
		total = -total
	}
	if total == math.Trunc(total) && math.Abs(total) < 1<<53 {
		return intValue(int64(total)), true
	}
	return floatValue(total), true
}
