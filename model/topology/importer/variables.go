package importer

import (
	"regexp"
	"strings"
)

// A variable as containerlab replaces it: $$, $NAME, ${NAME}, ${NAME:-default}, ${NAME-default}, the same with =,
// and ${NAME:+other}, ${NAME+other}.
var variable = regexp.MustCompile(`\$(?:\$|([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)(?:(:?[-=+])([^}]*))?\})`)

// expandVariables replaces environment variables in the whole file, as containerlab does. One that is not set stays
// as it is, unless it has a default. $$ is a dollar sign. Shells and their libraries drop a variable that is not set.
func expandVariables(data []byte, env func(string) (string, bool)) []byte {
	return variable.ReplaceAllFunc(data, func(match []byte) []byte {
		parts := variable.FindSubmatch(match)
		if string(match) == "$$" {
			return []byte("$")
		}
		name := string(parts[1]) + string(parts[2])
		plus := strings.HasSuffix(string(parts[3]), "+")
		if env != nil {
			if v, ok := env(name); ok && (v != "" || !strings.HasPrefix(string(parts[3]), ":")) {
				if plus {
					return parts[4]
				}
				return []byte(v)
			}
		}
		if plus {
			return nil
		}
		if len(parts[3]) > 0 {
			return parts[4]
		}
		return match
	})
}
