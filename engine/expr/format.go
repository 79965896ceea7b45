package expr

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxFormatWidth bounds the width and precision of a verb.
const maxFormatWidth = 1000

// verb is one verb of a format: its flags, width and precision as fmt takes them, and its letter. A literal text has no
// letter.
type verb struct {
	spec   string
	letter byte
}

// parseFormat cuts a format into texts and verbs, or says what is wrong with it.
func parseFormat(format string) (verbs []verb, problem string) {
	for format != "" {
		i := strings.IndexByte(format, '%')
		if i < 0 {
			return append(verbs, verb{spec: format}), ""
		}
		if i > 0 {
			verbs = append(verbs, verb{spec: format[:i]})
		}
		format = format[i+1:]
		if strings.HasPrefix(format, "%") {
			verbs, format = append(verbs, verb{spec: "%"}), format[1:]
			continue
		}
		n, number, dots := 0, 0, 0
	spec:
		for ; n < len(format); n++ {
			switch b := format[n]; {
			case strings.IndexByte("+-# ", b) >= 0 && number == 0 && dots == 0:
			case b-'0' <= 9:
				if number = number*10 + int(b-'0'); number > maxFormatWidth {
					return nil, fmt.Sprintf("a width in the format is more than %d", maxFormatWidth)
				}
			case b == '.' && dots == 0:
				dots, number = 1, 0
			default:
				break spec
			}
		}
		if n == len(format) {
			return nil, "the format ends within a verb; %% is a percent sign"
		}
		if strings.IndexByte("dxXobcfFeEgGsqvt", format[n]) < 0 {
			r, _ := utf8.DecodeRuneInString(format[n:])
			return nil, fmt.Sprintf("the format has an unknown verb %%%c; there are %%d %%f %%e %%g %%x %%s %%q %%v %%t", r)
		}
		verbs = append(verbs, verb{"%" + format[:n+1], format[n]})
		format = format[n+1:]
	}
	return verbs, ""
}

func countVerbs(verbs []verb) int {
	n := 0
	for _, v := range verbs {
		if v.letter != 0 {
			n++
		}
	}
	return n
}

func checkFormat(args []node) (int, string) {
	format, ok := constantText(args, 0)
	if !ok {
		return 0, ""
	}
	verbs, problem := parseFormat(format)
	if problem != "" {
		return 0, problem
	}
	if n := countVerbs(verbs); n != len(args)-1 {
		return 0, fmt.Sprintf("the format has %d verbs, and values for it %s", n, amount(len(args)-1))
	}
	i := 0
	for _, v := range verbs {
		if v.letter == 0 {
			continue
		}
		i++
		if takes := verbTakes(v.letter); args[i].types&(takes|tNil) == 0 {
			return i, fmt.Sprintf("%%%c takes %s, and this is %s", v.letter, takes, args[i].types)
		}
	}
	return 0, ""
}

func verbTakes(letter byte) types {
	switch letter {
	case 'd', 'o', 'b', 'c', 'f', 'F', 'e', 'E', 'g', 'G':
		return tNumber
	case 'x', 'X':
		return tNumber | tText | tBytes
	case 't':
		return tBool
	}
	return tAny &^ tNil
}

// formatText is format(text, values…), printf as Go has it. %v and %s print a value as string(x) does.
func formatText(env *Env, args []Value, pos int) Value {
	verbs, problem := parseFormat(args[0].str)
	if problem == "" && countVerbs(verbs) != len(args)-1 {
		problem = "the format has another number of verbs than there are values"
	}
	if problem != "" {
		return env.fail(pos, CodeValue, problem)
	}
	var out []byte
	i := 0
	for _, v := range verbs {
		if v.letter == 0 {
			out = append(out, v.spec...)
			continue
		}
		i++
		arg := args[i]
		if takes := verbTakes(v.letter); arg.types()&takes == 0 {
			return env.fail(pos, CodeOperand, fmt.Sprintf("%%%c takes %s, and here is %s", v.letter, takes, arg.types()))
		}
		before := len(out)
		switch v.letter {
		case 'd', 'o', 'b', 'c':
			n, ok := arg.whole()
			if !ok {
				return env.fail(pos, CodeOperand, fmt.Sprintf("%%%c takes a whole number within 64 bits", v.letter))
			}
			out = fmt.Appendf(out, v.spec, n)
		case 'f', 'F', 'e', 'E', 'g', 'G':
			if arg.kind == kBig {
				return env.bigNumber(pos)
			}
			out = fmt.Appendf(out, v.spec, arg.double())
		case 't':
			out = fmt.Appendf(out, v.spec, arg.num != 0)
		case 'x', 'X':
			if n, ok := arg.whole(); ok {
				out = fmt.Appendf(out, v.spec, n)
			} else if arg.types() == tNumber {
				return env.fail(pos, CodeOperand, fmt.Sprintf("%%%c takes a whole number within 64 bits, or a text", v.letter))
			} else {
				out = fmt.Appendf(out, v.spec, arg.str)
			}
		default:
			text := stringOf(env, arg, pos)
			if env.failure.code != "" {
				return Value{}
			}
			spec := v.spec
			if v.letter == 'v' {
				spec = spec[:len(spec)-1] + "s"
			}
			out = fmt.Appendf(out, spec, text.str)
		}
		if !env.spend(len(out) - before) {
			return Value{}
		}
	}
	return textValue(string(out))
}
