// Package frr asks FRR's daemons what they run, by their own sockets: vtysh, which users have, takes a hundred times as
// long.
package frr

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// aside are lines that say nothing of how a router is configured, or that vtysh adds to what the daemons say; and what
// the agent tells zebra of the bandwidth of links.
var aside = regexp.MustCompile(`^\s*(!|#|exit|end\s*$|frr (version|defaults)|Building|Current|hostname|domainname|` +
	`(no )?service integrated-vtysh-config|username|link-params|enable\s*$|max-bw|max-rsv-bw|unrsv-bw)`)

// Lines gives the lines of a configuration, each behind those of the contexts that it stands in. Order means nothing.
func Lines(config string) map[string]bool {
	lines := map[string]bool{}
	var at []int // indentation of the contexts
	var in []string
	for line := range strings.Lines(config) {
		line = strings.TrimRight(line, " \t\r\n")
		if line == "" || aside.MatchString(line) {
			continue
		}
		indent := len(line) - len(strings.TrimLeft(line, " "))
		for len(at) > 0 && at[len(at)-1] >= indent {
			at, in = at[:len(at)-1], in[:len(in)-1]
		}
		at, in = append(at, indent), append(in, line[indent:])
		// An interface by itself says nothing: it stays when all in it was removed.
		if !strings.HasPrefix(line, "interface ") {
			lines[strings.Join(in, "\n")] = true
		}
	}
	return lines
}

// Difference lists the lines of two configurations that the other one does not have: "- LINE" and "+ LINE", each behind
// its contexts.
func Difference(old, now string) (lines []string) {
	was, is := Lines(old), Lines(now)
	for _, part := range []struct {
		sign         string
		lines, other map[string]bool
	}{{"- ", was, is}, {"+ ", is, was}} {
		for _, line := range slices.Sorted(maps.Keys(part.lines)) {
			if !part.other[line] && !isContext(line, part.lines) {
				lines = append(lines, part.sign+strings.ReplaceAll(line, "\n", " / "))
			}
		}
	}
	return lines
}

// isContext reports whether other lines stand in a line.
func isContext(line string, all map[string]bool) bool {
	for other := range all {
		if strings.HasPrefix(other, line+"\n") {
			return true
		}
	}
	return false
}

// Same reports whether two texts, of daemons or of vtysh, say the same configuration.
func Same(a, b string) bool {
	x, y := Lines(a), Lines(b)
	if len(x) != len(y) {
		return false
	}
	for line := range x {
		if !y[line] {
			return false
		}
	}
	return true
}

// File is what vtysh shows as the running configuration, as a file that it loads.
func File(shown string) []byte {
	if _, text, found := strings.Cut(shown, "Current configuration:\n"); found {
		shown = text
	}
	return []byte(strings.TrimPrefix(shown, "!\n"))
}
