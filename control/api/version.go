package api

import "time"

// Version describes the server that answers.
type Version struct {
	Version string    `json:"version"`
	Commit  string    `json:"commit,omitempty"`
	Kernel  string    `json:"kernel,omitempty"` // release of the machine's kernel
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	// ExitsWhenIdle is true where the server ends by itself after its last slice has gone.
	ExitsWhenIdle bool `json:"exits_when_idle,omitempty"`
}
