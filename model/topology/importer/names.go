package importer

import (
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// maxName is the longest label of a host name (RFC 1123).
const maxName = 63

// letters that Unicode does not decompose into an ASCII one and accents.
var letters = strings.NewReplacer("ß", "ss", "ø", "o", "æ", "ae", "œ", "oe", "ł", "l", "đ", "d", "ð", "d", "þ", "th",
	"ı", "i")

// slug makes a host name of a label: lower-case letters, digits and single hyphens. It is empty where nothing of the
// label is left.
func slug(label string) string {
	var b strings.Builder
	hyphen := false
	for _, r := range norm.NFD.String(letters.Replace(strings.ToLower(label))) {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			if hyphen && b.Len() > 0 {
				b.WriteByte('-')
			}
			hyphen = false
			b.WriteRune(r)
		case unicode.Is(unicode.Mn, r) || r == '\'' || r == '’': // an accent, or as in St. John's
		default:
			hyphen = true
		}
	}
	s := b.String()
	return strings.Trim(s[:min(len(s), maxName)], "-")
}

// namer gives unique names.
type namer map[string]bool

// name makes a name of the first of the labels that leaves one; a second one of the same name gets -2, and so on.
// A name of digits alone would read as a number in a topology file, so that prefix comes before it.
func (n namer) name(prefix string, labels ...string) string {
	base := ""
	for _, l := range labels {
		if base = slug(l); base != "" {
			break
		}
	}
	if strings.Trim(base, "0123456789") == "" {
		base = prefix + base
	}
	base = base[:min(len(base), maxName-6)]
	for k := 1; ; k++ {
		name := base
		if k > 1 {
			name += "-" + strconv.Itoa(k)
		}
		if !n[name] {
			n[name] = true
			return name
		}
	}
}
