package report

import (
	"fmt"

	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
)

// Filters is the table of a program node's filters.
func Filters(all *api.NodeFilters) *ui.Table {
	t := &ui.Table{Columns: []string{"TABLE", "PRIORITY", "MATCH", "RESULT", "HITS"}}
	for _, f := range all.Filters {
		t.Row(fmt.Sprint(f.Table), fmt.Sprint(f.Priority), f.Match, f.Result, fmt.Sprint(f.Hits))
	}
	return t
}
