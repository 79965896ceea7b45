package script

import (
	"errors"
	"strings"

	"github.com/dop251/goja"
	"github.com/dop251/goja/parser"
)

// What goja's parser and compiler refuse, in words that say what to do.

// parserErrors are what the parser found, and whether it found anything.
func (c *compilation) parserErrors(src *source, err error) (list parser.ErrorList, failed bool) {
	if err == nil {
		return nil, false
	}
	if !errors.As(err, &list) {
		c.report(src.place(src.parts[0].start), "script.syntax", err.Error(), "")
	}
	return list, true
}

// reportSyntax reports what the parser found. Only the first error of a line counts: the parser stumbles on.
func (c *compilation) reportSyntax(src *source, list parser.ErrorList) {
	text := src.text.String()
	lines := map[int]bool{}
	for _, e := range list {
		offset := src.offset(e.Position.Line, e.Position.Column)
		if offset < 0 {
			offset = len(text)
		}
		if lines[e.Position.Line] {
			continue
		}
		lines[e.Position.Line] = true
		if len(lines) > 1 && e.Message == "Unexpected end of input" {
			continue
		}
		before, word := strings.TrimRight(text[:min(offset, len(text))], " \t"), text[min(offset, len(text)):]
		at := src.place(offset)
		switch {
		case strings.HasPrefix(word, "await") && strings.HasSuffix(before, "for"):
			c.report(at, "script.await", "for await is not there", "await the list, then loop: for (const x of await list)")
			return
		case strings.HasPrefix(word, "await"):
			c.report(at, "script.await", awaitMessage, awaitHint)
			return
		case strings.HasSuffix(before, "await"):
			c.report(src.place(len(before)-len("await")), "script.await", awaitMessage, awaitHint)
			return
		case strings.HasPrefix(word, "import"):
			c.report(at, "script.import", "import stands only at the top of a file", "put the body into a file ({ script: file.js }), or what is imported into functions")
			return
		case strings.HasPrefix(word, "export"):
			c.report(at, "script.syntax", "export stands only in a file of its own", "a body is written without a function around it")
			return
		case strings.HasSuffix(before, "yield"):
			c.innerYield(src, len(before)-len("yield"))
			return
		case e.Message == "Illegal return statement":
			c.report(at, "script.functions", "return stands outside of a function", "functions only declare; a body may return")
			return
		case src.find(offset) == nil && strings.HasSuffix(e.Message, "token }") && extraBrace(src) >= 0:
			c.report(src.place(extraBrace(src)), "script.syntax", "this closes more than was opened", "remove the extra }")
			return
		case strings.HasPrefix(word, "/"):
			c.report(at, "script.syntax", "regular expression: "+plainSyntax(e.Message), "")
			continue
		case src.find(offset) == nil && offset >= src.parts[0].end || e.Message == "Unexpected end of input":
			if len(lines) > 1 {
				return // the parser has lost its way before
			}
			p := &src.parts[0]
			if open, what := unclosed(text[p.start:p.end]); open >= 0 {
				c.report(p.place(open), "script.syntax", what+" is not closed", "it is open at the end of the text")
			} else {
				c.report(at, "script.syntax", "the text ends where more is expected", "close what is open: a bracket, a string or a comment")
			}
			return
		}
		c.report(at, "script.syntax", plainSyntax(e.Message), syntaxHint(e.Message))
	}
}

// extraBrace is the offset of the last } if the text parses without it, or -1.
func extraBrace(src *source) int {
	text, p := src.text.String(), &src.parts[len(src.parts)-1]
	i := strings.LastIndexByte(text[p.start:p.end], '}')
	if i < 0 {
		return -1
	}
	i += p.start
	if _, err := parse(text[:i] + " " + text[i+1:]); err != nil {
		return -1
	}
	return i
}

// innerYield reports a yield in a function that is no generator, the usual mistake with forEach and map.
func (c *compilation) innerYield(src *source, offset int) {
	c.report(src.place(offset), "script.yield", innerYieldMessage, innerYieldHint)
}

const (
	innerYieldMessage = "yield stands in a function inside the body"
	innerYieldHint    = "loop with for (const x of list), or make it a function* and run it with yield*"
)

const (
	awaitMessage = "await stands where nothing can wait"
	awaitHint    = "write async before the function around it, and await what that answers; functions do no I/O while they load"
)

func plainSyntax(message string) string {
	if message == "" {
		return "syntax error"
	}
	return strings.ToLower(message[:1]) + message[1:]
}

func syntaxHint(message string) string {
	switch {
	case strings.HasSuffix(message, "token )"):
		return "remove the extra parenthesis, or open one"
	case strings.HasSuffix(message, "token }"):
		return "close what was opened before it, or remove it"
	case strings.HasSuffix(message, "token ILLEGAL"):
		return "a string or a regular expression may not be closed, or a character is not JavaScript"
	}
	return ""
}

// reportCompiler reports what goja's compiler refuses.
func (c *compilation) reportCompiler(src *source, err error) {
	var syntax *goja.CompilerSyntaxError
	if errors.As(err, &syntax) && syntax.File != nil {
		word := src.text.String()[min(syntax.Offset, src.text.Len()):]
		if strings.HasPrefix(word, "yield") {
			c.innerYield(src, syntax.Offset)
			return
		}
		message := plainSyntax(syntax.Message)
		if strings.HasPrefix(word, "/") {
			message = "regular expression: " + message
		}
		c.report(src.place(syntax.Offset), "script.syntax", message, "")
		return
	}
	c.report(src.place(src.parts[0].start), "script.syntax", err.Error(), "")
}
