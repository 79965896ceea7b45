package pipeline

import (
	"fmt"
	"strings"

	"github.com/flechtwerk/flechtwerk/engine/wording"
)

// didYouMean is the hint for a misspelt word: the nearest of the known ones, or nothing if none is near.
func didYouMean(word string, known []string) string {
	if best := nearest(word, known); best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	return ""
}

// nearest is the known word that word was probably meant to be: one that is spelt nearly so, or else the first that goes on
// where it ends, or ends before it does.
func nearest(word string, known []string) string {
	if best := wording.Nearest(word, known); best != "" {
		return best
	}
	for _, k := range known {
		if len(word) >= 4 && (strings.HasPrefix(k, word) || strings.HasPrefix(word, k)) {
			return k
		}
	}
	return ""
}
