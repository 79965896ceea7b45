package script

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// echo answers what was asked, or, where the URL begins with a colon, what stands behind it.
func echo(_ context.Context, r *FetchRequest) (*FetchResponse, error) {
	body, ok := strings.CutPrefix(r.URL, ":")
	if !ok {
		body = fmt.Sprintf("%s %s %v %v %s %s %q", r.Method, r.URL, r.Query, r.Headers, r.Timeout, r.Redirect, r.Body)
	}
	status := 200
	if strings.HasPrefix(body, "missing") {
		status = 404
	}
	return &FetchResponse{
		Status: status, Headers: http.Header{"Content-Range": {"bytes 0-9/*"}, "X-Twice": {"a", "b"}}, URL: "http://h/x", Shown: "http://h/x",
		Body: io.NopCloser(strings.NewReader(body)),
	}, nil
}

func TestFetchRequests(t *testing.T) {
	for options, want := range map[string]string{
		"":                             "GET http://h [] [] 0s follow \"\"",
		", {}":                         "GET http://h [] [] 0s follow \"\"",
		", { body: 'a' }":              `POST http://h [] [] 0s follow "a"`,
		", { body: null }":             "GET http://h [] [] 0s follow \"\"",
		", { body: hex.decode('61') }": `POST http://h [] [] 0s follow "a"`,
		", { method: 'patch', json: { n: msg.value.n } }":                             `PATCH http://h [] [{Content-Type application/json}] 0s follow "{\"n\":1}"`,
		", { ndjson: [{ a: 1 }, 'b'] }":                                               `POST http://h [] [{Content-Type application/x-ndjson}] 0s follow "{\"a\":1}\n\"b\"\n"`,
		", { form: { a: 'b c', d: [1, true], e: null, f: undefined } }":               `POST http://h [] [{Content-Type application/x-www-form-urlencoded}] 0s follow "a=b+c&d=1&d=true"`,
		", { json: 1, headers: { 'content-type': 'text/x', 'X-A': ['1', '2'] } }":     `POST http://h [] [{content-type text/x} {X-A 1} {X-A 2}] 0s follow "1"`,
		", { query: { a: 1, b: ['x', 'y'] } }":                                        "GET http://h [{a 1} {b x} {b y}] [] 0s follow \"\"",
		", { auth: { user: 'u', password: 'p' }, timeout: '2m', redirect: 'manual' }": "GET http://h [] [{Authorization Basic dTpw}] 2m0s manual \"\"",
		", { auth: { bearer: 't' }, timeout: 1500 }":                                  "GET http://h [] [{Authorization Bearer t}] 1.5s follow \"\"",
	} {
		t.Run(options, func(t *testing.T) {
			got := runFetch(t, "yield Message({ value: await (await fetch('http://h'"+options+")).text() })")
			if method, rest, _ := strings.Cut(want, " "); method == "GET" {
				want = " " + rest // the client's default
			}
			expect(t, got, want)
		})
	}
}

// runFetch answers the text of the only message, or the error.
func runFetch(t *testing.T, body string) string {
	t.Helper()
	tr, err := mustCompile(t, Source{Body: stream.Text{File: "f", Line: 1, Column: 1, Text: body}}).NewTransform(Env{
		Outputs: []*stream.Topic{{Name: "out", Key: stream.String, Value: stream.String}}, Fetch: echo,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	b := newBatch(t, nil, input{"k", `{"n":1.0}`})
	if err := tr.Run(t.Context(), b); err != nil {
		var e *Error
		if errors.As(err, &e) {
			return e.Code() + " " + e.Message()
		}
		return err.Error()
	}
	if len(b.Messages) != 1 {
		t.Fatalf("%d messages", len(b.Messages))
	}
	return string(b.Messages[0].Value)
}

func TestFetchAnswers(t *testing.T) {
	show := func(e string) string { return "yield Message({ value: JSON.stringify(" + e + ") })" }
	for body, want := range map[string]string{
		show("[(r = await fetch(':x')).status, r.ok, r.url, r.range, r.headers.get('x-twice'), r.headers.get('none')]"):   `[200,true,"http://h/x",{"start":0,"end":9,"size":null},"a, b",null]`,
		show("await (await fetch(':\\uFEFF{\"a\":1}')).json()"):                                                           `{"a":1}`,
		show("(await (await fetch(':12345678901234567890')).json()) === 12345678901234567890n"):                           "true",
		show("[...await (await fetch(':ab')).bytes()]"):                                                                   `[97,98]`,
		show("[...await (await fetch(':a\\r\\nb\\n\\nc\\n')).lines()]"):                                                   `["a","b","","c"]`,
		show("[...await (await fetch(':a;b')).lines({ separator: ';' })]"):                                                `["a","b"]`,
		show("[...await (await fetch(':a;b\\n1;\\n')).csv({ delimiter: ';', empty: null })]"):                             `[{"a":"1","b":null}]`,
		show("[...await (await fetch(':1\\n{\"a\":2}')).ndjson()]"):                                                       `[1,{"a":2}]`,
		show("await (await fetch(':<a><b/></a>')).xml({ lists: ['b'] })"):                                                 `{"a":{"b":[""]}}`,
		show("(await (await fetch(':<a>')).xml())"):                                                                       "script.error SyntaxError: xml: line 1: the document ends within an element",
		show("(await (await fetch(':no zip')).unzip())"):                                                                  "script.error SyntaxError: unzip: the body is no zip",
		show("(await (await fetch(':x')).protobuf('a.B'))"):                                                               "script.error TypeError: protobuf: the pipeline has no `protobuf:`",
		show("(await fetch(':missing')).status"):                                                                          "404",
		show("(await fetch(':missing', { expect: [404] })).ok"):                                                           "false",
		show("await fetch(':missing it', { expect: 200 })"):                                                               `script.error FetchError: GET http://h/x answered 404: "missing it"`,
		show("await (await fetch(':no')).json()"):                                                                         `script.error FetchError: GET http://h/x answered what is no JSON: "no"`,
		show("(await fetch(':abc', { verify: { size: 3, md5: hash('md5', 'abc'), sha256: hash('sha256', 'abc') } })).ok"): "true",
		show("await fetch(':abc', { verify: { size: 4 } })"):                                                              "script.error FetchError: GET http://h/x answered 3 bytes, and 4 are expected",
		show("await fetch(':abc', { verify: { md5: hash('md5', 'x') } })"):                                                "script.error FetchError: GET http://h/x answered a body whose MD5 is 900150983cd24fb0d6963f7d28e17f72",
		show("await fetch(5)"):                                                                            "script.fetch the URL of fetch is a number, not a string",
		show("await fetch('x', { body: 'a', json: 1 })"):                                                  "script.fetch fetch has both body and json",
		show("await fetch('x', { timeout: 'soon' })"):                                                     "script.fetch timeout of fetch is a string that does not fit, not a duration",
		show("await fetch(':abc', { verify: { sha256: hash('sha256', 'x') } })"):                          "script.error FetchError: GET http://h/x answered a body whose SHA-256 is ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
		show("(await fetch(':abc', { verify: { md5: base64.encode(hash('md5', 'abc', 'bytes')) } })).ok"): "true",
		show("await fetch(':missing', { method: 'delete', expect: [204] })"):                              `script.error FetchError: DELETE http://h/x answered 404: "missing"`,
		show("await fetch('x', { verify: { md5: 'x' } })"):                                                "script.fetch verify.md5 of fetch is not the text of 16 bytes",
		show("await fetch('x', { verify: { size: '4' } })"):                                               "script.fetch verify.size of fetch is a string that does not fit, not a number of bytes",
		show("await fetch('x', { auth: {} })"):                                                            "script.fetch auth of fetch has neither a bearer nor a user alone",
		show("await fetch('x', { auth: { bearer: 'a', user: 'b' } })"):                                    "script.fetch auth of fetch has neither a bearer nor a user alone",
		show("await fetch('x', { auth: { bearer: '' } })"):                                                "script.fetch auth.bearer of fetch is empty",
		show("await fetch('x', { expect: ['200'] })"):                                                     "script.fetch expect of fetch holds a string that does not fit, not a status",
	} {
		t.Run(body, func(t *testing.T) { expect(t, runFetch(t, "let r; "+body), want) })
	}
}
