package controller

import (
	"fmt"

	"github.com/pergola-net/pergola/model/wording"
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
	Full                      // there is not enough left
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
	if meant := wording.DidYouMean(name, names); meant != "" {
		hint = ": " + meant
	}
	return refuse(NotFound, "network %s has no %s %q%s", in, what, name, hint)
}
