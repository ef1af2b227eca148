// Package record defines what the store keeps: the names of its keys, the types of its values, how they are encoded,
// and what follows from them without I/O (whether a host has to do something for a slice, the sum of the hosts'
// reports). It knows neither etcd nor files.
//
// Keys, below the prefix:
//
//	slices/NAME            Slice: id, generation, token of the specification; JSON
//	specs/NAME/TOKEN/PART  the specification: JSON, zstd, cut into parts
//	ids/ID                 NAME: the slice that owns the id
//	overrides/NAME         slice.Overrides; JSON
//	status/NAME/HOST       slice.Status of one host; JSON, zstd
//	hosts/HOST             hosts.Host, as its agent describes it; JSON
//	policies/HOST          hosts.Policy, as users decided; JSON
//	alive/HOST             Presence; bound to the lease that the host's agent renews
//	elections/DUTY/LEASE   a candidate for the leadership of a duty
//
// Beside the prefix lie the keys of the cluster's trust (see Prefix.TrustKey):
//
//	authority              certificate and key of the certificate authority; JSON
//	grants/ID              pki.Grant of a token; JSON; bound to a lease
//	admissions/HOST        Admission; JSON
//	barred/HOST            written by versions before admissions (see Barred)
package record

import (
	"errors"
	"strings"
)

// Errors that callers decide on.
var (
	ErrNotFound = errors.New("no such network")
	ErrDeleting = errors.New("the network is being removed")
	ErrConflict = errors.New("another request was carried out meanwhile: try again")
	ErrCorrupt  = errors.New("what the store has of it cannot be read; " +
		"remove the network (pergola down) and apply its file again")

	ErrNoHost    = errors.New("no such host")
	ErrNameTaken = errors.New("the name is taken")
	// ErrReplaced means that another machine has the host's name now.
	ErrReplaced = errors.New("another machine joined the cluster")

	// ErrUnreachable means that no server of the cluster answers.
	ErrUnreachable = errors.New("the servers of the cluster do not answer")
)

// DefaultPrefix is where the keys begin unless a configuration names another prefix.
const DefaultPrefix Prefix = "/pergola/"

// Prefix is where the keys of one store begin. It ends with a slash.
type Prefix string

// Key joins the parts of a key below the prefix.
func (p Prefix) Key(parts ...string) string { return string(p) + strings.Join(parts, "/") }

// TrustKey joins the parts of a key of the cluster's trust. Such keys lie beside the prefix, not below it.
func (p Prefix) TrustKey(parts ...string) string {
	return strings.TrimSuffix(string(p), "/") + "-trust/" + strings.Join(parts, "/")
}
