package script

import (
	"slices"

	"github.com/dop251/goja"

	"github.com/flechtwerk/flechtwerk/engine/stream"
)

// arrival is what msg of a relay has beside, or in place of, what a record has.
type arrival struct {
	*stream.Arrival
	levels     *goja.Object
	properties *goja.Object
}

var (
	itemNames     = []string{"key", "value", "timestamp", "headers"}
	deliveryNames = []string{"key", "value", "topic", "timestamp", "headers", "levels", "qos", "retained", "properties", "contentType"}
)

func (a *arrival) names() []string {
	if a.Delivery == nil {
		return itemNames
	}
	return deliveryNames
}

func (a *arrival) has(name string) bool { return slices.Contains(a.names(), name) }

// get is a member that only a delivery has.
func (a *arrival) get(v *vm, name string) goja.Value {
	d := a.Delivery
	switch name {
	case "levels":
		if a.levels == nil {
			levels := make([]any, len(d.Levels))
			for i, level := range d.Levels {
				levels[i] = v.values.string(level)
			}
			a.levels = v.rt.NewArray(levels...)
		}
		return a.levels
	case "qos":
		return v.rt.ToValue(int(d.QoS))
	case "retained":
		return v.rt.ToValue(d.Retained)
	case "properties":
		if a.properties == nil {
			a.properties = v.rt.NewDynamicObject(&headers{vm: v, list: d.Properties})
		}
		return a.properties
	case "contentType":
		if d.ContentType == "" {
			return goja.Null()
		}
		return v.values.string(d.ContentType)
	}
	return nil
}
