package api

import "io"

// ExecProtocol is the websocket subprotocol of exec. Every message is binary: the first byte is its channel, the rest
// is its payload. It has the shape of Kubernetes' v5.channel.k8s.io.
const ExecProtocol = "v1.exec.pergola"

// The channels: the first byte of a message.
const (
	ExecStdin  byte = 0   // to the server: input
	ExecStdout byte = 1   // to the client: output
	ExecStderr byte = 2   // to the client: error output, without a terminal
	ExecStatus byte = 3   // to the client, last: ExecOutcome as JSON
	ExecResize byte = 4   // to the server: Size as JSON
	ExecClose  byte = 255 // to the server: there is no more input
)

// MaxExecMessage bounds one message, in bytes.
const MaxExecMessage = 1 << 20

// ExecRequest is a command to run in a node.
type ExecRequest struct {
	Command []string
	Env     []string // NAME=value, beside the node's own
	Dir     string   // working directory; empty: the node's
	TTY     bool     // run in a pseudo terminal; its output goes to Stdout
	Size    Size     // of the terminal at first
	// Resize delivers new sizes of the terminal; it may be nil or closed, where there are none.
	Resize <-chan Size
	// Stdin ends when the client has no more, or Exec has returned: Exec does not wait for its end. nil: empty.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// Size is a terminal's size in characters.
type Size struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// ExecOutcome is how an exec ended.
type ExecOutcome struct {
	Status  int      `json:"status"`            // exit status; 128 + signal where a signal ended it
	Problem *Problem `json:"problem,omitempty"` // why it could not be run; Status means nothing then
}
