package pipeline

import (
	"errors"

	"github.com/goccy/go-yaml"
)

// ParseSettings reads the YAML map of a settings file, which is no pipeline.
func ParseSettings(text []byte) (map[string]any, error) {
	var settings map[string]any
	err := yaml.Unmarshal(text, &settings)
	if at := yaml.Error(nil); errors.As(err, &at) {
		return nil, errors.New(at.GetMessage())
	}
	return settings, err
}
