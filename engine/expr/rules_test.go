package expr

import (
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
)

// record is what the rows below look at.
const record = `{
  "i": 7, "neg": -7, "f": 2.5, "whole": 200.0, "tiny": 1e-06, "t": "text", "e": "", "esc": "a\"\u00e9\/\n", "yes": true, "no": false, "nul": null,
  "max": 9223372036854775807, "min": -9223372036854775808, "big": 9223372036854775808, "big2": 9223372036854775809, "nbig": -9223372036854775809, "huge": 1e400,
  "list": [1, 2.50, "x", null, {"a": 1}, [true]], "nums": [3, 1, 2], "texts": ["b", "a", "c"], "none": [], "empty": {},
  "map": {"a": 1, "b": {"c": [10, 20, {"d": "deep"}]}, "odd name": 5, "": 6}, "twice": 1, "twice": 2,
  "users": [{"n": "ann", "age": 30, "on": true}, {"n": "bob", "age": 25}, {"n": "cid", "age": null, "on": false}]
}`

// row is an expression and what it is: its JSON, or `! code` when it fails, or `? code` when it does not compile.
type row struct{ text, want string }

func checkRows(t *testing.T, env *Env, scope Scope, rows []row) {
	t.Helper()
	for _, r := range rows {
		got := outcome(env, scope, r.text)
		if got != r.want {
			t.Errorf("%s\n got %s\nwant %s", r.text, got, r.want)
		}
	}
}

func outcome(env *Env, scope Scope, text string) string {
	e, err := Compile(text, scope, Any)
	if err != nil {
		return codeOf(err)
	}
	out, err := e.AppendJSON(nil, env)
	if err != nil {
		return codeOf(err)
	}
	if _, _, err := rawjson.Check(out, nil); err != nil {
		return "no JSON: " + string(out)
	}
	// The value that Eval makes must be written as AppendJSON writes it without making it.
	v, err := e.Eval(env)
	if err != nil {
		return "Eval: " + err.Error()
	}
	if again := string(env.appendJSON(nil, v, 0)); again != string(out) {
		return string(out) + " but by Eval " + again
	}
	return string(out)
}

// codeOf is the code of an error, marked with how it came about.
func codeOf(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return "? " + e.Code
	}
	var f *Failure
	if errors.As(err, &f) {
		return "! " + f.Code
	}
	return err.Error()
}

func rulesEnv(t *testing.T) *Env {
	env := recordEnv(t, record)
	env.Headers = func(yield func(string, []byte) bool) {
		_ = yield("trace", []byte("one")) && yield("null", nil) && yield("trace", []byte("two"))
	}
	var err error
	if env.Vars, err = NewDoc([]byte(`{"limit": 85, "name": "n", "deep": {"x": [1]}}`)); err != nil {
		t.Fatal(err)
	}
	return env
}

// Rule 1: what is not there is nil.
func TestMissingIsNil(t *testing.T) {
	checkRows(t, rulesEnv(t), Record, []row{
		{`value.missing`, `null`}, {`value.missing.further`, `null`}, {`value["missing"]`, `null`}, {`value?.missing?.x`, `null`},
		{`value.nul`, `null`}, {`value.nul.x`, `null`}, {`value.nul[0]`, `null`},
		{`value.i.x`, `null`}, {`value.t.x`, `null`}, {`value.t[0]`, `null`}, {`value.yes.x`, `null`}, {`value.i[0]`, `null`}, {`value.f["x"]`, `null`},
		{`value.list[6]`, `null`}, {`value.list[-7]`, `null`}, {`value.list[100]`, `null`}, {`value.list.x`, `null`}, {`value.list["0"]`, `null`}, {`value.list[0.5]`, `null`},
		{`value.list[0]`, `1`}, {`value.list[-1]`, `[true]`}, {`value.list[1]`, `2.50`}, {`value.list[1.0]`, `2.50`}, {`value.list[4].a`, `1`}, {`value.list[value.nul]`, `null`},
		{`value.map[0]`, `null`}, {`value.map["odd name"]`, `5`}, {`value.map[""]`, `6`}, {`value.map.b.c[2].d`, `"deep"`}, {`value.map.b.c[-3]`, `10`}, {`value.map[value.t]`, `null`},
		{`value.twice`, `2`}, {`key.x`, `null`}, {`key`, `"k1"`}, {`headers.trace`, `"two"`}, {`headers.none`, `null`}, {`headers["null"]`, `null`},
		{`headers`, `{"trace":"two","null":null}`}, {`len(headers)`, `2`}, {`topic`, `"levels"`}, {`partition`, `3`}, {`offset`, `42`}, {`timestamp`, `1700000000000`}, {`now - timestamp`, `1000`},
		{`vars.limit`, `85`}, {`vars.limt`, `null`}, {`vars.deep.x[0]`, `1`}, {`vars`, `{"limit": 85, "name": "n", "deep": {"x": [1]}}`},
		{`null`, `null`}, {`nil`, `null`}, {`null == nil`, `true`}, {`value.nul == null`, `true`}, {`value.missing == nil`, `true`}, {`value.i == null`, `false`}, {`value.i != nil`, `true`},
		{`null.x`, `null`}, {`null[0]`, `null`}, {`value.missing ?? "d"`, `"d"`}, {`value.nul ?? value.t`, `"text"`}, {`value.no ?? true`, `false`},
		{`get(value, "i")`, `7`}, {`get(value.list, 1)`, `2.50`}, {`get(value.list, 99)`, `null`}, {`get(value.i, "x")`, `null`},
	})
}

// Rule 2: an ordering that means nothing is false.
func TestOrderingWithNilOrUnlikeTypesIsFalse(t *testing.T) {
	checkRows(t, rulesEnv(t), Record, []row{
		{`value.missing > 0`, `false`}, {`value.missing < 0`, `false`}, {`value.missing >= 0`, `false`}, {`value.missing <= 0`, `false`}, {`0 < value.missing`, `false`},
		{`value.nul >= value.nul`, `false`}, {`nil <= nil`, `false`}, {`nil > 1`, `false`},
		{`value.t > 1`, `false`}, {`value.t <= 1`, `false`}, {`1 < value.t`, `false`}, {`value.i > "a"`, `false`}, {`value.i <= "a"`, `false`}, {`value.yes > 0`, `false`}, {`value.yes >= value.yes`, `false`},
		{`value.list > value.list`, `false`}, {`value.map <= value.map`, `false`}, {`value.i < value.t`, `false`}, {`value.list > 1`, `false`}, {`value.map < 5`, `false`},
		{`value.i > 6`, `true`}, {`value.i > 7`, `false`}, {`value.i >= 7.0`, `true`}, {`value.f < 2.6`, `true`}, {`6 < value.i`, `true`}, {`8 <= value.i`, `false`}, {`value.neg < -6`, `true`},
		{`value.i > value.f`, `true`}, {`1 < value.f < 3`, `true`}, {`value.t > "tex"`, `true`}, {`value.t <= "text"`, `true`}, {`"b" > "a"`, `true`}, {`value.esc > "a"`, `true`},
		{`value.t contains "ex"`, `true`}, {`value.i contains "7"`, `false`}, {`value.missing contains "x"`, `false`}, {`value.t contains value.nul`, `false`}, {`value.t startsWith "te"`, `true`},
		{`value.t endsWith "xt"`, `true`}, {`value.nul startsWith "x"`, `false`}, {`value.t not contains "q"`, `true`}, {`value.missing not contains "q"`, `true`},
		{`value.t matches "^t.*t$"`, `true`}, {`value.i matches "7"`, `false`}, {`value.missing matches ".*"`, `false`}, {`value.t matches value.texts[0]`, `false`}, {`value.t matches value.esc`, `false`},
		{`2 in value.nums`, `true`}, {`9 in value.nums`, `false`}, {`1.0 in value.nums`, `true`}, {`"a" in value.map`, `true`}, {`"q" in value.map`, `false`}, {`value.t in ["text", "x"]`, `true`}, {`value.i in ["text", "x"]`, `false`},
		{`value.missing in ["text"]`, `false`}, {`value.nul in value.list`, `true`}, {`1 in value.missing`, `false`}, {`1 in value.i`, `false`}, {`value.t not in ["q"]`, `true`}, {`value.i in 1..7`, `true`},
		{`1 > "a"`, `? expr.type`}, {`true < false`, `? expr.type`}, {`[1] > 2`, `? expr.type`}, {`1 == "1"`, `? expr.type`}, {`timestamp == "x"`, `? expr.type`}, {`topic > 1`, `? expr.type`},
		{`"a" in "abc"`, `? expr.type`}, {`[1] contains 1`, `? expr.type`}, {`1 matches "x"`, `? expr.type`},
	})
}

func TestEquality(t *testing.T) {
	checkRows(t, rulesEnv(t), Record, []row{
		{`value.i == 7`, `true`}, {`value.i == 7.0`, `true`}, {`value.whole == 200`, `true`}, {`value.i == "7"`, `false`}, {`value.i != "7"`, `true`}, {`value.t == "text"`, `true`}, {`"text" == value.t`, `true`}, {`value.t != "texts"`, `true`},
		{`value.esc == "a\"é/\n"`, `true`}, {`value.esc == "a"`, `false`}, {`value.e == ""`, `true`}, {`value.yes == true`, `true`}, {`value.yes == 1`, `false`},
		{`value.nums == [3, 1, 2]`, `true`}, {`value.nums == [3, 1]`, `false`}, {`value.nums == [3, 1, 2.0]`, `true`}, {`value.map.b == {c: [10, 20, {d: "deep"}]}`, `true`}, {`value.empty == {}`, `true`}, {`value.none == value.empty`, `false`},
		{`{a: 1, b: 2} == {b: 2, a: 1}`, `true`}, {`{a: 1} == {b: 1}`, `false`}, {`value == value`, `true`}, {`equal(value.nums, [3, 1, 2])`, `true`},
		{`value.max == 9223372036854775807`, `true`}, {`value.max == 9223372036854775806`, `false`}, {`value.max == 9223372036854775808.0`, `false`}, {`value.big == 9223372036854775808.0`, `true`}, {`value.big == value.big2`, `false`},
		{`value.big > value.max`, `true`}, {`value.big2 > value.big`, `true`}, {`value.nbig < value.min`, `true`}, {`value.big > 5`, `true`}, {`value.huge > value.big`, `true`}, {`value.big > 1e300`, `false`},
		{`value.nbig > value.big`, `false`}, {`value.nbig > -9223372036854775808.0`, `false`}, {`value.nbig == value.nbig`, `true`}, {`json.parse("123456789012345678901234567890") > value.big`, `true`}, {`json.parse("-123456789012345678901234567890") < value.nbig`, `true`}, {`json.parse("-9223372036854775810") < value.nbig`, `true`}, {`json.parse("123456789012345678901234567890") > 1e29`, `true`}, {`json.parse("123456789012345678901234567890") > 1e30`, `false`}, {`json.parse("100000000000000000000000000001") > 1e29`, `true`}, {`value.huge == value.huge`, `true`}, {`value.huge > 1 / 0`, `false`}, {`value.big < 1 / 0`, `true`}, {`-1 / 0 < value.nbig`, `true`}, {`value.big > value.i / 0 - value.i / 0`, `false`}, {`value.huge < value.big`, `false`},
	})
}

// Rule 3: conditions.
func TestNilConditionIsFalse(t *testing.T) {
	checkRows(t, rulesEnv(t), Record, []row{
		{`value.missing && true`, `false`}, {`true && value.nul`, `false`}, {`value.missing || value.yes`, `true`}, {`value.nul || value.nul`, `false`}, {`!value.missing`, `true`}, {`not value.yes`, `false`},
		{`value.missing ? 1 : 2`, `2`}, {`value.yes ? 1 : 2`, `1`}, {`if value.nul { 1 } else { 2 }`, `2`}, {`if value.no { 1 } else if value.yes { 3 } else { 2 }`, `3`}, {`nil ? 1 : 2`, `2`},
		{`value.i ? 1 : 2`, `! expr.condition`}, {`value.t && true`, `! expr.condition`}, {`true && value.t`, `! expr.condition`}, {`false && value.t`, `false`}, {`true || value.t`, `true`}, {`!value.i`, `! expr.condition`},
		{`filter(value.nums, #)`, `! expr.condition`}, {`any(value.list, #.a)`, `! expr.condition`}, {`filter(value.users, .on)`, `[{"n": "ann", "age": 30, "on": true}]`},
		{`1 && true`, `? expr.type`}, {`"x" ? 1 : 2`, `? expr.type`}, {`!1`, `? expr.type`}, {`timestamp || true`, `? expr.type`}, {`filter(value.nums, 1)`, `? expr.type`},
	})
	env := rulesEnv(t)
	for _, r := range []row{
		{`value.missing`, "false"}, {`value.yes`, "true"}, {`value.no`, "false"}, {`value.nul`, "false"}, {`value.i > 5`, "true"}, {`nil ?? value.yes`, "true"},
		{`value.i`, "! expr.condition"}, {`value.t`, "! expr.condition"}, {`value.list`, "! expr.condition"}, {`value`, "! expr.condition"}, {`value.missing > 1 ? value.yes : value.f`, "! expr.condition"},
		{`value.i + 1`, "? expr.type"}, {`"x"`, "? expr.type"}, {`1`, "? expr.type"}, {`topic`, "? expr.type"}, {`len(value)`, "? expr.type"}, {`nil`, "? expr.type"}, {`upper(value.t)`, "? expr.type"}, {`[true]`, "? expr.type"},
	} {
		var got string
		if e, err := Compile(r.text, Record, Condition); err != nil {
			got = codeOf(err)
		} else if ok, err := e.Bool(env); err != nil {
			got = codeOf(err)
		} else {
			got = fmt.Sprint(ok)
		}
		if got != r.want {
			t.Errorf("%s as a condition: got %s, want %s", r.text, got, r.want)
		}
	}
}

// Rule 4: arithmetic with nil and functions over nil.
func TestArithmeticAndFunctionsOverNil(t *testing.T) {
	rows := []row{
		{`value.missing + 1`, `null`}, {`1 - value.nul`, `null`}, {`value.nul * 2`, `null`}, {`value.nul / 0`, `null`}, {`0 % value.nul`, `null`}, {`value.nul ** 2`, `null`}, {`-value.nul`, `null`}, {`+value.nul`, `null`}, {`"a" + value.nul`, `null`}, {`value.nul + "a"`, `null`}, {`nil + nil`, `null`}, {`value.list + nil`, `null`},
		{`len(nil)`, `0`}, {`len(value.missing)`, `0`}, {`count(value.missing, # > 1)`, `0`}, {`count(nil)`, `0`}, {`type(nil)`, `"nil"`}, {`type(value.missing)`, `"nil"`},
		{`value.missing[1:2]`, `null`}, {`value.t[value.nul:]`, `null`}, {`nil..3`, `[]`}, {`1..value.missing`, `[]`},
	}
	for _, f := range []string{"upper(%)", "lower(%)", "trim(%)", `trimPrefix(%, "a")`, `replace(%, "a", "b")`, `repeat(%, 2)`, `join(%)`, `indexOf(%, "a")`, `hasPrefix(%, "a")`, "abs(%)", "ceil(%)", "floor(%)", "round(%)", "int(%)", "float(%)", "num(%)", "string(%)", `max(%)`, `min(%)`, `mean(%)`, `median(%)`, `sum(%)`, `sum(%, #)`, `first(%)`, `last(%)`, `find(%, true)`, `findIndex(%, true)`, `findLast(%, true)`, `all(%, true)`, `none(%, true)`, `any(%, true)`, `one(%, true)`, `reduce(%, #acc)`, `groupBy(%, #)`, `fromPairs(%)`, `fromJSON(%)`, `toBase64(%)`, `fromBase64(%)`, `get(%, "x")`, `get(value, %)`, `bitand(%, 1)`, `hash("md5", %)`, `murmur2(%)`, `hex.encode(%)`, `base64.decode(%) == nil ? nil : 1`, `time.iso(%)`, `format("%d", %)`, `duration(%)`, `upper(upper(%))`} {
		for _, v := range []string{"nil", "value.missing"} {
			text := strings.Replace(strings.ReplaceAll(f, `"%d"`, `"%%d"`), "%%d", "\x00", 1)
			text = strings.Replace(strings.ReplaceAll(text, "%", v), "\x00", "%d", 1)
			rows = append(rows, row{text, `null`})
		}
	}
	for _, f := range []string{`filter(%, true)`, `map(%, #)`, `sort(%)`, `sortBy(%, #)`, `reverse(%)`, `uniq(%)`, `flatten(%)`, `concat(%)`, `take(%, 2)`, `keys(%)`, `values(%)`, `toPairs(%)`, `split(%, ",")`, `splitAfter(%, ",")`} {
		for _, v := range []string{"nil", "value.missing"} {
			rows = append(rows, row{strings.ReplaceAll(f, "%", v), `[]`})
		}
	}
	rows = append(rows, row{`toJSON(nil)`, `"null"`}, row{`concat(value.nums, nil)`, `[3,1,2]`}, row{`sum([1, nil, 2])`, `3`}, row{`max([nil, 3, nil])`, `3`}, row{`mean([2, nil, 4])`, `3`}, row{`join(["a", nil, "b"], "-")`, `"a-b"`}, row{`equal(nil, value.missing)`, `true`})
	checkRows(t, rulesEnv(t), Record, rows)
}

// Rule 5: numbers.
func TestNumbers(t *testing.T) {
	checkRows(t, rulesEnv(t), Record, []row{
		{`value.i + 1`, `8`}, {`value.i + value.f`, `9.5`}, {`value.i - 10`, `-3`}, {`value.i * 2`, `14`}, {`value.i / 2`, `3.5`}, {`value.i / 7`, `1`}, {`value.i % 4`, `3`}, {`value.neg % 4`, `-3`}, {`value.whole % 7`, `4`}, {`2 ** 10`, `1024`}, {`2 ^ 0.5 > 1.41`, `true`}, {`-value.i`, `-7`}, {`-value.f`, `-2.5`}, {`+value.i`, `7`}, {`1 + 2 * 3`, `7`}, {`(1 + 2) * 3`, `9`},
		{`value.t + "!"`, `"text!"`}, {`value.esc + ""`, `"a\"é/\n"`}, {`value.t + 1`, `! expr.operand`}, {`value.i + "1"`, `! expr.operand`}, {`value.list + value.list`, `! expr.operand`}, {`value.yes + 1`, `! expr.operand`}, {`value.t * 2`, `! expr.operand`}, {`-value.t`, `! expr.operand`},
		{`value.f % 2`, `! expr.operand`}, {`value.i % 0`, `! expr.value`}, {`value.i / 0`, `! expr.not_finite`}, {`value.i / 0 > 5`, `true`}, {`value.i * 0 / 0 > 5`, `false`},
		{`value.max`, `9223372036854775807`}, {`value.max + 0`, `9223372036854775807`}, {`value.max + 1`, `! expr.big_number`}, {`value.min - 1`, `! expr.big_number`}, {`value.max * 2`, `! expr.big_number`}, {`value.min * -1`, `! expr.big_number`}, {`-value.min`, `! expr.big_number`}, {`abs(value.min)`, `! expr.big_number`}, {`value.min % -1`, `0`}, {`value.max - value.max`, `0`}, {`value.max + value.min`, `-1`}, {`0 - value.min`, `! expr.big_number`}, {`value.min + value.min`, `! expr.big_number`},
		{`value.big`, `9223372036854775808`}, {`[value.big]`, `[9223372036854775808]`}, {`value.big + 1`, `! expr.big_number`}, {`1 - value.big`, `! expr.big_number`}, {`-value.big`, `! expr.big_number`}, {`value.big * value.f`, `! expr.big_number`}, {`value.huge`, `1e400`}, {`value.huge / 2`, `! expr.big_number`}, {`sum([value.big])`, `! expr.big_number`}, {`max(value.big, 1)`, `9223372036854775808`}, {`round(value.big)`, `9223372036854775808`}, {`string(value.big)`, `"9223372036854775808"`}, {`float(value.big)`, `9223372036854776000`}, {`int(value.big)`, `! expr.big_number`}, {`sum([value.max, 1])`, `! expr.big_number`},
		{`1 + "a"`, `? expr.type`}, {`"a" - "b"`, `? expr.type`}, {`[1] + [2]`, `? expr.type`}, {`-"a"`, `? expr.type`}, {`9223372036854775807 + 1`, `? expr.constant`}, {`9223372036854775808`, `? expr.syntax`}, {`1 % 0`, `? expr.constant`}, {`-9223372036854775807 - 1`, `-9223372036854775808`},
		{`0x10`, `16`}, {`1_000`, `1000`}, {`1e3`, `1000`}, {`.5`, `0.5`}, {`1.0`, `1`}, {`0.1 + 0.2`, `0.30000000000000004`}, {`1e21 * 1`, `1e+21`}, {`value.tiny * 1`, `0.000001`}, {`value.tiny / 10`, `1e-7`},
	})
}

// Rule 6: what is passed on keeps its bytes (W5).
func TestW5UntouchedKeepsItsBytes(t *testing.T) {
	checkRows(t, rulesEnv(t), Record, []row{
		{`value.tiny`, `1e-06`}, {`value.whole`, `200.0`}, {`value.esc`, `"a\"\u00e9\/\n"`}, {`value.list`, `[1, 2.50, "x", null, {"a": 1}, [true]]`}, {`[value.whole, value.tiny]`, `[200.0,1e-06]`}, {`{a: value.whole}`, `{"a":200.0}`}, {`value.list[1]`, `2.50`},
		{`value.missing ?? value.whole`, `200.0`}, {`value.yes ? value.whole : 1`, `200.0`}, {`let x = value.whole; [x, x]`, `[200.0,200.0]`}, {`max(value.whole, 1)`, `200.0`}, {`map(value.list, #)`, `[1,2.50,"x",null,{"a": 1},[true]]`}, {`first(value.list[1:])`, `2.50`}, {`value.map.b`, `{"c": [10, 20, {"d": "deep"}]}`},
		{`value.whole + 0`, `200`}, {`value`, record},
	})
}

func TestFormsOfTheLanguage(t *testing.T) {
	checkRows(t, rulesEnv(t), Record, []row{
		{`"é😀"`, `"é😀"`}, {`'single'`, `"single"`}, {"`raw\\n`", `"raw\\n"`}, {`[]`, `[]`}, {`{}`, `{}`}, {`{a: 1, "b c": [2], d: {e: nil}}`, `{"a":1,"b c":[2],"d":{"e":null}}`}, {`{a: 1}.a`, `1`}, {`[1, 2][1]`, `2`}, {`{"x": value.i}["x"]`, `7`}, {`1 /* two */ + 3 // four`, `4`},
		{`let a = value.i; let b = a + 1; a * b`, `56`}, {`let s = value.t; s | upper() | split("X")`, `["TE","T"]`}, {`value.t | upper()`, `"TEXT"`}, {`1..3`, `[1,2,3]`}, {`3..1`, `[]`}, {`1..3 == [1, 2, 3]`, `true`}, {`value.nums[1:]`, `[1,2]`}, {`value.nums[:-1]`, `[3,1]`}, {`value.nums[5:9]`, `[]`}, {`value.nums[2:1]`, `[]`}, {`"héllo"[1:3]`, `"él"`}, {`value.t[-2:]`, `"xt"`}, {`value.i[1:2]`, `null`},
		{`all(value.nums, # > 0)`, `true`}, {`all(value.none, false)`, `true`}, {`any(value.nums, # == 2)`, `true`}, {`one(value.nums, # > 2)`, `true`}, {`one(value.nums, # > 1)`, `false`}, {`none(value.nums, # > 5)`, `true`}, {`filter(value.nums, # > 1)`, `[3,2]`}, {`map(value.nums, # * 2)`, `[6,2,4]`}, {`map(value.nums, #index)`, `[0,1,2]`}, {`map(value.users, .n)`, `["ann","bob","cid"]`}, {`map(value.users, {len(.n)})`, `[3,3,3]`},
		{`count(value.nums, # > 1)`, `2`}, {`count([true, nil, false])`, `1`}, {`sum(value.nums)`, `6`}, {`sum(value.users, .age)`, `55`}, {`sum([1, 0.5])`, `1.5`}, {`sum(value.texts)`, `! expr.operand`}, {`find(value.users, .age == 25).n`, `"bob"`}, {`find(value.users, .age == 99)`, `null`}, {`findIndex(value.users, .n == "cid")`, `2`}, {`findLast(value.nums, # > 1)`, `2`}, {`findLastIndex(value.nums, # > 1)`, `2`}, {`findIndex(value.nums, # > 9)`, `null`},
		{`groupBy(value.users, .on)`, `{"true":[{"n": "ann", "age": 30, "on": true}],"false":[{"n": "cid", "age": null, "on": false}]}`}, {`sortBy(value.users, .age) | map(.n)`, `["bob","ann","cid"]`}, {`sortBy(value.users, .age, "desc") | map(.n)`, `["ann","bob","cid"]`}, {`sort(value.nums)`, `[1,2,3]`}, {`sort(value.nums, "desc")`, `[3,2,1]`}, {`sort(value.texts)`, `["a","b","c"]`}, {`sort(value.list)`, `[1,2.50,"x",{"a": 1},[true],null]`}, {`reduce(value.nums, #acc + #)`, `6`}, {`reduce(value.nums, #acc + #, 10)`, `16`}, {`reduce(value.none, #acc + #)`, `null`},
		{`map(value.nums, {let n = #; map(1..2, # * n)})`, `[[3,6],[1,2],[2,4]]`}, {`filter(value.users, any(value.nums, # == 3))  | len()`, `3`}, {`map([1, 2], map([10], # + #index))`, `[[10],[10]]`},
		{`first(value.nums)`, `3`}, {`last(value.nums)`, `2`}, {`first(value.none)`, `null`}, {`take(value.nums, 2)`, `[3,1]`}, {`take(value.nums, 9)`, `[3,1,2]`}, {`reverse(value.nums)`, `[2,1,3]`}, {`uniq([1, 1.0, "1", 1, nil, nil])`, `[1,"1",null]`}, {`concat(value.nums, [4])`, `[3,1,2,4]`}, {`flatten([1, [2, [3, value.nums]]])`, `[1,2,3,3,1,2]`}, {`keys(value.map)`, `["a","b","odd name",""]`}, {`values({a: 1, b: "x"})`, `[1,"x"]`}, {`toPairs({a: 1})`, `[["a",1]]`}, {`fromPairs([["a", 1], ["b", 2], ["a", 3]])`, `{"a":3,"b":2}`}, {`len(value.list)`, `6`}, {`len("é😀")`, `2`}, {`len(value.map)`, `4`}, {`len(value)`, `25`}, {`len(value.i)`, `! expr.operand`}, {`len(5)`, `? expr.type`},
		{`filter(value.i, true)`, `! expr.operand`}, {`map({a: 1}, #)`, `? expr.type`}, {`map(1, #)`, `? expr.type`},
		{`type(value.i)`, `"int"`}, {`type(value.f)`, `"float"`}, {`type(value.t)`, `"string"`}, {`type(value.list)`, `"array"`}, {`type(value.map)`, `"map"`}, {`type(value.yes)`, `"bool"`}, {`type(value.big)`, `"int"`}, {`type(value.huge)`, `"float"`}, {`type(b"x")`, `"bytes"`},
	})
}

func TestFunctions(t *testing.T) {
	checkRows(t, rulesEnv(t), Record, []row{
		{`trim("  a ")`, `"a"`}, {`trim("__a_", "_")`, `"a"`}, {`trimPrefix("abc", "a")`, `"bc"`}, {`trimSuffix("abc", "c")`, `"ab"`}, {`upper(value.t)`, `"TEXT"`}, {`lower("ÄB")`, `"äb"`}, {`upper(value.i)`, `! expr.operand`}, {`upper(5)`, `? expr.type`}, {`upper()`, `? expr.arguments`}, {`upper("a", "b")`, `? expr.arguments`},
		{`split("a,b,c", ",")`, `["a","b","c"]`}, {`split("a,b,c", ",", 2)`, `["a","b,c"]`}, {`splitAfter("a,b", ",")`, `["a,","b"]`}, {`split("éa", "")`, `["é","a"]`}, {`replace("aXbX", "X", "y")`, `"ayby"`}, {`replace("aXbX", "X", "y", 1)`, `"aybX"`}, {`repeat("ab", 3)`, `"ababab"`}, {`repeat("a", -1)`, `? expr.constant`}, {`join(["a", "b"], ", ")`, `"a, b"`}, {`join([1])`, `? expr.constant`}, {`indexOf("éab", "b")`, `2`}, {`indexOf("a", "z")`, `-1`}, {`lastIndexOf("aéa", "a")`, `2`}, {`hasPrefix(value.t, "te")`, `true`}, {`hasSuffix(value.t, "te")`, `false`},
		{`abs(-5)`, `5`}, {`abs(-2.5)`, `2.5`}, {`ceil(1.5)`, `2`}, {`floor(-1.5)`, `-2`}, {`round(2.5)`, `3`}, {`round(value.i)`, `7`}, {`int("42")`, `42`}, {`int(3.9)`, `3`}, {`int("x")`, `? expr.constant`}, {`int(value.t)`, `! expr.value`}, {`float("1.5")`, `1.5`}, {`float(value.t)`, `! expr.value`}, {`string(7)`, `"7"`}, {`string(value.whole)`, `"200"`}, {`string(true)`, `"true"`}, {`string(value.nums)`, `"[3, 1, 2]"`}, {`string([1, "a"])`, `"[1,\"a\"]"`}, {`string("x")`, `"x"`},
		{`num("42")`, `42`}, {`num("4.50")`, `4.5`}, {`num("-1e3")`, `-1000`}, {`num(" 42")`, `null`}, {`num("42 ")`, `null`}, {`num("0x10")`, `null`}, {`num("1_0")`, `null`}, {`num("")`, `null`}, {`num("NaN")`, `null`}, {`num("Infinity")`, `null`}, {`num("007")`, `null`}, {`num("+1")`, `null`}, {`num(value.t)`, `null`}, {`num(value.i)`, `7`}, {`num("9223372036854775808")`, `9223372036854775808`},
		{`max(1, 2.5, 2)`, `2.5`}, {`min([3, 1], 2)`, `1`}, {`max([])`, `null`}, {`max("a")`, `? expr.type`}, {`mean(value.nums)`, `2`}, {`mean([])`, `0`}, {`median([1, 2, 3, 10])`, `2.5`}, {`median(3, 1, 2)`, `2`},
		{`bitand(6, 3)`, `2`}, {`bitor(6, 3)`, `7`}, {`bitxor(6, 3)`, `5`}, {`bitnand(6, 3)`, `4`}, {`bitnot(0)`, `-1`}, {`bitshl(1, 4)`, `16`}, {`bitshr(-16, 2)`, `-4`}, {`bitushr(-1, 63)`, `1`}, {`bitshl(1, -1)`, `? expr.constant`}, {`bitand(1.5, 1)`, `? expr.constant`},
		{`format("%.2f", value.f)`, `"2.50"`}, {`format("%.1f", value.i)`, `"7.0"`}, {`format("%5d|%-5d|%05d", 42, 42, 42)`, `"   42|42   |00042"`}, {`format("%d", value.whole)`, `"200"`}, {`format("%d", value.f)`, `! expr.operand`}, {`format("%d", value.t)`, `! expr.operand`}, {`format("%s and %v", value.t, value.nums)`, `"text and [3, 1, 2]"`}, {`format("%v", value.whole)`, `"200"`}, {`format("100%%")`, `"100%"`}, {`format("%x", 255)`, `"ff"`}, {`format("%x", "é")`, `"c3a9"`}, {`format("%q", "a")`, `"\"a\""`}, {`format("%t", value.yes)`, `"true"`}, {`format("%d")`, `? expr.arguments`}, {`format("%d", "x")`, `? expr.arguments`}, {`format("%y", 1)`, `? expr.arguments`}, {`format("%99999d", 1)`, `? expr.arguments`}, {`format("%d", value.missing)`, `null`}, {`format("%*d", 1, 2)`, `? expr.arguments`}, {`format("%", 1)`, `? expr.arguments`}, {`format(value.t)`, `"text"`}, {`format("%e", 1500)`, `"1.500000e+03"`},
		{`hash("md5", "a")`, `"0cc175b9c0f1b6a831c399e269772661"`}, {`hash("sha256", "")`, `"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"`}, {`hash("crc", "")`, `? expr.arguments`}, {`hash(value.t, "x")`, `! expr.value`}, {`hmac("sha1", "key", "The quick brown fox jumps over the lazy dog")`, `"de7c9b85b8b78aa6bc8a7a36f70a90701c9db4d9"`}, {`hex.encode(hash("md5", "a", "bytes"))`, `"0cc175b9c0f1b6a831c399e269772661"`}, {`hash("md5", "a", "bytes")`, `! expr.bytes`},
		{`hex.encode("é")`, `"c3a9"`}, {`string(hex.decode("c3a9"))`, `"é"`}, {`hex.decode("c")`, `? expr.constant`}, {`string(hex.decode("ff"))`, `? expr.constant`}, {`base64.encode("héy")`, `"aMOpeQ=="`}, {`string(base64.decode("aMOpeQ=="))`, `"héy"`}, {`base64.decode(value.t + "!")`, `! expr.value`}, {`toBase64("a")`, `"YQ=="`}, {`fromBase64("YQ==")`, `"a"`}, {`hex.encode(b"\xff\x00")`, `"ff00"`}, {`len(b"\xff")`, `1`}, {`b"a"`, `! expr.bytes`},
		{`toJSON({a: [1, "x"]})`, `"{\"a\":[1,\"x\"]}"`}, {`fromJSON("{\"a\": [1.0]}").a`, `[1.0]`}, {`json.parse(value.t)`, `! expr.value`}, {`json.stringify(value.whole)`, `"200.0"`}, {`json.parse(json.stringify(value.map)) == value.map`, `true`},
		{`time.iso(0)`, `"1970-01-01T00:00:00.000Z"`}, {`time.iso(1767225600123)`, `"2026-01-01T00:00:00.123Z"`}, {`time.iso(1767225600123, {digits: 0})`, `"2026-01-01T00:00:00Z"`}, {`time.iso(1767225600123.5, {digits: 6})`, `"2026-01-01T00:00:00.123500Z"`}, {`time.iso(-1)`, `"1969-12-31T23:59:59.999Z"`}, {`time.iso(253402300800000)`, `"+010000-01-01T00:00:00.000Z"`}, {`time.iso(-62198755200000)`, `"-000001-01-01T00:00:00.000Z"`}, {`time.iso(1e18)`, `? expr.constant`}, {`time.iso(0, {digits: 10})`, `? expr.constant`},
		{`duration("5m")`, `300000`}, {`duration("1h30m")`, `5400000`}, {`duration("7d")`, `604800000`}, {`duration("250ms")`, `250`}, {`duration("1us")`, `0.001`}, {`duration("-1s")`, `-1000`}, {`duration("5")`, `? expr.constant`}, {`duration("")`, `? expr.constant`}, {`duration(value.t)`, `! expr.value`}, {`timestamp > now - duration("1h")`, `true`},
	})
}

// murmur2 and the tokens of semantics.md.
func TestMurmur2(t *testing.T) {
	if got := murmur2("21"); got != -973932308 {
		t.Errorf("murmur2(21) = %d", got)
	}
	for key, token := range map[string]int32{"london": 4, "english": 6, "translation": 0, "batch-42": 0, "batch-43": 7, "germany-free": 7, "fernverkehr": 3, "": 1, "a": 4, "ab": 2, "abc": 3, "abcd": 4} {
		if got := murmur2(key) & 0x7fffffff % 8; got != token {
			t.Errorf("token of %q = %d, want %d", key, got, token)
		}
	}
	checkRows(t, rulesEnv(t), Record, []row{{`murmur2("21")`, `-973932308`}, {`murmur2(value.e)`, `275646681`}})
}

func TestErrors(t *testing.T) {
	scope := Record.WithVars(map[string]VarKind{"limit": VarValue, "zone": VarText})
	for _, c := range []struct {
		text         string
		scope        Scope
		want         Want
		line, column int
		code         string
		message      string
		hint         string
	}{
		{`valu.amount > 0`, Record, Any, 1, 1, CodeUnknownName, `unknown name "valu"`, `did you mean "value"?`},
		{`CRITICAL`, Record, Any, 1, 1, CodeUnknownName, `unknown name "CRITICAL"`, `a literal text is quoted inside the expression: '"CRITICAL"'; in scope: key, value, headers, timestamp, topic, partition, offset, vars and now`},
		{"value.a > 1 &&\n  stat.b", Record, Any, 2, 3, CodeUnknownName, `unknown name "stat"`, ""},
		{`state.count`, Record, Any, 1, 1, CodeUnknownName, `unknown name "state"`, "state belongs to the expressions of an extractor; in a transformer it is there in scripts"},
		{`value.x`, Config, Any, 1, 1, CodeUnknownName, `unknown name "value"`, "there is no record here; in scope: config, state, vars and now"},
		{`msg.value.x`, Record, Any, 1, 1, CodeUnknownName, `unknown name "msg"`, "expressions name the parts of the record: key, value, headers, timestamp, topic, partition, offset"},
		{`1 + é`, Record, Any, 1, 5, CodeUnknownName, `unknown name "é"`, ""},
		{`"é" + (x)`, Record, Any, 1, 8, CodeUnknownName, `unknown name "x"`, ""},
		{`value.a >`, Record, Any, 1, 9, CodeSyntax, "the expression ends too early", ""},
		{`value.a )`, Record, Any, 1, 9, CodeSyntax, `unexpected ")"`, ""},
		{`value.a = 1`, Record, Any, 1, 9, CodeSyntax, `unexpected "="`, "equality is =="},
		{``, Record, Any, 1, 1, CodeSyntax, "an expression is missing", ""},
		{` // x`, Record, Any, 1, 5, CodeSyntax, "the expression ends too early", ""},
		{`"abc`, Record, Any, 1, 5, CodeSyntax, "literal not terminated", ""},
		{`value.a > ${LIMIT}`, Record, Any, 1, 11, CodeEnvironment, "${…} is not replaced in expressions", "put it into vars and read it as vars.name"},
		{`value.amount + 1`, Record, Condition, 1, 1, CodeType, "a condition is wanted here: true or false, and this is a number", "compare it with something, as in value.count > 0"},
		{`value.a && len(value.b)`, Record, Any, 1, 12, CodeType, "a condition is wanted here, and this is a number", ""},
		{`uper(value.a)`, Record, Any, 1, 1, CodeUnknownFunc, `unknown function "uper"`, `did you mean "upper"?`},
		{`value.a.toUpperCase()`, Record, Any, 1, 9, CodeUnknownFunc, "values have no methods such as .toUpperCase( )", "write upper(x)"},
		{`now() - 5`, Record, Any, 1, 1, CodeNotSupported, "now is not supported yet in expressions", "now is a number of milliseconds and is written without ( )"},
		{`time.parse(value.t)`, Record, Any, 1, 1, CodeNotSupported, "time.parse is not supported yet in expressions", "a script can do it"},
		{`upper`, Record, Any, 1, 1, CodeUnknownName, "upper is a function and is called with ( )", ""},
		{`upper(1)`, Record, Any, 1, 7, CodeType, "upper takes a text here, and this is a number", ""},
		{`replace(value.a, "b")`, Record, Any, 1, 1, CodeArguments, "replace takes 3 to 4 arguments, and here are 2", ""},
		{`value.t matches "("`, Record, Any, 1, 17, CodeRegexp, "missing closing ): `(`", ""},
		{`vars.limt`, scope, Any, 1, 6, CodeUnknownName, `vars has no "limt"`, `did you mean "limit"?`},
		{`$env`, Record, Any, 1, 1, CodeNotSupported, "$env is not supported", ""},
		{`1; 2`, Record, Any, 1, 4, CodeSyntax, "an expression has one value; ; belongs to let alone", ""},
		{`let value = 1; value`, Record, Any, 1, 5, CodeUnknownName, `let cannot rename "value"`, ""},
		{`{a: 1, a: 2}`, Record, Any, 1, 8, CodeSyntax, `"a" stands twice in the map`, ""},
		{`filter(value.a, #acc > 1)`, Record, Any, 1, 17, CodeUnknownName, "#acc belongs to reduce, and this is the predicate of filter", ""},
		{`reduce(value.a, #acc + sum(#, #acc))`, Record, Any, 1, 31, CodeUnknownName, "#acc belongs to reduce, and this is the predicate of sum", ""},
		{`map(value.a, #idx)`, Record, Any, 1, 14, CodeUnknownName, "unknown pointer #idx", "there are #, #index and, in reduce, #acc"},
		{`9223372036854775808`, Record, Any, 1, 19, CodeSyntax, "a whole number beyond 64 bits", ""},
		{`value.a ?? 0 > 5`, Record, Any, 1, 14, CodeSyntax, "operator (>) and coalesce expressions (??) cannot be mixed. Wrap either by parentheses.", ""},
		{`sort(value.a, "up")`, Record, Any, 1, 15, CodeArguments, "the order is asc or desc", ""},
		{`True`, Record, Any, 1, 1, CodeUnknownName, `unknown name "True"`, "write true"},
		{`hex.x`, Record, Any, 1, 1, CodeUnknownName, "hex.x is no value", ""},
		{`value.a & value.b`, Record, Any, 1, 9, CodeSyntax, `unexpected "&"`, "write && or and"},
		{`value.x(1)`, Record, Any, 1, 7, CodeUnknownFunc, "values have no methods such as .x( )", ""},
		{`value.x === 1`, Record, Any, 1, 11, CodeSyntax, "", ""},
		{`"a" > timestamp`, Record, Any, 1, 5, CodeType, "> orders numbers or texts, and here are a text and a number", ""},
		{strings.Repeat("1+", 40000) + "1", Record, Any, 1, 1, CodeTooLarge, "", ""},
	} {
		_, err := Compile(c.text, c.scope, c.want)
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("Compile(%.60s) = %v, want an *Error", c.text, err)
			continue
		}
		if e.Line != c.line || e.Column != c.column || e.Code != c.code || c.message != "" && e.Message != c.message || c.hint != "" && e.Hint != c.hint {
			t.Errorf("Compile(%.60s)\n got %d:%d %s %s | %s\nwant %d:%d %s %s | %s", c.text, e.Line, e.Column, e.Code, e.Message, e.Hint, c.line, c.column, c.code, c.message, c.hint)
		}
	}
}

// V2: a failure names the expression and the place in it, and never the data.
func TestV2FailureNamesTheExpressionNeverTheData(t *testing.T) {
	env := recordEnv(t, `{"secret": "hunter2", "n": 5, "l": ["hunter2"], "m": {"hunter2": 1}}`)
	for _, c := range []struct{ text, message string }{
		{`value.n * value.secret`, `expression "value.n * value.secret": * cannot take a number and a text`},
		{`int(value.secret)`, `expression "int(value.secret)": int takes a text that is a whole number within 64 bits; num(x) is nil for others`},
		{`value.secret ? 1 : 2`, `expression "value.secret ? 1 : 2": a condition must be true, false or nil, and this is a text`},
		{`"a" matches value.secret + "("`, `expression "\"a\" matches value.secret + \"(\"": the pattern of matches is no regular expression (RE2)`},
		{`json.parse(value.secret)`, ""}, {`upper(value.n)`, ""}, {`sum(value.l)`, ""}, {`base64.decode(value.secret)`, ""}, {`hash(value.secret, "x")`, ""}, {`format(value.secret, 1)`, ""}, {`sort(value.l, value.secret)`, ""}, {`fromPairs(value.l)`, ""}, {`duration(value.secret)`, ""}, {`join([value.m])`, ""},
	} {
		_, err := mustCompile(t, c.text, Any).Eval(env)
		var f *Failure
		if !errors.As(err, &f) || f.Code == "" || f.Line != 1 || f.Column < 1 {
			t.Errorf("%s: %#v", c.text, err)
			continue
		}
		if strings.Contains(f.Error(), "hunter2") {
			t.Errorf("%s: the error quotes the data: %s", c.text, f)
		}
		if c.message != "" && f.Error() != c.message {
			t.Errorf("%s: %s", c.text, f)
		}
	}
	f := &Failure{}
	_, err := mustCompile(t, "value.n > 1 &&\n upper(value.n) == \"x\"", Any).Eval(env)
	if !errors.As(err, &f) || f.Line != 2 || f.Column != 2 {
		t.Errorf("place of a failure: %+v", f)
	}
	if ok, err := mustCompile(t, `value.n == 5`, Condition).Bool(env); !ok || err != nil {
		t.Errorf("an Env must be usable after a failure: %v %v", ok, err)
	}
}

// What is expensive ends with an error, whatever the data.
func TestBudget(t *testing.T) {
	env := recordEnv(t, `{"l": [`+strings.Repeat("1,", 20000)+`1], "t": "`+strings.Repeat("x", 1<<20)+`"}`)
	for _, text := range []string{
		`1..9223372036854775807`, `-9223372036854775807..9223372036854775807`, `map(1..10000, {map(1..10000, #)})`, `any(value.l, {any(value.l, {any(value.l, # > 1)})})`, `repeat(value.t, 1000)`,
		`repeat(value.t, 9223372036854775807)`, `replace(value.t, "x", value.t)`, `replace(value.t, "", value.t)`, `reduce(1..1000, #acc + #acc, "xxxxxxxxxxxxxxxx")`, `reduce(1..2000, [#acc], nil)`, `count(1..1000000, value.t == "y" + value.t)`,
		`count(1..1000000, value.l[-1] > 5)`, `format("%s%s", repeat(value.t, 40), repeat(value.t, 40))`, `flatten(map(1..10000, value.l))`, `split(repeat(value.t, 60), "")`,
	} {
		e, err := Compile(text, Record, Any)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		var f *Failure
		if _, err := e.Eval(env); !errors.As(err, &f) || f.Code != CodeBudget {
			t.Errorf("%s: %v, want %s", text, err, CodeBudget)
		}
	}
}

func TestFormatsOfKeyAndValue(t *testing.T) {
	env := &Env{Key: []byte(`{"b":1,"a":2}`), Value: []byte("plain"), ValueFormat: Text}
	checkRows(t, env, Record, []row{{`key.a`, `2`}, {`key`, `{"b":1,"a":2}`}, {`value`, `"plain"`}, {`value.x`, `null`}, {`upper(value)`, `"PLAIN"`}, {`value == "plain"`, `true`}, {`value.x > 1`, `false`}})
	env = &Env{Key: nil, Value: nil}
	checkRows(t, env, Record, []row{{`key`, `null`}, {`value`, `null`}, {`value.x`, `null`}, {`value == nil`, `true`}, {`headers`, `{}`}, {`headers.x`, `null`}, {`vars`, `null`}, {`vars.x`, `null`}})
	env = &Env{Key: []byte{0xff}, KeyFormat: Bytes, Value: []byte(" [1, 2] ")}
	checkRows(t, env, Record, []row{{`hex.encode(key)`, `"ff"`}, {`key`, `! expr.bytes`}, {`key == nil`, `false`}, {`value[1]`, `2`}, {`value`, `[1, 2]`}, {`value.x`, `null`}, {`len(value)`, `2`}})
	env = &Env{ConfigKey: "de"}
	env.Config, _ = NewDoc([]byte(`{"region":"DE","$key":"x"}`))
	env.State, _ = NewDoc(nil)
	checkRows(t, env, Config, []row{{`config.region`, `"DE"`}, {`config.$key`, `"de"`}, {`config["$key"]`, `"de"`}, {`state.since ?? 0`, `0`}, {`state`, `null`}, {`config.every ?? "10s"`, `"10s"`}, {`config`, `{"region":"DE","$key":"x"}`}})
	if _, err := NewDoc([]byte(`{`)); err == nil {
		t.Error("NewDoc took what is no JSON")
	}
}

func TestAppendText(t *testing.T) {
	env := rulesEnv(t)
	for _, c := range []struct {
		text, want string
		isNil      bool
	}{
		{`value.t`, "text", false}, {`value.esc`, "a\"é/\n", false}, {`value.i`, "7", false}, {`value.whole`, "200", false}, {`value.tiny`, "0.000001", false}, {`value.yes`, "true", false}, {`value.missing`, "", true}, {`value.nul`, "", true}, {`value.e`, "", false},
		{`{b: value.whole, a: [value.map.b]}`, `{"a":[{"c":[10,20,{"d":"deep"}]}],"b":200}`, false}, {`value.list`, `[1,2.5,"x",null,{"a":1},[true]]`, false}, {`b"\xff"`, "\xff", false}, {`value.big`, "9223372036854775808", false}, {`value.huge`, "1e400", false}, {`value.max`, "9223372036854775807", false},
	} {
		out, isNil, err := mustCompile(t, c.text, Any).AppendText([]byte("<"), env)
		if string(out) != "<"+c.want || isNil != c.isNil || err != nil {
			t.Errorf("%s: %q %v %v", c.text, out, isNil, err)
		}
	}
	out, _, err := mustCompile(t, `{a: 1 / value.missingly ?? 0, b: value.i / 0}`, Any).AppendText([]byte("<"), env)
	if string(out) != "<" || err == nil {
		t.Errorf("a failure must leave the buffer: %q %v", out, err)
	}
}

func TestTextVars(t *testing.T) {
	scope := Record.WithVars(map[string]VarKind{"n": VarText, "m": VarValue})
	for text, want := range map[string]int{`value.a > vars.n`: 1, `vars.n + 1 < vars.n`: 2, `value.a == vars.n`: 0, `value.a > vars.m`: 0, `num(vars.n) > 5`: 0, `-vars.n`: 1} {
		e, err := Compile(text, scope, Any)
		if err != nil || len(e.TextVars()) != want {
			t.Errorf("%s: %v, %d, want %d", text, err, len(e.TextVars()), want)
		}
	}
}

var _ iter.Seq2[string, []byte] = (&Env{}).Headers
