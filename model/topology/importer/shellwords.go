package importer

import (
	"errors"
	"regexp"
	"strings"
)

// splitWords splits a command line as a shell would, without expanding anything.
func splitWords(line string) (words []string, err error) {
	var word strings.Builder
	inWord, quote := false, rune(0)
	escaped := false
	for _, r := range line {
		switch {
		case escaped:
			if quote == '"' && r != '"' && r != '\\' && r != '$' && r != '`' {
				word.WriteByte('\\')
			}
			word.WriteRune(r)
			escaped = false
		case r == '\\' && quote != '\'':
			escaped, inWord = true, true
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, inWord = r, true
		case r == ' ' || r == '\t' || r == '\n' || r == '\r':
			if inWord {
				words = append(words, word.String())
				word.Reset()
			}
			inWord = false
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	if quote != 0 || escaped {
		return nil, errors.New("a quote is not closed")
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}

// A variable as containerlab replaces it: $$, $NAME, ${NAME}, ${NAME:-default}, ${NAME-default}, and the same with =.
var variable = regexp.MustCompile(`\$(?:\$|([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)(?:(:?[-=])([^}]*))?\})`)

// expandVariables replaces environment variables in the whole file, as containerlab does. One that is not set stays
// as it is, unless it has a default. $$ is a dollar sign.
func expandVariables(data []byte, env func(string) (string, bool)) []byte {
	return variable.ReplaceAllFunc(data, func(match []byte) []byte {
		parts := variable.FindSubmatch(match)
		if string(match) == "$$" {
			return []byte("$")
		}
		name := string(parts[1]) + string(parts[2])
		if env != nil {
			if v, ok := env(name); ok && (v != "" || !strings.HasPrefix(string(parts[3]), ":")) {
				return []byte(v)
			}
		}
		if len(parts[3]) > 0 {
			return parts[4]
		}
		return match
	})
}
