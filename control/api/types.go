// Package api is the door of the server: HTTP and JSON over a unix socket, described by OpenAPI 3.1.
package api

//go:generate go test -count=1 -run ^TestOpenAPIIsCurrent$ . -update

import (
	"net/netip"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pergola-net/pergola/control/controller"
	"github.com/pergola-net/pergola/model/slice"
)

// Version says what answers.
type Version struct {
	Version string    `json:"version"`
	Commit  string    `json:"commit,omitempty"`
	Kernel  string    `json:"kernel,omitempty"` // release of the machine's kernel
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	// ExitsWhenIdle is true where the server ends by itself after its last slice has gone.
	ExitsWhenIdle bool `json:"exits_when_idle,omitempty"`
}

// Problem is an error as RFC 9457 has it. Detail is a sentence for a person. Errors holds one entry for each
// fault of a topology; its Location is file:line:column.
type Problem = huma.ErrorModel

// Summary is one line of the list of slices.
type Summary struct {
	Name       string    `json:"name"`
	ID         uint16    `json:"id"`
	Generation int64     `json:"generation"`
	Nodes      int       `json:"nodes"`
	Running    int       `json:"running"`        // nodes in phase running, switches and uplinks included
	Lost       int       `json:"lost,omitempty"` // nodes whose host does not answer
	Links      int       `json:"links"`
	Settled    bool      `json:"settled"` // the host has nothing left to do
	Going      bool      `json:"going"`   // it is being removed
	Updated    time.Time `json:"updated"` // when this generation was accepted
	Errors     []string  `json:"errors,omitempty"`
	Hosts      []string  `json:"hosts,omitempty"` // that nodes are placed on; none where the server is in no cluster
}

// Slice is everything that is known of one slice.
type Slice struct {
	Spec      *slice.Slice    `json:"spec"`
	Status    slice.Status    `json:"status"`
	Overrides slice.Overrides `json:"overrides"`
	Going     bool            `json:"going"`
	Updated   time.Time       `json:"updated"`
}

// Progress is one message of a slice's progress stream: what the host reports now.
type Progress struct {
	Status slice.Status `json:"status"`
	Going  bool         `json:"going,omitempty"`
	Gone   bool         `json:"gone,omitempty"` // the last message: nothing of the slice is left
}

// Plan is what an apply does, or would do.
type Plan = controller.Plan

// Applied is the answer to an apply.
type Applied struct {
	Plan       Plan     `json:"plan"`
	DryRun     bool     `json:"dry_run,omitempty"`
	Generation int64    `json:"generation"` // the one to wait for; with DryRun the one that is there, 0 for none
	Warnings   []string `json:"warnings,omitempty"`
	// Placement says on which host each node runs, or would; empty where the server is in no cluster.
	Placement map[string]string `json:"placement,omitempty"`
}

// NodeVerb is what can be asked of a node.
type NodeVerb = controller.NodeVerb

// The verbs.
const (
	NodeStart   = controller.NodeStart
	NodeStop    = controller.NodeStop
	NodePause   = controller.NodePause
	NodeResume  = controller.NodeResume
	NodeRestart = controller.NodeRestart
)

// LinkPatch changes a running link. What is nil stays as it is.
type LinkPatch = controller.LinkPatch

// LogOptions selects output of a node.
type LogOptions struct {
	Tail   int  // last lines; 0: all
	Follow bool // until the context ends
}

// CaptureOptions limits a capture.
type CaptureOptions struct {
	Filter  string // as tcpdump takes it; empty: every frame
	Snaplen int    // bytes kept of a frame; 0: all
	Count   int    // frames; 0: until the context ends
}

// Convergence says whether routing has settled in a slice, and if not, where. See docs/convergence.md.
type Convergence struct {
	Converged bool `json:"converged"`
	Routers   int  `json:"routers"` // that take part in routing, and run
	Pairs     int  `json:"pairs"`   // of a router and a prefix that it must reach
	Reached   int  `json:"reached"` // of Pairs
	// Missing words the first pairs that are not reached, for a person.
	Missing []string `json:"missing,omitempty"`
	Silent
}

// CheckRequest says what to check. The zero value means the file's checks, or all pairs where the file has none.
type CheckRequest struct {
	AllPairs bool          `json:"all_pairs,omitempty"`
	Names    []string      `json:"names,omitempty"`   // only these of the file's checks
	Timeout  time.Duration `json:"timeout,omitempty"` // ns, of each check that names none of its own
}

// CheckProgress counts checks that are done.
type CheckProgress struct {
	Done   int `json:"done"`
	Total  int `json:"total"`
	Failed int `json:"failed"`
}

// CheckResult is the outcome of one check.
type CheckResult struct {
	Name     string          `json:"name"`
	Kind     slice.CheckKind `json:"kind"`
	From     string          `json:"from"`
	To       string          `json:"to,omitempty"`
	Address  netip.Addr      `json:"address,omitzero"` // what To stood for
	OK       bool            `json:"ok"`
	Message  string          `json:"message,omitempty"`  // why it failed, or what was measured
	RTT      time.Duration   `json:"rtt,omitempty"`      // ns, of a ping that was answered
	Duration time.Duration   `json:"duration,omitempty"` // ns
}

// Size is a terminal's size in characters.
type Size struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}
