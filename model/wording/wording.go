// Package wording writes what messages have in common: counts with their nouns, and suggestions for misspelt names.
package wording

import (
	"fmt"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
)

// Count writes a number with its noun: "1 node", "11 nodes".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %s", n, Plural(noun))
}

// Plural gives the plural of a regular noun: "nodes", "switches".
func Plural(noun string) string {
	for _, sibilant := range []string{"ch", "sh", "s", "x"} {
		if strings.HasSuffix(noun, sibilant) {
			return noun + "es"
		}
	}
	return noun + "s"
}

// DidYouMean asks whether the nearest candidate was meant; it is empty where Nearest finds none.
func DidYouMean(word string, candidates []string) string {
	if near := Nearest(word, candidates); near != "" {
		return "did you mean " + near + "?"
	}
	return ""
}

// Nearest gives the candidate that the misspelt word most likely stands for, or "". Upper and lower case are equal.
// The edit distance is at most a third of the word's length, rounded up, and less than the length; letters in another
// order are a distance of one. Without such a candidate, Nearest takes one that begins with the word, or the word with
// it. Of equally near candidates it takes the first in alphabetical order.
func Nearest(word string, candidates []string) string {
	candidates = slices.Sorted(slices.Values(candidates))
	best, bestDistance := "", min((len(word)+2)/3+1, len(word))
	for _, c := range candidates {
		if d := distance(strings.ToLower(word), strings.ToLower(c)); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	if best == "" {
		return sharedPrefix(word, candidates)
	}
	return best
}

// sharedPrefix gives the first candidate that begins with word, or that word begins with, where both are long enough
// to tell.
func sharedPrefix(word string, candidates []string) string {
	const shortestWord, shortestCandidate = 2, 3
	if len(word) < shortestWord {
		return ""
	}
	for _, c := range candidates {
		one, other := strings.ToLower(c), strings.ToLower(word)
		if len(c) >= shortestCandidate && (strings.HasPrefix(one, other) || strings.HasPrefix(other, one)) {
			return c
		}
	}
	return ""
}

// distance is the Levenshtein distance, except that two words of the same letters have a distance of at most one.
func distance(a, b string) int {
	d := levenshtein.ComputeDistance(a, b)
	if d > 1 && letters(a) == letters(b) {
		return 1
	}
	return d
}

// letters gives the letters of a word in alphabetical order.
func letters(word string) string {
	runes := []rune(word)
	slices.Sort(runes)
	return string(runes)
}
