package api

import (
	"time"

	"github.com/pergola-net/pergola/model/slice"
)

// Summary is one line of the list of slices.
type Summary struct {
	Name       string    `json:"name"`
	ID         uint16    `json:"id"`
	Generation int64     `json:"generation"`
	Nodes      int       `json:"nodes"`
	Running    int       `json:"running"`        // nodes in phase running, switches and uplinks included
	Lost       int       `json:"lost,omitempty"` // nodes whose host does not answer
	Links      int       `json:"links"`
	Settled    bool      `json:"settled"`  // the host has nothing left to do
	Deleting   bool      `json:"deleting"` // it is being removed
	Updated    time.Time `json:"updated"`  // when this generation was accepted
	Errors     []string  `json:"errors,omitempty"`
	// Hosts are those that nodes are placed on; none where the server is in no cluster.
	Hosts []string `json:"hosts,omitempty"`
}

// Slice is all that the server has of one slice.
type Slice struct {
	Spec      *slice.Slice    `json:"spec"`
	Status    slice.Status    `json:"status"`
	Overrides slice.Overrides `json:"overrides"`
	Deleting  bool            `json:"deleting"` // it is being removed
	Updated   time.Time       `json:"updated"`
}

// Progress is one event of a slice's progress stream: the present status.
type Progress struct {
	Status   slice.Status `json:"status"`
	Deleting bool         `json:"deleting,omitempty"` // it is being removed
	Gone     bool         `json:"gone,omitempty"`     // the last event: nothing of the slice is left
}

// Applied is the answer to an apply.
type Applied struct {
	Plan   Plan `json:"plan"`
	DryRun bool `json:"dry_run,omitempty"`
	// Generation is the one to wait for; with DryRun the present one, 0 for none.
	Generation int64    `json:"generation"`
	Warnings   []string `json:"warnings,omitempty"`
	// Placement is the host on which each node runs, or would run; empty where the server is in no cluster.
	Placement map[string]string `json:"placement,omitempty"`
}
