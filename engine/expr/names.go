package expr

import (
	"slices"
	"strings"
)

// didYouMean is a hint that names the known word nearest to name, or "" when none is near.
func didYouMean(name string, known []string) string {
	letters := len([]rune(name))
	if letters < 3 {
		return ""
	}
	best, bestDistance := "", min(max(letters/3, 1), 3)+1
	for _, k := range known {
		if d := distance(strings.ToLower(name), strings.ToLower(k)); d < bestDistance {
			best, bestDistance = k, d
		}
	}
	if best == "" {
		return ""
	}
	return `did you mean "` + best + `"?`
}

// distance is how many characters must be changed, added, taken away or swapped with their neighbour to make b of a
// (optimal string alignment).
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	if len(x) > 64 || len(y) > 64 {
		return max(len(x), len(y))
	}
	before, last, row := make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range last {
		last[j] = j
	}
	for i := range x {
		row[0] = i + 1
		for j := range y {
			cost := 1
			if x[i] == y[j] {
				cost = 0
			}
			row[j+1] = min(last[j]+cost, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && x[i] == y[j-1] && x[i-1] == y[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(y)]
}

// list names words for a message: "a, b and c".
func list(words []string) string {
	switch n := len(words); n {
	case 0:
		return "nothing"
	case 1:
		return words[0]
	default:
		return strings.Join(words[:n-1], ", ") + " and " + words[n-1]
	}
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
	if hint := didYouMean(name, known); hint != "" {
		return hint
	}
	return `a literal text is quoted inside the expression: '"` + name + `"'; in scope: ` + list(scope)
}
