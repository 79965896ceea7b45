package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/flechtwerk/flechtwerk/engine/pipeline"
	"github.com/flechtwerk/flechtwerk/script"
)

func TestFieldsOfScriptsInEachFormatOfTheLog(t *testing.T) {
	for _, c := range []struct {
		format string
		colour bool
		want   string
	}{
		{"json", false, `"level":"warn","msg":"hot","stage":"p/s","fields":{"stage":"mine","list":[1,"a"],"n":1.5,"none":null}}`},
		{"logfmt", false, `level=warn msg=hot stage=p/s fields.stage=mine fields.list="[1,\"a\"]" fields.n=1.5 fields.none=<nil>`},
		{"logfmt", true, `fields.list=` + plainT + `"[1,\"a\"]"`},
	} {
		var b bytes.Buffer
		env := scriptEnv(&pipeline.Pipeline{Name: "p"}, "s", nil, nil, 0, time.Now, newLogger(&b, c.format, slog.LevelInfo, c.colour), NewMetrics(Version{}))
		env.Log("warn", "hot", []script.Field{{Name: "stage", Value: "mine"}, {Name: "list", Value: script.JSON(`[1,"a"]`)}, {Name: "n", Value: 1.5}, {Name: "none", Value: nil}})
		if !strings.Contains(b.String(), c.want) {
			t.Errorf("got %s want %s", b.String(), c.want)
		}
	}
}
