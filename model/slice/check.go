package slice

import "time"

// CheckKind says how a Check is carried out.
type CheckKind string

// The kinds of check.
const (
	CheckPing CheckKind = "ping" // From reaches To by ICMP echo
	CheckPath CheckKind = "path" // packets from From to To pass the nodes of Via, in this order
	CheckExec CheckKind = "exec" // Command, run by a shell in From, ends with Status and prints what Output matches
)

// Check is one statement about the running network that `pergola check` verifies.
type Check struct {
	Name    string        `json:"name"`
	Kind    CheckKind     `json:"kind"`
	From    string        `json:"from"`
	To      string        `json:"to,omitempty"` // a node's name or an address
	Via     []string      `json:"via,omitempty"`
	Command string        `json:"command,omitempty"`
	Status  int           `json:"status,omitempty"`
	Output  string        `json:"output,omitempty"`  // RE2
	Fails   bool          `json:"fails,omitempty"`   // the check holds if the statement does not (for isolation)
	Timeout time.Duration `json:"timeout,omitempty"` // ns in JSON; 0: five seconds
}
