package diagnostic

import (
	"fmt"
	"strings"

	"github.com/pergola-net/pergola/model/wording"
)

// Suggest asks whether the nearest known word was meant; it is empty where no known word is near.
func Suggest(word string, known []string) string {
	if near := wording.Nearest(word, known); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return ""
}

// SuggestOr is suggest, or all known words where none is near and they are few.
func SuggestOr(word string, known []string) string {
	if hint := Suggest(word, known); hint != "" {
		return hint
	}
	if len(known) == 0 || len(known) > 12 {
		return ""
	}
	return "known: " + strings.Join(known, ", ")
}
