package script

import (
	"math"
	"strconv"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // zones by name, wherever it runs

	"github.com/dop251/goja"
	"github.com/itchyny/timefmt-go"
)

// maxTime is the largest time of a Date, in milliseconds from 1970 (ECMA-262, 21.4.1.1).
const maxTime = 8_640_000_000_000_000

// maxLayout is the longest layout, in bytes.
const maxLayout = 1 << 10

// directives are those of strftime that a layout may have, each for both directions. %L, milliseconds, is ours.
const directives = "YyCGgmBbhAaUuVWwdejHkIlpPMSsfLZzntcvrFDxTXR+%"

func newTime(v *vm) goja.Value {
	return v.functions("time", map[string]func(goja.FunctionCall) goja.Value{
		"parse": v.timeParse,
		"format": func(call goja.FunctionCall) goja.Value {
			const function = "time.format"
			t, layout := v.timeOf(function, call.Argument(0)), v.layout(function, call.Argument(1))
			t = t.In(v.zone(function, call.Argument(2)))
			return v.rt.ToValue(timefmt.Format(t, milliseconds(layout, func() string {
				return strconv.Itoa(t.Nanosecond()/int(time.Millisecond) + 1000)[1:]
			})))
		},
		"iso": func(call goja.FunctionCall) goja.Value {
			const function = "time.iso"
			t, digits := v.timeOf(function, call.Argument(0)), 3
			if value := option(v.options(function, call.Argument(1), "digits"), "digits"); value != nil {
				digits = int(v.integerOf(function, "the option digits", value, 0, 9))
			}
			return v.rt.ToValue(isoText(t, digits))
		},
	})
}

// isoText is a time in UTC with a number of digits behind the second.
func isoText(t time.Time, digits int) string {
	text := string(appendISO(nil, t))
	text = text[:len(text)-len(".000Z")]
	if digits > 0 {
		text += "." + strconv.Itoa(t.Nanosecond() + 1_000_000_000)[1:1+digits]
	}
	return text + "Z"
}

// timeOf is an argument that is a number of milliseconds or a Date.
func (v *vm) timeOf(function string, value goja.Value) time.Time {
	o, object := value.(*goja.Object)
	if !goja.IsNumber(value) && !(object && o.ClassName() == "Date") {
		v.wrong(function, "the time is %s; a number of milliseconds or a Date is expected", kindName(value))
	}
	ms := value.ToFloat()
	if !(math.Abs(ms) <= maxTime) {
		v.raise("RangeError", codeArgument, "%s: the time is no time of a Date", function)
	}
	whole := math.Floor(ms)
	return time.UnixMilli(int64(whole)).Add(time.Duration((ms - whole) * float64(time.Millisecond))).UTC()
}

func (v *vm) layout(function string, value goja.Value) string {
	layout := v.textOf(function, "the layout", value)
	if len(layout) > maxLayout {
		v.wrong(function, "the layout is longer than %d bytes", maxLayout)
	}
	for i := 0; i < len(layout); i++ {
		if layout[i] != '%' {
			continue
		}
		i++
		for i < len(layout) && strings.IndexByte("-_^#0:", layout[i]) >= 0 {
			i++
		}
		if i == len(layout) || strings.IndexByte(directives, layout[i]) < 0 {
			v.wrong(function, "the layout has a directive that strftime does not know, or ends in one")
		}
	}
	return layout
}

// milliseconds replaces each %L of a layout.
func milliseconds(layout string, by func() string) string {
	if !strings.Contains(layout, "%L") {
		return layout
	}
	return eachDirective(layout, func(directive byte) string {
		if directive == 'L' {
			return by()
		}
		return ""
	})
}

// eachDirective replaces those directives without flags that replace has a text for.
func eachDirective(layout string, replace func(directive byte) string) string {
	var b strings.Builder
	for i := 0; i < len(layout); i++ {
		if layout[i] == '%' && i+1 < len(layout) {
			i++
			if by := replace(layout[i]); by != "" {
				b.WriteString(by)
				continue
			}
			b.WriteByte('%')
		}
		b.WriteByte(layout[i])
	}
	return b.String()
}

var zones sync.Map // name → *time.Location, of the zones that there are

// zone is an argument that names a zone or an offset; left out it is UTC.
func (v *vm) zone(function string, value goja.Value) *time.Location {
	if goja.IsUndefined(value) || goja.IsNull(value) {
		return time.UTC
	}
	name := v.textOf(function, "the zone", value)
	switch name {
	case "UTC", "Z", "GMT":
		return time.UTC
	case "", "Local":
	default:
		if known, ok := zones.Load(name); ok {
			return known.(*time.Location)
		}
		for _, layout := range []string{"-07:00", "-0700", "-07"} {
			if t, err := time.Parse(layout, name); err == nil {
				_, offset := t.Zone()
				return time.FixedZone("", offset)
			}
		}
		if l, err := time.LoadLocation(name); err == nil {
			zones.Store(name, l)
			return l
		}
	}
	v.raise("RangeError", codeArgument, "%s: the zone is not known; write a name like Europe/Berlin or an offset like +02:00", function)
	return nil
}

func (v *vm) timeParse(call goja.FunctionCall) goja.Value {
	const function = "time.parse"
	value := call.Argument(0)
	var layout string
	if l := call.Argument(1); !goja.IsUndefined(l) && !goja.IsNull(l) {
		layout = v.layout(function, l)
	}
	location := v.zone(function, call.Argument(2))
	if !goja.IsString(value) {
		return goja.Null()
	}
	var t time.Time
	var ok bool
	if text := value.String(); layout == "" {
		t, ok = parseISO(text, location)
	} else {
		t, ok = parseLayout(text, milliseconds(layout, func() string { return "%f" }), location)
	}
	if !ok || t.UnixMilli() > maxTime || t.UnixMilli() < -maxTime {
		return goja.Null()
	}
	return v.rt.ToValue(t.UnixMilli())
}

var isoLayouts = []string{"2006-01-02T15:04:05Z07:00", "2006-01-02T15:04:05", "2006-01-02T15:04:05Z0700", "2006-01-02T15:04:05Z07",
	"2006-01-02T15:04Z07:00", "2006-01-02T15:04", "2006-01-02T15:04Z0700"}

// parseISO reads a date, or a date and time, of ISO 8601 in its extended form, with any number of digits behind the second.
// A text without an offset is a time of location.
func parseISO(text string, location *time.Location) (time.Time, bool) {
	if len(text) == len(time.DateOnly) {
		t, err := time.ParseInLocation(time.DateOnly, text, location)
		return t, err == nil
	}
	if len(text) < len("2006-01-02T15:04") || text[13] != ':' || strings.IndexByte("Tt ", text[10]) < 0 {
		return time.Time{}, false
	}
	text = text[:10] + "T" + text[11:]
	if before, ok := strings.CutSuffix(text, "z"); ok {
		text = before + "Z"
	}
	for _, layout := range isoLayouts {
		if t, err := time.ParseInLocation(layout, text, location); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

// parseLayout reads a text by a layout. A day that its month has not does not fit.
func parseLayout(text, layout string, location *time.Location) (time.Time, bool) {
	layout = eachDirective(layout, func(directive byte) string { return composed[directive] })
	t, err := timefmt.ParseInLocation(text, layout, location)
	if err != nil {
		return time.Time{}, false
	}
	if t.Day() > 3 {
		return t, true
	}
	// The 29th to 31st of a shorter month, and the 366th day of a shorter year, came out as one of the first days of
	// the next. Then no text of this day fits.
	fits := false
	for _, day := range []string{strconv.Itoa(t.Day() + 100)[1:], strconv.Itoa(t.Day()), " " + strconv.Itoa(t.Day())} {
		own := eachDirective(layout, func(directive byte) string {
			switch directive {
			case 'd', 'e':
				return day
			case 'j':
				return strconv.Itoa(t.YearDay() + 1000)[1:]
			}
			return ""
		})
		if own == layout {
			return t, true
		}
		_, err := timefmt.ParseInLocation(text, own, location)
		fits = fits || err == nil
	}
	return t, fits
}

// composed are the directives that stand for several, with a day among them.
var composed = map[byte]string{
	'F': "%Y-%m-%d", 'D': "%m/%d/%y", 'x': "%m/%d/%y", 'c': "%a %b %e %H:%M:%S %Y", '+': "%a %b %e %H:%M:%S %Z %Y", 'v': "%e-%b-%Y",
}
