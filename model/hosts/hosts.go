// Package hosts describes the machines that slices run on. It is plain data: JSON in the store and in the API.
package hosts

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/pergola-net/pergola/model/slice"
)

// Host is a machine of the substrate, as its agent describes it.
type Host struct {
	Name string `json:"name"`
	// Machine distinguishes it from another machine of the same name: the machine id, or a random word in its
	// place.
	Machine string `json:"machine"`
	// Address is the end of the tunnels to this host; peers send from theirs to this one.
	Address netip.Addr `json:"address"`
	// API is where members of the cluster reach its agent: host:port.
	API string `json:"api"`
	// Underlays are the interfaces into the substrate, the one with Address first.
	Underlays []Underlay `json:"underlays,omitempty"`
	// Bound says that packets of tunnels leave by Underlays alone, wherever the machine's routes lead.
	Bound bool `json:"bound,omitempty"`
	// Trouble is a message about its tunnels; empty where they work.
	Trouble string `json:"trouble,omitempty"`
	// Paths are the hosts to which the path carries less than the first of Underlays: bytes of an IP packet, by
	// name.
	Paths map[string]int `json:"paths,omitempty"`

	Cores  float64 `json:"cores"`
	Memory uint64  `json:"memory"` // bytes
	// Reservable is what nodes can reserve of it (slice.Reserve), beside cores and memory.
	Reservable slice.Reserve `json:"reservable,omitzero"`
	Load       float64       `json:"load"`               // cores that are busy, measured
	Kernel     string        `json:"kernel"`             // release: 6.1.0-27-amd64
	Version    string        `json:"version"`            // of Pergola
	Features   []string      `json:"features,omitempty"` // of its kernel: see the Feature constants
	// Labels are those that its agent was started with; the cluster's users may add to them (Policy).
	Labels map[string]string `json:"labels,omitempty"`
	// Allows is what every slice may use of the host itself. It is for display: the host decides by its own terms.
	Allows  Allowance `json:"allows,omitzero"`
	Updated time.Time `json:"updated"`
}

// Underlay is an interface that carries tunnels.
type Underlay struct {
	Name string `json:"name"`
	// Kind is what the kernel calls it, such as wireguard, tun or bond; empty for hardware.
	Kind      string         `json:"kind,omitempty"`
	Addresses []netip.Prefix `json:"addresses,omitempty"`
	MTU       int            `json:"mtu"`            // bytes of an IP packet
	Rate      uint64         `json:"rate,omitempty"` // bit/s; 0: not known
	XDP       string         `json:"xdp"`            // native, generic, or why there is none
}

// Carrier is the interface that carries the host's tunnels: the one that has its address. ok is false where the host
// reports none.
func (h *Host) Carrier() (u Underlay, ok bool) {
	for _, u := range h.Underlays {
		if slices.ContainsFunc(u.Addresses, func(p netip.Prefix) bool { return p.Addr() == h.Address }) {
			return u, true
		}
	}
	return Underlay{}, false
}

// plain are the kinds of interfaces that are a network card, several, or a part of one.
var plain = []string{"", "bond", "bridge", "dsa", "dummy", "ipoib", "ipvlan", "ipvtap", "macvlan", "macvtap", "netkit",
	"openvswitch", "team", "veth", "vlan", "vrf"}

// IsVPN reports whether an interface may enclose, and so encrypt, what it carries: WireGuard, tun and tap, ipip,
// MACsec. It is true for a kind that is not known.
func (u Underlay) IsVPN() bool { return !slices.Contains(plain, u.Kind) }

// Features of kernels that slices may need.
const (
	FeatureNetem = "netem"
	FeatureHTB   = "htb"
)

// Policy is what the cluster's users decided about a host.
type Policy struct {
	Cordoned bool              `json:"cordoned,omitempty"` // takes no new nodes
	Draining bool              `json:"draining,omitempty"` // its nodes are moved elsewhere
	Labels   map[string]string `json:"labels,omitempty"`   // added to the agent's; an empty value removes one
}

// LabelsOver gives the labels that the host's agent was started with, changed by those of the policy.
func (p Policy) LabelsOver(own map[string]string) map[string]string {
	all := maps.Clone(own)
	if all == nil {
		all = map[string]string{}
	}
	for name, value := range p.Labels {
		if all[name] = value; value == "" {
			delete(all, name)
		}
	}
	return all
}
