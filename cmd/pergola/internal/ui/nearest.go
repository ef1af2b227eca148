package ui

import (
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
)

// Nearest gives the candidate that somebody who typed word most likely meant, or "". A third of the letters may be
// wrong; letters that only changed places count as one.
func Nearest(word string, candidates []string) string {
	best, bestDistance := "", min((len(word)+2)/3+1, len(word))
	for _, c := range candidates {
		d := distance(strings.ToLower(word), strings.ToLower(c))
		if d < bestDistance {
			best, bestDistance = c, d
		}
	}
	if best == "" && len(word) > 1 {
		for _, c := range candidates {
			if len(c) < 3 {
				continue
			}
			one, other := strings.ToLower(c), strings.ToLower(word)
			if strings.HasPrefix(one, other) || strings.HasPrefix(other, one) {
				return c
			}
		}
	}
	return best
}

func distance(a, b string) int {
	d := levenshtein.ComputeDistance(a, b)
	if d > 1 && sorted(a) == sorted(b) {
		return 1
	}
	return d
}

func sorted(word string) string {
	letters := []rune(word)
	slices.Sort(letters)
	return string(letters)
}

// DidYouMean is advice that names the nearest candidate; without one it lists those that exist, or says that none
// does.
func DidYouMean(word, noun string, candidates []string) string {
	const few = 12
	switch near := Nearest(word, candidates); {
	case near != "":
		return "did you mean " + near + "?"
	case len(candidates) == 0:
		return "there is no " + noun
	case len(candidates) > few:
		return "there are " + Count(len(candidates), noun) + ", such as " + strings.Join(candidates[:few], ", ")
	}
	return "there is " + strings.Join(candidates, ", ")
}
