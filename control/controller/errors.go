package controller

import (
	"fmt"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
)

// Reason says why a request is refused.
type Reason int

// The reasons.
const (
	Invalid     Reason = iota // the request is wrong in itself
	NotFound                  // it names what does not exist
	Forbidden                 // the caller may not ask for it
	Conflict                  // it does not fit what is there now
	Unsupported               // this machine cannot do it
)

// Refusal is the answer to a request that cannot be carried out. Nothing was changed.
type Refusal struct {
	Reason  Reason
	Message string  // a sentence for a person: what, and what to do
	Faults  []Fault // one by one, where there are several
}

// Fault is one thing that is wrong with a topology.
type Fault struct {
	Location string // place in the topology: nodes.denver.memory
	Message  string
}

func (r *Refusal) Error() string { return r.Message }

func refuse(reason Reason, format string, args ...any) *Refusal {
	return &Refusal{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// unknown refuses a name that does not exist, and offers the closest that does.
func unknown(what, name, in string, names []string) *Refusal {
	hint := ""
	if best := closest(name, names); best != "" {
		hint = fmt.Sprintf(": did you mean %s?", best)
	}
	return refuse(NotFound, "slice %s has no %s %q%s", in, what, name, hint)
}

// closest gives the name that was probably meant, or nothing: at most a third of its letters are wrong, or two that
// changed places.
func closest(name string, names []string) string {
	most := max(2, len(name)/3)
	if len(name) < 3 {
		most = 1
	}
	best, distance := "", most+1
	for _, candidate := range slices.Sorted(slices.Values(names)) {
		if d := levenshtein.ComputeDistance(strings.ToLower(name), strings.ToLower(candidate)); d < distance {
			best, distance = candidate, d
		}
	}
	return best
}
