package slice

import "time"

// Phase is the state of a node.
type Phase string

// The phases of a node.
const (
	Pending  Phase = "pending" // wanted, not made yet
	Starting Phase = "starting"
	Running  Phase = "running"
	Paused   Phase = "paused"  // frozen by `pergola node pause`
	Stopped  Phase = "stopped" // by `pergola node stop`
	Exited   Phase = "exited"  // its first process ended and the restart policy leaves it so
	Failed   Phase = "failed"  // cannot be made: Message says why
	Lost     Phase = "lost"    // its host does not answer, so whether it runs is not known
)

// Status is what a host reports of a slice.
type Status struct {
	Slice string `json:"slice"`
	// Generation is the version of the slice that the host realises.
	Generation int64                 `json:"generation"`
	Settled    bool                  `json:"settled"` // nothing is left to do
	Done       int                   `json:"done"`    // actions carried out in this generation
	Total      int                   `json:"total"`   // actions known to be needed
	Nodes      map[string]NodeStatus `json:"nodes"`
	Links      map[string]LinkStatus `json:"links"`
	Errors     []string              `json:"errors,omitempty"` // what failed; it is tried again
}

// NodeStatus is what a host reports of a node.
type NodeStatus struct {
	Phase    Phase     `json:"phase"`
	Host     string    `json:"host,omitempty"`
	PID      int       `json:"pid,omitempty"` // first process, as the host sees it
	Since    time.Time `json:"since,omitzero"`
	Restarts int       `json:"restarts,omitempty"`
	Message  string    `json:"message,omitempty"`
	// Done says that the first process has ended as it should: other nodes wait for that.
	Done bool `json:"done,omitempty"`
	// FastPath says why a router is not on the fast path although it should be; empty where it is, or should not
	// be.
	FastPath string `json:"fastpath,omitempty"`
	// NoIPv6 says why the node has no IPv6 to the outside, which it reaches; empty where it has, or reaches
	// nothing.
	NoIPv6 string `json:"no_outside_ipv6,omitempty"`
	// Exec has the lines of the node's exec section that failed or printed something, since the node was started.
	Exec []ExecResult `json:"exec,omitempty"`
}

// ExecResult is how a line of a node's exec section ended.
type ExecResult struct {
	Line   string `json:"line"`
	Status int    `json:"status"`           // exit status; -1: it could not be run, and Output says why
	Output string `json:"output,omitempty"` // the end of what it printed
}

// Failed reports whether the line did not do what it should.
func (r ExecResult) Failed() bool { return r.Status != 0 }

// LinkStatus is what a host reports of a link.
type LinkStatus struct {
	Up bool `json:"up"`
	// Shapes has, by node:interface, the shapes that now differ from the file's.
	Shapes map[string]Shape `json:"shapes,omitempty"`
}

// Power is the state in which a user wants a node. It is not part of the topology file: it is stored beside the slice
// and survives restarts.
type Power string

// The wanted states.
const (
	PowerOn     Power = "on"
	PowerOff    Power = "off"
	PowerFrozen Power = "frozen"
)

// Overrides are changes of a running slice by hand: `pergola node`, `pergola link`, `pergola restart`.
type Overrides struct {
	Power    map[string]Power `json:"power,omitempty"`    // by node; absent: on
	Restarts map[string]int   `json:"restarts,omitempty"` // by node: the number of requested restarts
	Down     map[string]bool  `json:"down,omitempty"`     // by link
	// Shapes are in place of the file's, by node:interface: the file's with what was changed (ShapesFor).
	Shapes map[string]Shape `json:"shapes,omitempty"`
}
