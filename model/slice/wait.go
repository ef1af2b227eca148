package slice

import (
	"fmt"
	"slices"
	"strings"
)

// Until says how far another node has to be before one that waits for it is started.
type Until string

// How far a node can be.
const (
	UntilRunning Until = "running" // its first process has been started
	UntilReady   Until = "ready"   // its exec lines have ended, too
	UntilExited  Until = "exited"  // its first process has ended with status 0
)

// WaitFor is a node that another one waits for.
type WaitFor struct {
	Node  string `json:"node"`
	Until Until  `json:"until"`
}

// ParseWaitFor reads "node" (until it runs) or "node:until".
func ParseWaitFor(text string) (w WaitFor, err error) {
	node, until, given := strings.Cut(text, ":")
	w = WaitFor{node, UntilRunning}
	if given {
		w.Until = Until(until)
	}
	switch w.Until {
	case UntilRunning, UntilReady, UntilExited:
		return w, nil
	}
	return w, fmt.Errorf("%q is none of %s, %s, %s", until, UntilRunning, UntilReady, UntilExited)
}

func (w WaitFor) String() string {
	if w.Until == UntilRunning {
		return w.Node
	}
	return w.Node + ":" + string(w.Until)
}

// Reached says what the node that is waited for has to have done, for messages.
func (w WaitFor) Reached() string {
	switch w.Until {
	case UntilReady:
		return w.Node + " to have run its exec lines"
	case UntilExited:
		return w.Node + " to end"
	case UntilRunning:
	}
	return w.Node + " to run"
}

// AwaitsEnd tells whether nodes of the slice wait for the end of a node's first process.
func (s *Slice) AwaitsEnd(node string) bool {
	return slices.ContainsFunc(s.Nodes, func(n Node) bool {
		return slices.Contains(n.WaitFor, WaitFor{node, UntilExited})
	})
}
