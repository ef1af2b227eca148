package sliver

import (
	"sync"

	"github.com/pergola-net/pergola/host/rootless"
)

// Each slice owns 65,536 user ids and as many group ids of the machine, above all that distributions give away
// (the range systemd calls container UIDs ends at 0x6FFFFFFF). In the namespace of an ordinary user (package rootless)
// there is but one id of each, 0: then it is that of all slices, and root is the only user of a sliver.
const (
	firstUID = 0x60000000
	manyIDs  = 1 << 16
)

// isRootless reports whether this process is in the namespaces of an ordinary user.
var isRootless = sync.OnceValue(rootless.Inside)

// uids is how many ids a sliver has.
func uids() int {
	if isRootless() {
		return 1
	}
	return manyIDs
}

// uidBase is the machine's id of a sliver's root.
func uidBase(slice uint16) int {
	if isRootless() {
		return 0
	}
	return firstUID + int(slice)*manyIDs
}

// idOf is the machine's id of a sliver's user or group; its root's, where the sliver has no such id.
func idOf(base, id int) int {
	if id >= uids() {
		return base
	}
	return base + id
}

// clamp maps ids that a sliver does not have: to 65534 (nobody), or to root where that is the only one.
func clamp(id int) int {
	switch {
	case isRootless():
		return 0
	case id < 0 || id >= manyIDs:
		return 65534
	}
	return id
}
