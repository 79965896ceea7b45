package decode

import (
	"strings"
	"testing"
)

func TestXML(t *testing.T) {
	decodes(t, Config{Format: XML}, []decodeCase{
		{`<?xml version="1.0"?><!DOCTYPE a><a/>`, `{"a":""}` + "\n"},
		{"\uFEFF<a> x &amp; <![CDATA[<y>]]>\n</a>\n", `{"a":"x & <y>"}` + "\n"},
		{`<a id="1" x:b='"'>t<b/><c>1</c><b n="2">3</b>u<!-- no --></a>`, `{"a":{"@id":"1","@x:b":"\"","b":["",{"@n":"2","#text":"3"}],"c":"1","#text":"tu"}}` + "\n"},
		{"<a>\n <b>\n  <c>1</c>\n </b>\n</a>", `{"a":{"b":{"c":"1"}}}` + "\n"},
		{`<x:a xmlns:x="u" xmlns="v"><x:b/><b/></x:a>`, `{"x:a":{"@xmlns:x":"u","@xmlns":"v","x:b":"","b":""}}` + "\n"},
		{"<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><a>\xe9\x80</a>", `{"a":"é€"}` + "\n"},
		{`<a b="&lt;&#x41;"/>`, `{"a":{"@b":"<A"}}` + "\n"},

		{"", "decode.syntax: line 1: there is no element\n"},
		{"{}", "decode.syntax: line 1: text where the root should be\n"},
		{"<a>", "decode.syntax: line 1: the document ends within an element\n"},
		{"<a>\n<b", "decode.syntax: line 2: the document ends too early\n"},
		{"<a>\n</b>", "decode.syntax: line 2: a closing tag of another element than the one that is open\n"},
		{"</a>", "decode.syntax: line 1: a closing tag of another element than the one that is open\n"},
		{"<a/><b/>", "decode.syntax: line 1: a second element beside the root\n"},
		{"<a/>x", "decode.syntax: line 1: text behind the root\n"},
		{`<a b="1" b="2"/>`, "decode.syntax: line 1: an attribute comes twice in one element\n"},
		{`<a>&secret;</a>`, "decode.syntax: line 1: an entity that is not known; &amp; stands for an ampersand\n"},
		{`<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>`, "decode.syntax: line 1: an entity that is not known; &amp; stands for an ampersand\n"},
		{"<a>\n\xff</a>", "decode.utf8: line 2: a text that is not UTF-8\n"},
		{"<a>\x01</a>", "decode.syntax: line 1: a character that XML does not allow\n"},
		{"<a b=c/>", "decode.syntax: line 1: an attribute without a quoted value\n"},
		{"<a></a secret>", "decode.syntax: line 1: text inside of a closing tag\n"},
		{`<?xml version="1.0" encoding="EBCDIC"?><a/>`, "decode.utf8: line 1: the document is in an encoding that is not known here; UTF-8, ISO-8859-1 and -2, -5, -15 and windows-1250 to -1252 are\n"},
	})
	decodes(t, Config{Format: XML, Tree: Tree{Lists: []string{"b"}}}, []decodeCase{
		{`<a><b>1</b></a>`, `{"a":{"b":["1"]}}` + "\n"}, {`<a><b>1</b><b/></a>`, `{"a":{"b":["1",""]}}` + "\n"}, {"<a/>", `{"a":""}` + "\n"},
	})
	decodes(t, Config{Format: XML, Limits: Limits{Depth: 4}}, []decodeCase{
		{`<a><b/></a>`, `{"a":{"b":""}}` + "\n"}, {`<a><b><c/></b></a>`, "decode.depth: line 1: nested too deep\n"},
	})
	decodes(t, Config{Format: XML, Limits: Limits{Item: 100}}, []decodeCase{
		{"<a>" + strings.Repeat("x", 9000) + "</a>", "decode.too_large: line 1: an item of more than 100 bytes; the limit of an item allows more\n"},
		{"<a>" + strings.Repeat("x", 101) + "</a>", "decode.too_large: line 1: an item of more than 100 bytes as JSON; the limit of an item allows more\n"},
	})
}

func TestXMLList(t *testing.T) {
	decodes(t, Config{Format: XML, List: true, Path: []string{"feed", "entry"}}, []decodeCase{
		{`<feed xmlns="u"><title>t</title><entry><id>1</id></entry><entry n="2"/> <x><entry/></x><entry>3</entry></feed>`, `
{"id":"1"}
{"@n":"2"}
"3"
rest {"feed":{"@xmlns":"u","title":"t","x":{"entry":""}}}
`},
		{`<feed/>`, `rest {"feed":""}` + "\n"},
		{`<rss><entry/></rss>`, `rest {"rss":{"entry":""}} without a list` + "\n"},
		{`<feed><entry>1</entry>`, "\"1\"\ndecode.syntax: line 1: the document ends within an element\n"},
	})
	decodes(t, Config{Format: XML, List: true, Path: []string{"a", "b", "c"}, Tree: Tree{Lists: []string{"d"}}}, []decodeCase{
		{`<a><b><c>1</c></b><b><c><d/></c><e/></b></a>`, "\"1\"\n{\"d\":[\"\"]}\nrest {\"a\":{\"b\":[\"\",{\"e\":\"\"}]}}\n"},
		{`<a/>`, "rest {\"a\":\"\"} without a list\n"},
	})
	decodes(t, Config{Format: XML, List: true, Path: []string{"a"}}, []decodeCase{{`<a>1</a>`, "\"1\"\nrest {}\n"}, {`<b/>`, "rest {\"b\":\"\"} without a list\n"}})

	// What is held does not grow with the list.
	many := "<a>" + strings.Repeat("<b>0123456789</b>\n", 10_000) + "<c/></a>"
	d, err := New(Config{Format: XML, List: true, Path: []string{"a", "b"}, Limits: Limits{Item: 100}})
	if err != nil {
		t.Fatal(err)
	}
	if got := items(t, d.Open(strings.NewReader(many))); strings.Count(got, "\n") != 10_001 || !strings.HasSuffix(got, "rest {\"a\":{\"c\":\"\"}}\n") {
		t.Errorf("%d lines, the last ones %q", strings.Count(got, "\n"), got[max(0, len(got)-100):])
	}
}
