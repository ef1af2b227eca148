package record

import (
	"time"

	"github.com/pergola-net/pergola/model/hosts"
)

// Host is what the store holds of a host.
type Host struct {
	hosts.Host
	Policy hosts.Policy
	// Alive means that the host's agent renews its lease.
	Alive bool
	// Since is, of a host that is not alive, when this process first saw it without a lease: by this machine's
	// clock, monotonic reading included, so time.Since(Since) is how long the host has been lost at least. Of a
	// host that is alive, it is when the host registered, by the host's own clock.
	Since time.Time
	// Via is the server with which the host's agent has its session; empty for a server, and for a host that is not
	// alive.
	Via string
}

// Presence is bound to the lease of a host that is alive.
type Presence struct {
	Machine string    `json:"machine"`
	Address string    `json:"address,omitempty"`
	Since   time.Time `json:"since"`
	Via     string    `json:"via,omitempty"` // see Host
}
