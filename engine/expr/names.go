package expr

import (
	"slices"

	"github.com/flechtwerk/flechtwerk/engine/wording"
)

// list names words for a message.
func list(words []string) string {
	if len(words) == 0 {
		return "nothing"
	}
	return wording.List(words, "and")
}

// elsewhere are the names of the language that other places than this one have, and where.
var elsewhere = map[string]string{
	"state":     "state belongs to the expressions of an extractor; in a transformer it is there in scripts",
	"config":    "config belongs to the expressions of an extractor",
	"msg":       "expressions name the parts of the record: key, value, headers, timestamp, topic, partition, offset",
	"body":      "body belongs to the expressions of an HTTP answer",
	"status":    "status belongs to the expressions of an HTTP answer",
	"item":      "item belongs to what is said of each item of an HTTP answer: message and until",
	"index":     "in a predicate it is #index",
	"page":      "page belongs to what is said of a page of an HTTP answer: cursor, paginate and stop_when",
	"window":    "windows are not supported yet",
	"tables":    "tables are not supported yet",
	"undefined": "write nil",
	"None":      "write nil",
	"True":      "write true",
	"False":     "write false",
}

// hintForName says what may have been meant by a name that is not in scope.
func hintForName(name string, scope []string) string {
	known := append(slices.Clone(scope), "true", "false", "nil")
	if slices.Contains([]string{"key", "value", "headers", "timestamp", "topic", "partition", "offset"}, name) {
		return "there is no record here; in scope: " + list(scope)
	}
	if slices.Contains(scope, "config") && (name == "state" || name == "now") {
		return "which configs there are does not change with " + map[string]string{"state": "their state", "now": "the time"}[name] + "; in scope: " + list(scope)
	}
	if hint := elsewhere[name]; hint != "" {
		return hint
	}
	if hint := wording.DidYouMean(name, known); hint != "" {
		return hint
	}
	return `a literal text is quoted inside the expression: '"` + name + `"'; in scope: ` + list(scope)
}
