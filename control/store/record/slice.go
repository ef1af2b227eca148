package record

import (
	"slices"
	"time"

	"github.com/pergola-net/pergola/model/slice"
)

// Slice is what the store holds of a slice beside its specification.
type Slice struct {
	Name       string   `json:"name"`
	ID         uint16   `json:"id"`
	Generation int64    `json:"generation"`
	Token      string   `json:"token"` // of the specification's parts
	Nodes      int      `json:"nodes"`
	Links      int      `json:"links"`
	Blobs      []string `json:"blobs,omitempty"` // archives that the specification names, by SHA-256
	// Hosts may hold something of the slice: its nodes were placed on them, and they have not released it since.
	Hosts   []string  `json:"hosts,omitempty"`
	Updated time.Time `json:"updated"`
	// Deleting means that nothing is wanted of the slice any more. Its name and id stay taken until every host has
	// released it.
	Deleting bool `json:"going,omitempty"`

	// Corrupt means that the record cannot be decoded: only its name is known, and its id unless that is 0.
	Corrupt bool `json:"-"`
	// Revision is that of the record's key in the store: transactions compare it.
	Revision int64 `json:"-"`
}

// NewSlice makes the record of a specification. ID, Generation and Hosts are the caller's to set.
func NewSlice(spec *slice.Slice, token string, now time.Time) Slice {
	r := Slice{Name: spec.Name, Token: token, Nodes: len(spec.Nodes), Links: len(spec.Links), Updated: now}
	for i := range spec.Nodes {
		fs := spec.Nodes[i].Rootfs
		if fs.Kind == slice.RootfsTar && !slices.Contains(r.Blobs, fs.Ref) {
			r.Blobs = append(r.Blobs, fs.Ref)
		}
	}
	return r
}

// NameOnly is the specification of a slice whose stored one cannot be read.
func (r Slice) NameOnly() *slice.Slice {
	return &slice.Slice{Name: r.Name, ID: r.ID, Generation: r.Generation}
}

// Wants reports whether a host has to do something for a slice. Where nodes are not placed, there is one host only. A
// switch does not count: it is made on the hosts of its neighbours.
func Wants(spec *slice.Slice, host string) bool {
	return slices.ContainsFunc(spec.Nodes, func(n slice.Node) bool {
		return n.Kind != slice.Switch && (n.Host == "" || n.Host == host)
	})
}

// HostsOf lists the hosts on which nodes are placed, sorted.
func HostsOf(spec *slice.Slice) []string {
	var hosts []string
	for i := range spec.Nodes {
		if host := spec.Nodes[i].Host; host != "" {
			hosts = append(hosts, host)
		}
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}
