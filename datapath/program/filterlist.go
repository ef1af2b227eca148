package program

import (
	"fmt"
	"strings"
)

// ParseFilterList reads filters that are one each, as ParseFilters has them. An error names the filter.
func ParseFilterList(lines []string, fields []Field) ([]Filter, error) {
	all := make([]Filter, 0, len(lines))
	for _, line := range lines {
		f, err := parseFilter(line, fields)
		if err != nil {
			return nil, fmt.Errorf("filter %q: %w", strings.TrimSpace(line), err)
		}
		all = append(all, f)
	}
	return all, nil
}
