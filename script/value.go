package script

import (
	"math/big"

	"github.com/dop251/goja"

	"github.com/flechtwerk/flechtwerk/engine/rawjson"
)

// values makes JavaScript values of JSON texts.
type values struct {
	rt   *goja.Runtime
	bigs []string // names of the members that came as BigInt in this call
}

const maxSafe = 1<<53 - 1

// decode is the value of a JSON text that was checked.
func (vs *values) decode(raw []byte) goja.Value { return vs.decodeMember("", raw) }

func (vs *values) decodeMember(name string, raw []byte) goja.Value {
	switch rawjson.KindOf(raw[0]) {
	case rawjson.Null:
		return goja.Null()
	case rawjson.True:
		return vs.rt.ToValue(true)
	case rawjson.False:
		return vs.rt.ToValue(false)
	case rawjson.Number:
		return vs.number(name, raw)
	case rawjson.String:
		text, _ := rawjson.Text(raw)
		return vs.rt.ToValue(text)
	case rawjson.Array:
		return vs.array(raw)
	default:
		return vs.object(raw)
	}
}

func (vs *values) number(name string, raw []byte) goja.Value {
	f := rawjson.Float(raw)
	if (f > maxSafe || f < -maxSafe) && rawjson.IsInteger(raw) {
		if b, ok := new(big.Int).SetString(string(raw), 10); ok {
			if name != "" && len(vs.bigs) < 16 {
				vs.bigs = append(vs.bigs, name)
			}
			return vs.rt.ToValue(b)
		}
	}
	return vs.rt.ToValue(f)
}

func (vs *values) array(raw []byte) *goja.Object {
	spans := rawjson.Elements(raw, nil)
	items := make([]any, len(spans))
	for i, s := range spans {
		items[i] = vs.decode(raw[s.Start:s.End])
	}
	return vs.rt.NewArray(items...)
}

func (vs *values) object(raw []byte) *goja.Object {
	o := vs.rt.NewObject()
	for _, m := range rawjson.Members(raw, nil) {
		name := m.Name(raw)
		define(o, name, vs.decodeMember(name, raw[m.Start:m.End]))
	}
	return o
}

// define makes an ordinary member of o, whatever its prototypes say.
func define(o *goja.Object, name string, value goja.Value) {
	must(o.DefineDataProperty(name, value, goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_TRUE))
}

// must is for calls into goja that cannot fail on the objects of this package.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// isIndex tells whether a member name is an array index, which JavaScript orders before all others.
func isIndex(name string) bool {
	if name == "" || len(name) > 10 || name[0] == '0' && len(name) > 1 {
		return false
	}
	n := uint64(0)
	for i := 0; i < len(name); i++ {
		d := name[i] - '0'
		if d > 9 {
			return false
		}
		n = n*10 + uint64(d)
	}
	return n < 1<<32-1
}
