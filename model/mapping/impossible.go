package mapping

import (
	"fmt"
	"slices"
	"strings"
)

// Impossible says for which node no host was found, and what was wrong with each host.
type Impossible struct {
	Node    string
	With    []string          // nodes that have to be on the same host
	Reasons map[string]string // by host
}

// Error lists at most eight hosts; hosts with the same reason share one entry.
func (e *Impossible) Error() string {
	what := e.Node
	if len(e.With) > 0 {
		what += " with " + strings.Join(e.With, ", ")
	}
	if len(e.Reasons) == 0 {
		return fmt.Sprintf("place node %s: there is no host", what)
	}
	const shown = 8
	hosts := map[string][]string{}
	for host, why := range e.Reasons {
		hosts[why] = append(hosts[why], host)
	}
	var lines []string
	for why, names := range hosts {
		slices.Sort(names)
		if more := len(names) - shown; more > 0 {
			names = append(names[:shown:shown], fmt.Sprintf("%d more", more))
		}
		lines = append(lines, strings.Join(names, ", ")+": "+why)
	}
	slices.Sort(lines)
	return fmt.Sprintf("place node %s: no host can take it: %s", what, strings.Join(lines, "; "))
}

// Unwrap makes errors.Is(err, ErrImpossible) true.
func (e *Impossible) Unwrap() error { return ErrImpossible }
