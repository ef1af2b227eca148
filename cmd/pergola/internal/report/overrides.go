package report

import (
	"maps"
	"slices"

	"github.com/pergola-net/pergola/model/slice"
)

// Overrides says, a line each, what was changed by hand and differs from the file, and what undoes it.
func Overrides(o slice.Overrides) (lines []string) {
	for _, node := range slices.Sorted(maps.Keys(o.Power)) {
		switch o.Power[node] {
		case slice.PowerOff:
			lines = append(lines, "node "+node+" is stopped: `pergola node start "+node+"`")
		case slice.PowerFrozen:
			lines = append(lines, "node "+node+" is paused: `pergola node resume "+node+"`")
		case slice.PowerOn:
		}
	}
	for _, link := range slices.Sorted(maps.Keys(o.Down)) {
		if o.Down[link] {
			lines = append(lines, "link "+link+" is down: `pergola link up "+link+"`")
		}
	}
	for _, end := range slices.Sorted(maps.Keys(o.Shapes)) {
		lines = append(lines, "frames that leave "+end+
			" are not treated as the file says: `pergola link reset "+end+"`")
	}
	return lines
}
