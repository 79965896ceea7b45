package script

import (
	"time"

	"github.com/dlclark/regexp2/v2"
)

// goja and the regular expressions behind it read two settings of the process. They are set before anything runs, since
// nobody could set them later without a race.
//
// Date works in time.Local; scripts are promised UTC.
//
// A regular expression with look-around or back-references may run for ages and does not notice an interrupt; when its
// own timeout ends it, goja takes that for "no match". So the timeout must be longer than a script may run: then an
// interrupt is pending, and the wrong answer is never seen.
var _ = func() struct{} {
	time.Local = time.UTC
	regexp2.DefaultMatchTimeout = longestMatch
	return struct{}{}
}()

// longestMatch is how long one match may take, unless LimitMatches says otherwise. It is above the default timeout of polls,
// five minutes.
const longestMatch = 10 * time.Minute

// LimitMatches says how long the scripts of the process may run at most, before any of them is compiled: a match that takes
// longer by a quarter is given up.
func LimitMatches(longest time.Duration) {
	regexp2.DefaultMatchTimeout = longest + longest/4 + time.Second
}
