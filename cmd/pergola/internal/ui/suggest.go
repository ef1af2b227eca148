package ui

import (
	"strings"

	"github.com/pergola-net/pergola/model/wording"
)

// DidYouMean is advice that names the nearest candidate; without one it lists those that exist, or says that none
// does.
func DidYouMean(word, noun string, candidates []string) string {
	const few = 12
	switch near := wording.Nearest(word, candidates); {
	case near != "":
		return "did you mean " + near + "?"
	case len(candidates) == 0:
		return "there is no " + noun
	case len(candidates) > few:
		return "there are " + wording.Count(len(candidates), noun) + ", such as " +
			strings.Join(candidates[:few], ", ")
	}
	return "there is " + strings.Join(candidates, ", ")
}
