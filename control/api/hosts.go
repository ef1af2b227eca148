package api

import (
	"time"

	"github.com/pergola-net/pergola/model/hosts"
)

// Host is a machine of the cluster, and what is placed on it.
type Host struct {
	hosts.Host
	Policy hosts.Policy `json:"policy"`
	Alive  bool         `json:"alive"`
	Since  time.Time    `json:"since,omitzero"` // when it came, or was lost
	Self   bool         `json:"self,omitempty"` // it is the machine that answers
	// Problem is what else keeps it from taking nodes, for a person.
	Problem string `json:"problem,omitempty"`
	Nodes   int    `json:"nodes"` // placed on it
	// CPU and RAM are the cores and the bytes that these nodes may use, as far as they have limits.
	CPU    float64     `json:"cpu"`
	RAM    int64       `json:"ram"`
	Slices []HostSlice `json:"slices,omitempty"`
}

// HostSlice counts the nodes of a slice on a host.
type HostSlice struct {
	Name  string `json:"name"`
	Nodes int    `json:"nodes"`
}

// AllLabels are the labels that the host's agent was started with, changed by those of the policy.
func (h *Host) AllLabels() map[string]string { return h.Policy.LabelsOver(h.Labels) }

// HostPatch changes the policy of a host. What is nil stays as it is.
type HostPatch struct {
	Cordoned *bool `json:"cordoned,omitempty" doc:"It takes no new nodes."`
	Draining *bool `json:"draining,omitempty" doc:"It gives away what it has."`
	// Labels are set; an empty value removes one.
	Labels map[string]string `json:"labels,omitempty"`
}
