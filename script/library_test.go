package script

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// try is a helper in front of expressions that throw.
const try = "const thrown = (f) => { try { f(); return 'nothing' } catch (e) { return [e instanceof Error, e.name, e.code, e.message].join(' ') } };\n"

// expressions evaluates each expression as the value of a message and compares its JSON.
func expressions(t *testing.T, in string, cases map[string]string) {
	t.Helper()
	all := map[string]conform{}
	for expression, want := range cases {
		all[expression] = conform{functions: try, body: "yield Message({ value: [" + expression + "] })", in: []string{in}, want: "→ [" + want + "]"}
	}
	conformAll(t, all)
}

func TestLibraryJSON(t *testing.T) {
	expressions(t, `{"id":9007199254740993,"n":1.50}`, map[string]string{
		`json.parse('{"id": 9007199254740993}').id`:                 `9007199254740993`,
		`typeof json.parse('9007199254740993')`:                     `"bigint"`,
		`json.parse('[1, {"a": null}]')[1].a`:                       `null`,
		`json.parse(new TextEncoder().encode('\uFEFF{"a":1}')).a`:   `1`,
		`json.stringify({ id: 2n ** 60n, list: [1n], f: () => 1 })`: `"{\"id\":1152921504606846976,\"list\":[1]}"`,
		`json.stringify({ a: 1 }, null, 1)`:                         `"{\n \"a\": 1\n}"`,
		`json.stringify(msg.value)`:                                 `"{\"id\":9007199254740993,\"n\":1.5}"`,
		`json.stringify(undefined) === undefined`:                   `true`,
		`thrown(() => json.parse('{'))`:                             `"true SyntaxError syntax json.parse: the object is not closed at byte 1"`,
		`thrown(() => json.parse('['.repeat(2000)))`:                `"true RangeError depth json.parse: nested too deep at byte 1000"`,
		`thrown(() => json.parse({}))`:                              `"true TypeError argument json.parse: the argument is a plain object; a text or bytes are expected"`,
	})
}

func TestLibraryHashes(t *testing.T) {
	expressions(t, `{"key":"abc"}`, map[string]string{
		`hash('md5', 'abc')`:    `"900150983cd24fb0d6963f7d28e17f72"`,
		`hash('sha1', 'abc')`:   `"a9993e364706816aba3e25717850c26c9cd0d89d"`,
		`hash('sha256', 'abc')`: `"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"`,
		`hash('sha512', msg.value.key)`: `"ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a` +
			`2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f"`,
		`[...hash('md5', 'abc', 'bytes')].slice(0, 3)`:                         `[144,1,80]`,
		`hash('md5', hex.decode('616263'))`:                                    `"900150983cd24fb0d6963f7d28e17f72"`,
		`hash('md5', new Uint16Array([0x6261, 0x63]))`:                         `"147a664a2ca9410911e61986d3f0d52a"`,
		`hash('md5', new Uint8Array([0, 97]).subarray(1))`:                     `"0cc175b9c0f1b6a831c399e269772661"`,
		`hmac('sha256', 'key', 'The quick brown fox jumps over the lazy dog')`: `"f7bc83f430538424b13298e6aa6fb143ef4d59a14946175997479dbc2d1a3cd8"`,
		`hmac('md5', hex.decode('00'), 'a', 'bytes').length`:                   `16`,
		`murmur2('21')`:                            `-973932308`,
		`murmur2('foobar')`:                        `-790332482`,
		`murmur2('a-little-bit-long-string')`:      `-985981536`,
		`murmur2('a-little-bit-longer-string')`:    `-1486304829`,
		`murmur2(new TextEncoder().encode('abc'))`: `479470107`,
		`murmur2('foobar', 10)`:                    `6`,
		`thrown(() => hash('crc', 'x'))`:           `"true TypeError argument hash: the algorithm is a string that does not fit; md5, sha1, sha256 or sha512 is expected"`,
		`thrown(() => hash('md5', 1))`:             `"true TypeError argument hash: the data is a number; a text or bytes are expected"`,
		`thrown(() => hash('md5', '', 'hex'))`:     `"true TypeError argument hash: the last argument is a string that does not fit; \"bytes\", or nothing, is expected"`,
		`thrown(() => murmur2('a', 0))`:            `"true TypeError argument murmur2: the number of partitions is a number that does not fit; an integer from 1 to 2147483647 is expected"`,
	})
}

func TestLibraryHexAndBase64(t *testing.T) {
	expressions(t, `{}`, map[string]string{
		`hex.encode('aé')`:                       `"61c3a9"`,
		`hex.decode('61C3A9', 'text')`:           `"aé"`,
		`base64.encode('a?>')`:                   `"YT8+"`,
		`base64.encode('??>', 'url')`:            `"Pz8-"`,
		`base64.encode('a', 'url')`:              `"YQ"`,
		`base64.encode(new Uint8Array([255]))`:   `"/w=="`,
		`[...base64.decode('_w')]`:               `[255]`,
		`[...base64.decode('/w==')]`:             `[255]`,
		`base64.decode('YW\r\nJj', 'text')`:      `"abc"`,
		`thrown(() => base64.decode('a'))`:       `"true SyntaxError syntax base64.decode: the text is not base64"`,
		`thrown(() => base64.decode('YQ='))`:     `"true SyntaxError syntax base64.decode: the text is not base64"`,
		`thrown(() => hex.decode('abc'))`:        `"true SyntaxError syntax hex.decode: the text is not made of pairs of hexadecimal digits"`,
		`thrown(() => hex.decode('ff', 'text'))`: `"true TypeError utf8 hex.decode: the bytes are not UTF-8; take them as bytes"`,
	})
}

func TestLibraryBytes(t *testing.T) {
	expressions(t, `{}`, map[string]string{
		`hex.decode('0102030203').indexOf(hex.decode('0203'))`:     `1`,
		`hex.decode('0102030203').indexOf(hex.decode('0203'), 2)`:  `3`,
		`hex.decode('0102030203').indexOf(hex.decode('0203'), -2)`: `3`,
		`hex.decode('0102').indexOf(hex.decode('03'))`:             `-1`,
		`hex.decode('0102').indexOf(new Uint8Array(0), 9)`:         `-1`,
		`hex.decode('0102').indexOf(2)`:                            `1`,
		`[...hex.decode('010203').slice(1)]`:                       `[2,3]`,
		`hex.decode('01') instanceof Uint8Array`:                   `true`,
	})
}

func compressed(t *testing.T, data []byte, open func(io.Writer) io.WriteCloser) string {
	t.Helper()
	var b bytes.Buffer
	w := open(&b)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", b.Bytes())
}

func TestLibraryInflate(t *testing.T) {
	data := bytes.Repeat([]byte("hello "), 1000)
	in, err := json.Marshal(map[string]string{
		"gzip": compressed(t, data, func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }),
		"zlib": compressed(t, data, func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) }),
		"raw": compressed(t, data, func(w io.Writer) io.WriteCloser {
			f, err := flate.NewWriter(w, 9)
			if err != nil {
				t.Fatal(err)
			}
			return f
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	expressions(t, string(in), map[string]string{
		`gunzip(hex.decode(msg.value.gzip)).length`:                          `6000`,
		`gunzip(hex.decode(msg.value.gzip), 'text').slice(0, 8)`:             `"hello he"`,
		`inflate(hex.decode(msg.value.zlib), 'text').length`:                 `6000`,
		`inflateRaw(hex.decode(msg.value.raw), { limit: 6000 }, 'text')[0]`:  `"h"`,
		`thrown(() => gunzip(hex.decode(msg.value.gzip), { limit: 5999 }))`:  `"true RangeError too_large gunzip: more than 5999 bytes came out; the option limit allows more"`,
		`thrown(() => gunzip(hex.decode(msg.value.gzip).slice(0, 30)))`:      `"true SyntaxError syntax gunzip: the data end too early"`,
		`thrown(() => gunzip(hex.decode(msg.value.zlib)))`:                   `"true SyntaxError syntax gunzip: the data are damaged or of another format"`,
		`thrown(() => inflate(new Uint8Array(0)))`:                           `"true SyntaxError syntax inflate: the data end too early"`,
		`thrown(() => inflateRaw(hex.decode('07')))`:                         `"true SyntaxError syntax inflateRaw: the data are damaged or of another format"`,
		`thrown(() => gunzip(hex.decode(msg.value.gzip), { limit: 1e9 }))`:   `"true TypeError argument gunzip: the option limit is a number that does not fit; an integer from 1 to 268435456 is expected"`,
		`thrown(() => gunzip(hex.decode(msg.value.gzip), { maximum: 1e9 }))`: `"true TypeError argument gunzip: there is no option \"maximum\"; limit is expected"`,
	})
}

func TestLibraryText(t *testing.T) {
	expressions(t, `{}`, map[string]string{
		`[...new TextEncoder().encode('aé😀')]`:                                              `[97,195,169,240,159,152,128]`,
		`new TextEncoder().encoding`:                                                        `"utf-8"`,
		`new TextEncoder().encodeInto('é😀x', new Uint8Array(6))`:                            `{"read":3,"written":6}`,
		`new TextDecoder().decode(hex.decode('efbbbf61ff62'))`:                              "\"a\ufffdb\"",
		`new TextDecoder('utf-8', { ignoreBOM: true }).decode(hex.decode('efbbbf')).length`: `1`,
		`new TextDecoder('latin1').decode(hex.decode('e980'))`:                              `"é€"`, // Node 20 takes 80 for a control character
		`new TextDecoder('windows-1252').decode(hex.decode('818d')).codePointAt(1)`:         `141`,
		`hash('md5', new DataView(hex.decode('00616200').buffer, 1, 2))`:                    `"187ef4436122d1cc2f40dc2b92f0eba0"`,
		`new TextDecoder('utf-16le').decode(hex.decode('fffe61003dd800de'))`:                `"a😀"`,
		`new TextDecoder('UTF-16BE').decode(hex.decode('0061'))`:                            `"a"`,
		`new TextDecoder().decode()`:                                                        `""`,
		`thrown(() => new TextDecoder('utf-8', { fatal: true }).decode(hex.decode('ff')))`:  `"true TypeError syntax TextDecoder.decode: the bytes are not valid UTF-8"`,
		`thrown(() => new TextDecoder('klingon')).slice(0, 59)`:                             `"true RangeError argument TextDecoder: the encoding is not k"`,
		`thrown(() => new TextDecoder().decode(hex.decode('61'), { stream: true }))`:        `"true TypeError argument TextDecoder.decode: the option stream is not supported; join the parts first"`,
	})
}

func TestLibraryClone(t *testing.T) {
	expressions(t, `{"a":{"b":[1.50,{"c":9007199254740993}]},"d":1.0}`, map[string]string{
		`structuredClone(msg.value)`: `{"a":{"b":[1.50,{"c":9007199254740993}]},"d":1.0}`,
		`(() => { const c = structuredClone(msg.value); c.a.b[1].c = 1; c.a.x = 2; return [c, msg.value.a.x ?? 0, msg.value.a.b[1].c] })()`: `[{"a":{"b":[1.50,{"c":1}],"x":2},"d":1.0},0,9007199254740993]`,
		`(() => { msg.value.e = 1; const c = structuredClone(msg.value); return [c, c.a !== msg.value.a] })()`:                              `[{"a":{"b":[1.5,{"c":9007199254740993}]},"d":1.0,"e":1},true]`,
		`(() => { const o = { n: 1 }; o.self = o; const c = structuredClone(o); return [c.self === c, c !== o] })()`:                        `[true,true]`,
		`(() => { const x = {}; const c = structuredClone({ a: x, b: [x] }); return c.a === c.b[0] })()`:                                    `true`,
		`[...structuredClone(new Map([[{ k: 1 }, new Set([1])]]))].map(([k, s]) => [k, [...s]])`:                                            `[[{"k":1},[1]]]`,
		`structuredClone(new Date(5)).getTime()`:                       `5`,
		`structuredClone(/a/gi).flags`:                                 `"gi"`,
		`[...structuredClone(new Uint8Array([1, 2]).subarray(1))]`:     `[2]`,
		`structuredClone(new Uint16Array([1])) instanceof Uint16Array`: `true`,
		`structuredClone(new ArrayBuffer(3)).byteLength`:               `3`,
		`(() => { const e = structuredClone(new TypeError('x')); return [e instanceof TypeError, e.message, String(e)] })()`: `[true,"x","TypeError: x"]`,
		`(() => { const c = structuredClone([1, , 3]); return [c.length, 1 in c] })()`:                                       `[3,false]`,
		`structuredClone(Object('x')) instanceof String`:                                                                     `true`,
		`structuredClone(undefined) === undefined`:                                                                           `true`,
		`structuredClone(msg).key`:                                                                   `"k"`,
		`thrown(() => structuredClone({ f: () => 1 }))`:                                              `"true DataCloneError clone structuredClone: a function cannot be cloned"`,
		`thrown(() => structuredClone({ f: Symbol('x') }))`:                                          `"true DataCloneError clone structuredClone: a symbol cannot be cloned"`,
		`thrown(() => structuredClone(Message({ value: 1 })))`:                                       `"true DataCloneError clone structuredClone: a Message cannot be cloned"`,
		`thrown(() => { let o = {}; for (let i = 0; i < 2000; i++) o = { o }; structuredClone(o) })`: `"true RangeError depth structuredClone: nested too deep"`,
	})
}

func TestLibraryEqual(t *testing.T) {
	cases := map[string]string{}
	for _, yes := range []string{
		"1, 1", "NaN, NaN", "0, -0", "null, null", "undefined, undefined", "2n, 2n", "'a', 'a'", "[1, [2]], [1, [2]]", "{ a: 1, b: 2 }, { b: 2, a: 1 }",
		"new Date(1), new Date(1)", "/a/g, /a/g", "new Map([[1, { a: 1 }], [2, 3]]), new Map([[2, 3], [1, { a: 1 }]])", "new Set([[1], [2]]), new Set([[2], [1]])",
		"new Uint8Array([1]), new Uint8Array([1])", "msg.value, { b: [{ c: 1 }], a: 1 }", "msg.value, structuredClone(msg.value)", "msg.value.b, [{ c: 1.0 }]",
		"(() => { const o = {}; o.o = o; return o })(), (() => { const o = {}; o.o = o; return o })()",
	} {
		cases["equal("+yes+")"] = "true"
	}
	for _, no := range []string{
		"1, 2", "1, '1'", "1, 1n", "null, undefined", "{}, []", "{}, null", "{ a: undefined }, {}", "{ a: undefined }, { b: 1 }", "[1], [1, 2]", "[undefined], [null]", "new Date(1), new Date(2)",
		"new Set([1]), new Set([2])", "new Map(), new Set()", "new Set([1]), [1]", "new Uint8Array([1]), new Uint8Array([2])", "() => 1, () => 1", "msg.value, { a: 1, b: [{ c: 2 }] }", "{}, new Map()",
		"true, 1", "Object(1), 1",
	} {
		cases["equal("+no+")"] = "false"
	}
	expressions(t, `{"a":1,"b":[{"c":1}]}`, cases)
}

func TestLibraryNum(t *testing.T) {
	cases := map[string]string{}
	for text, want := range map[string]string{
		"1": "1", "-1.5": "-1.5", "+2": "2", ".5": "0.5", "1e3": "1000", "1E-2": "0.01", "007": "7", "9007199254740993": "9007199254740993", "-0": "0", "1e400": "null",
		"": "null", " 1": "null", "1 ": "null", "1.": "null", "0x10": "null", "Infinity": "null", "NaN": "null", "1,5": "null", "1e": "null", "-": "null", ".": "null", "1_000": "null", "１": "null",
	} {
		cases["num('"+text+"')"] = want
	}
	for value, want := range map[string]string{"5": "5", "NaN": "null", "null": "null", "undefined": "null", "true": "null", "[1]": "null", "3n": "3", "msg.value.n": "7"} {
		cases["num("+value+")"] = want
	}
	expressions(t, `{"n":"7"}`, cases)
}

func TestLibraryCSV(t *testing.T) {
	expressions(t, `{"text":"a;b\n1;2\n"}`, map[string]string{
		`csv.parse('a,b\n1,2\r\n\r\n"x ""y"",\n",\n')`:                          `[{"a":"1","b":"2"},{"a":"x \"y\",\n","b":""}]`,
		`csv.parse(msg.value.text, { delimiter: ';' })`:                         `[{"a":"1","b":"2"}]`,
		`csv.parse('a,b', { columns: false })`:                                  `[["a","b"]]`,
		`csv.parse('1,2', { columns: ['x', 'y'] })`:                             `[{"x":"1","y":"2"}]`,
		`csv.parse('a,b,c\n1,"",\n2', { empty: null })`:                         `[{"a":"1","b":"","c":null},{"a":"2","b":null,"c":null}]`,
		`csv.parse("'a'|'b|'", { quote: "'", delimiter: '|', columns: false })`: `[["a","b|"]]`,
		`csv.parse('"a",b', { quote: '', columns: false })`:                     `[["\"a\"","b"]]`,
		`csv.parse('a"b,c', { columns: false })`:                                `[["a\"b","c"]]`,
		`thrown(() => csv.parse('a,b\n1', { short: 'error' }))`:                 `"true SyntaxError syntax csv.parse: line 2 has 1 fields, and there are 2 columns; the option short allows it"`,
		`csv.parse('a\n1,2', { extra: 'ignore' })`:                              `[{"a":"1"}]`,
		`csv.parse('a\n1,2,3', { extra: 'keep' })`:                              `[{"a":"1","$extra":["2","3"]}]`,
		`csv.parse('')`:           `[]`,
		`csv.parse('\uFEFFa\n1')`: `[{"a":"1"}]`,
		`csv.parse(hex.decode('610ae9'), { invalid_utf8: 'latin1' })`:       `[{"a":"é"}]`,
		`csv.parse(hex.decode('610ae9'), { invalid_utf8: 'replace' })`:      "[{\"a\":\"\ufffd\"}]",
		`csv.parse('__proto__\n1').length`:                                  `1`,
		`thrown(() => csv.parse(hex.decode('610ae9')))`:                     `"true TypeError utf8 csv.parse: line 2 is not UTF-8; the option invalid_utf8 allows it"`,
		`thrown(() => csv.parse('a\n1,2'))`:                                 `"true SyntaxError syntax csv.parse: line 2 has 2 fields, and there are 1 columns; the option extra allows it"`,
		`thrown(() => csv.parse('a\n\n"b'))`:                                `"true SyntaxError syntax csv.parse: line 3: a quoted field is not closed"`,
		`thrown(() => csv.parse('a\n"b"c'))`:                                `"true SyntaxError syntax csv.parse: line 2: text behind the closing quote of a field"`,
		`thrown(() => csv.parse('a,a'))`:                                    `"true SyntaxError syntax csv.parse: column 2 has the name of one before it"`,
		`thrown(() => csv.parse('a', { delimiter: ';;' }))`:                 `"true TypeError argument csv.parse: the option delimiter is a string that does not fit; one ASCII character is expected"`,
		`thrown(() => csv.parse('a', { ['seperator']: ';' })).slice(0, 60)`: `"true TypeError argument csv.parse: there is no option \"seper"`,
		`thrown(() => csv.parse('x,'.repeat(20000)))`:                       `"true RangeError too_large csv.parse: line 1: more than 10000 fields"`,
	})
}

func TestLibraryTime(t *testing.T) {
	expressions(t, `{"at":"2026-03-01T12:00:00+01:00"}`, map[string]string{
		`time.parse(msg.value.at)`:                                        `1772362800000`,
		`time.parse('1970-01-02')`:                                        `86400000`,
		`time.parse('1970-01-01 00:00')`:                                  `0`,
		`time.parse('1970-01-01T00:00:00.1239Z')`:                         `123`,
		`time.parse('1970-01-01T01:00:00', null, 'Europe/Berlin')`:        `0`,
		`time.parse('1970-01-01T02:00:00', undefined, '+02:00')`:          `0`,
		`time.parse('01.02.1970 03:04', '%d.%m.%Y %H:%M')`:                `2689440000`,
		`time.parse('19700101', '%Y%m%d')`:                                `0`,
		`time.parse('1.5', '%s.%L')`:                                      `1500`,
		`time.parse('1970-01-01 00:00:00 +0100', '%Y-%m-%d %H:%M:%S %z')`: `-3600000`,
		`time.parse('1 Jan 1970', '%e %b %Y')`:                            `0`,
		`time.parse('29.02.2024', '%d.%m.%Y')`:                            `1709164800000`,
		`time.parse('01.03.2026', '%d.%m.%Y')`:                            `1772323200000`,
		`time.parse('2026-03-01', '%F')`:                                  `1772323200000`,
		`[time.parse('2026-02-29', '%F'), time.parse('31.02.2026', '%d.%m.%Y'), time.parse('2025366', '%Y%j')]`: `[null,null,null]`,
		`time.parse('2026001', '%Y%j')`: `1767225600000`,
		`['', 'x', '2026-02-29', '2026-13-01', '2026-01-01T25:00', '2026-01-01T1:00:00', '2026-01-01T00:00:00Zx'].map((x) => time.parse(x))`: `[null,null,null,null,null,null,null]`,
		`[time.parse('1970-01-01x', '%F'), time.parse('x', '%F'), time.parse(5), time.parse(null)]`:                                          `[null,null,null,null]`,
		`time.format(0, '%Y-%m-%dT%H:%M:%S.%L%z')`:                                                                  `"1970-01-01T00:00:00.000+0000"`,
		`time.format(new Date(1500), '%a %d %b %H:%M:%S.%f', 'America/New_York')`:                                   `"Wed 31 Dec 19:00:01.500000"`,
		`time.format(1772362800000, '%H:%M %Z', 'Europe/Berlin')`:                                                   `"12:00 CET"`,
		`time.format(0, '100%% %%L')`:                                                                               `"100% %L"`,
		`[time.iso(1500), time.iso(1500, { digits: 0 }), time.iso(1500.25, { digits: 6 }), time.iso(new Date(-1))]`: `["1970-01-01T00:00:01.500Z","1970-01-01T00:00:01Z","1970-01-01T00:00:01.500250Z","1969-12-31T23:59:59.999Z"]`,
		`time.iso(8.64e15)`:                                                   `"+275760-09-13T00:00:00.000Z"`,
		`thrown(() => time.iso(8.7e15))`:                                      `"true RangeError argument time.iso: the time is no time of a Date"`,
		`thrown(() => time.iso('x'))`:                                         `"true TypeError argument time.iso: the time is a string; a number of milliseconds or a Date is expected"`,
		`thrown(() => time.format(0, '%Q'))`:                                  `"true TypeError argument time.format: the layout has a directive that strftime does not know, or ends in one"`,
		`thrown(() => time.parse('x', '%'))`:                                  `"true TypeError argument time.parse: the layout has a directive that strftime does not know, or ends in one"`,
		`thrown(() => time.format(0, '%F', 'Mars')).slice(0, 60)`:             `"true RangeError argument time.format: the zone is not known;"`,
		`thrown(() => time.format(0, '%F', 'Local')).slice(0, 60)`:            `"true RangeError argument time.format: the zone is not known;"`,
		`thrown(() => time.format(0, '%F', '../../etc/passwd')).slice(0, 60)`: `"true RangeError argument time.format: the zone is not known;"`,
	})
}

func TestLibraryURL(t *testing.T) {
	expressions(t, `{"url":"https://user:pw@example.com:8443/a/b?x=1&y=2#top"}`, map[string]string{
		`((u) => [u.protocol, u.username, u.host, u.hostname, u.port, u.pathname, u.search, u.hash, u.origin])(new URL(msg.value.url))`: `["https:","user","example.com:8443","example.com","8443","/a/b","?x=1&y=2","#top","https://example.com:8443"]`,
		`new URL('../c?z=ä', 'https://example.com/a/b/').href`:                                                                          `"https://example.com/a/c?z=%C3%A4"`,
		`new URL('https://example.com:443/').host`:                                                                                      `"example.com"`,
		`((u) => { u.searchParams.append('q', 'a b'); u.pathname = '/x'; return u.href })(new URL('https://h/'))`:                       `"https://h/x?q=a+b"`,
		`new URL('https://h/')`:                                      `"https://h/"`,
		`new URL(msg.value.url).searchParams.get('y')`:               `"2"`,
		`new URLSearchParams({ a: 1, b: 'x&y' }).toString()`:         `"a=1&b=x%26y"`,
		`[...new URLSearchParams('a=1&a=2')].map(([k, x]) => k + x)`: `["a1","a2"]`,
		`new URLSearchParams('a=1&a=2').getAll('a')`:                 `["1","2"]`,
		`new URL('https://h/') instanceof URL`:                       `true`,
		`thrown(() => new URL('nope')).slice(0, 32)`:                 `"true TypeError invalid_url URL: "`,
	})
}

func TestLibraryIsFrozen(t *testing.T) {
	cases := map[string]conform{}
	for _, assignment := range []string{
		"json.parse = 1", "json.extra = 1", "URL.prototype.extra = 1", "URLSearchParams.extra = 1", "TextDecoder.prototype.decode = 1", "hash.x = 1",
		"time.iso = 1", "csv.parse.x = 1", "xml.parse = 1", "unzip.x = 1", "memory.get = 1", "log.info = 1", "metrics.count = 1", "configs.get = 1", "Uint8Array.prototype.indexOf = 1",
	} {
		cases[assignment] = conform{body: "try { " + assignment + " } catch (e) { yield Message({ value: e.name }) }", want: `→ "TypeError"`}
	}
	cases["a URL in functions"] = conform{functions: "const base = new URL('https://h/')", body: "yield Message({ value: base })", want: "script.shared_variable 0:0 base is a URL, which is shared by all calls and cannot be frozen"}
	cases["a TextDecoder in functions"] = conform{functions: "const d = new TextDecoder()", body: "yield Message({ value: d.decode(hex.decode('61')) })", want: `→ "a"`}
	cases["an own name"] = conform{functions: "const hash = (x) => 'own ' + x", body: "const num = hash(1); yield Message({ value: num })", want: `→ "own 1"`}
	cases["assigned"] = conform{body: "hash = 1", want: "script.shared_assignment 1:1 the built-in hash cannot be assigned"}
	cases["typeof"] = conform{body: "yield Message({ value: [typeof hash, typeof URL, typeof xml.parse, typeof tables] })", want: `→ ["function","function","function","undefined"]`}
	conformAll(t, cases)
}

func TestLibraryLater(t *testing.T) {
	for _, name := range []string{"tables", "timer", "Timer"} {
		want := "script.not_supported 1:1 " + name + " is not supported yet"
		if got := (conform{body: name + "('x')"}).run(t); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestLibraryOutsideOfCalls(t *testing.T) {
	for _, call := range []string{"memory.get('a')", "memo('a', 1, () => 1)", "log.info('a')", "metrics.count('a')", "configs.get('a')"} {
		got := conform{functions: "const x = " + call, body: "yield Message({ value: x })"}.run(t)
		if !strings.Contains(got, "works while a record or a poll runs") {
			t.Errorf("%s: %s", call, got)
		}
	}
}

func TestUncaughtLibraryErrorHasThePlaceOfItsCaller(t *testing.T) {
	got := conform{body: "const x = 1;\nyield Message({ value: num(hash('md5', 5)) })"}.run(t)
	want := "script.error 2:32 TypeError: hash: the data is a number; a text or bytes are expected"
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestLogAndCount(t *testing.T) {
	var said []string
	env := Env{
		Log: func(level, text string, fields []Field) {
			line := level + " " + text
			for _, f := range fields {
				line += fmt.Sprintf(" %s=%v", f.Name, f.Value)
				if _, ok := f.Value.(JSON); ok {
					line += ":json"
				}
			}
			said = append(said, line)
		},
		Count: func(name string, n float64) { said = append(said, fmt.Sprintf("%s+%v", name, n)) },
	}
	tr := newTransform(t, env, `
		log.info('seen', { z: 1, a: msg.key, none: null, gone: undefined, deep: msg.value, big: 2n ** 60n, nan: NaN, yes: true });
		log.warn({ a: 1 });
		if (log.once('first', 'once', { n: 1 })) metrics.count('first');
		metrics.count('seen', 2.5);`)
	runBatch(t, tr, nil, input{"k", `{"x":[1]}`}, input{"k", `{}`})
	line := func(deep string) string {
		return "info seen z=1 a=k none=<nil> deep=" + deep + " big=1152921504606846976n nan=NaN yes=true"
	}
	want := []string{
		line(`{"x":[1]}:json`), `warn {"a":1}`, "warn once n=1", "first+1", "seen+2.5",
		line(`{}:json`), `warn {"a":1}`, "seen+2.5",
	}
	if !slices.Equal(said, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(said, "\n"), strings.Join(want, "\n"))
	}
	expressions(t, `{}`, map[string]string{
		`thrown(() => metrics.count('a', -1))`: `"true TypeError argument metrics.count: the second argument is a number that does not fit; a number from 0 on is expected"`,
		`thrown(() => metrics.count(''))`:      `"true TypeError argument metrics.count: the name is a text of 0 bytes; one of 1 to 100 bytes of UTF-8 is expected"`,
		`thrown(() => log.info('a', 1))`:       `"true TypeError argument log.info: the fields are a number; an object is expected"`,
	})
}

type configMap map[string]string

func (m configMap) Get(key string) []byte {
	if value, ok := m[key]; ok {
		return []byte(value)
	}
	return nil
}

func TestConfigsAreReadAsTheyWereWhenTheBatchBegan(t *testing.T) {
	bothWays(t, func(t *testing.T) {
		s := Source{Body: stream.Text{File: "f.yaml", Line: 1, Column: 1, Text: `
			const c = configs.get(msg.key);
			if (c !== null) c.limit += 1;
			yield Message({ value: [c, configs.get(msg.key)] });`}}
		p := mustCompile(t, s)
		if !p.NamesConfigs() {
			t.Error("NamesConfigs is false")
		}
		tr, err := p.NewTransform(Env{Outputs: out})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(tr.Close)
		for _, round := range []struct {
			configs configMap
			want    string
		}{
			{configMap{"a": ` {"limit": 1} `}, "out a=[{\"limit\":2},{\"limit\": 1}]\nout b=[null,null]\n"},
			{configMap{"b": `{"limit":5,"x":9007199254740993}`}, "out a=[null,null]\nout b=[{\"limit\":6,\"x\":9007199254740993},{\"limit\":5,\"x\":9007199254740993}]\n"},
		} {
			b := newBatch(t, nil, input{"a", `{}`}, input{"b", `{}`})
			b.Configs = round.configs
			if err := tr.Run(context.Background(), b); err != nil {
				t.Fatal(err)
			}
			expect(t, effects(b), round.want)
		}
	})
	if mustCompile(t, Source{Body: stream.Text{Text: "yield Message({ value: 1 })"}}).NamesConfigs() {
		t.Error("a script that does not name configs is said to")
	}
}

// misuses are calls with arguments that do not fit. Those of fetch say what was expected in other words.
var misuses = []string{
	"json.parse()", "json.parse(5)", "json.parse({})", "json.parse(new Map())", "structuredClone()", "hash()", "hash('md5')", "hash('md5', 5)", "hash('md4', 'x')", "hash(5, 'x')", "hash('md5', 'x', 'hex')", "hash('md5', 'x', true)",
	"hmac('md5', 'k')", "hmac('md5', 5, 'x')", "hmac('md4', 'k', 'x')", "hmac('md5', 'k', 'x', 1n)", "murmur2()", "murmur2('x', 0)", "murmur2('x', 1.5)", "murmur2('x', 'y')", "murmur2('x', 1n)", "murmur2('x', Symbol())", "murmur2('x', NaN)", "murmur2('x', 2 ** 31)",
	"hex.encode(5)", "hex.decode(5)", "hex.decode('61', 'txt')", "base64.encode(5)", "base64.encode('x', 'URL')", "base64.decode(5)", "base64.decode('Pz8-', null)", "new TextDecoder(5)", "new TextDecoder('utf-8', 5)", "new TextDecoder('utf-8', { fatl: true })", "new TextEncoder().encodeInto('x', 'y')",
	"gunzip()", "gunzip(5)", "gunzip('x', { limit: -1 })", "gunzip('x', { limit: 'x' })", "gunzip('x', { limit: 1n })", "gunzip('x', { limit: 2 ** 40 })", "gunzip('x', { limt: 1 })", "gunzip('x', 'txt')", "gunzip('x', 5)", "inflate(5)", "inflateRaw(5)",
	"csv.parse()", "csv.parse('a', 5)", "csv.parse('a', { ['delimter']: ';' })", "csv.parse('a', { delimiter: ';;' })", "csv.parse('a', { delimiter: 5 })", "csv.parse('a', { delimiter: null })", "csv.parse('a', { quote: 'ä' })", "csv.parse('a', { columns: 'x' })", "csv.parse('a', { columns: [1] })", "csv.parse('a', { short: 'x' })", "csv.parse('a', { extra: 5 })", "csv.parse('a', { invalid_utf8: 'x' })", "csv.parse('a', { empty: {} })", "csv.parse('a', { delimiter: '\"' })",
	"xml.parse(5)", "xml.parse('<a/>', { lists: 'x' })", "xml.parse('<a/>', { lists: [1] })", "xml.parse('<a/>', { list: [] })", "xml.parse('<a/>', 5)", "unzip('x')", "unzip(new Uint8Array(3), { limit: 'x' })", "unzip(new Uint8Array(3), { lim: 1 })",
	"time.parse('x', 5)", "time.parse('x', '%F', 5)", "time.format('x', '%F')", "time.format(5)", "time.format(5n, '%F')", "time.iso('x')", "time.iso(5, 5)", "time.iso(5, { digits: 10 })", "time.iso(5, { digits: 'x' })", "time.iso(5, { digits: 1n })", "time.iso(5, { digits: 1.5 })", "time.iso(5, { digts: 1 })", "new URL('http://x').searchParams.forEach(5)",
	"memory.get(5)", "memory.get('x'.repeat(2000))", "memory.set(5, 1)", "memory.set('k', 1, 'x')", "memory.set('k', 1, -1)", "memory.set('k', 1, {})", "memory.set('k', 1, 1n)", "memory.set('k', 1, '5 minutes')", "memo()", "memo('k', '1h')", "memo('k', '1h', 5)", "memo('k', 'x', () => 1)", "memo('k', () => 1, () => 1)",
	"log.info('x', 5)", "log.warn('x', [1])", "log.once(5, 'x')", "log.once('k', 'x', 5)", "metrics.count()", "metrics.count('')", "metrics.count('x'.repeat(1000))", "metrics.count('x', -1)", "metrics.count('x', 'y')", "metrics.count('x', NaN)", "metrics.count('x', 1n)", "metrics.count('x', Symbol())", "configs.get(5)",
	"(await fetch('x/1')).lines(5)", "(await fetch('x/1')).lines({ separator: 5 })", "(await fetch('x/1')).lines({ separator: '' })", "(await fetch('x/1')).lines({ sep: 1 })", "(await fetch('x/1')).csv({ delim: 1 })", "(await fetch('x/1')).unzip({ limt: 1 })", "(await fetch('x/1')).xml({ lists: 1 })",
	"fetch()", "fetch(5)", "fetch('x', 5)", "fetch('x', { method: 5 })", "fetch('x', { headers: 5 })", "fetch('x', { headers: { a: {} } })", "fetch('x', { query: 5 })", "fetch('x', { query: { a: {} } })", "fetch('x', { body: {} })", "fetch('x', { ndjson: 5 })", "fetch('x', { form: 5 })", "fetch('x', { auth: 5 })", "fetch('x', { auth: { bearer: 5 } })", "fetch('x', { timeout: 'x' })", "fetch('x', { timeout: -1 })", "fetch('x', { timeout: 1n })",
	"fetch('x', { expect: 'x' })", "fetch('x', { expect: [1] })", "fetch('x', { expect: 1n })", "fetch('x', { verify: 5 })", "fetch('x', { verify: { size: 'x' } })", "fetch('x', { verify: { size: 1n } })", "fetch('x', { verify: { size: -1 } })", "fetch('x', { verify: { md5: 5 } })",
}

// Each says what was expected and what it got, and not the value itself.
func TestMisuseSaysWhatWasExpectedAndWhatItGot(t *testing.T) {
	argument := regexp.MustCompile(`^TypeError: [\w.]+: (the|a|an) [\w ]+ (is (a|an) [\w -]+|is undefined|is null|is left out|are (a|an) [\w ]+|"\w+"); (.* is|.* are) expected$|^TypeError: [\w.]+: there is no option "\w+"; .* is expected$|^TypeError: csv.parse: delimiter and quote are the same; `)
	ofFetch := regexp.MustCompile(`^(the URL|the second argument|[\w.]+) of fetch (is|holds) (undefined|an? [\w -]+), not (a|an|text)\b`)
	for _, call := range misuses {
		s := &server{}
		tr := newTransform(t, Env{Fetch: s.fetch}, "await "+call)
		err := tr.Run(t.Context(), newBatch(t, nil, input{"k", `{}`}))
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("%s: %v", call, err)
			continue
		}
		want := argument
		if strings.HasPrefix(call, "fetch(") {
			want = ofFetch
		} else if e.ThrownCode() != codeArgument {
			t.Errorf("%s has the code %q", call, e.ThrownCode())
		}
		if !want.MatchString(e.Message()) {
			t.Errorf("%s says %s", call, e.Message())
		}
	}
}
