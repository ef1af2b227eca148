package outside

import (
	"math/bits"
	"os"
	"strconv"
	"strings"
)

// What one sliver may have of the machine's connection tracking, which is one table for the whole machine: where it is
// full, nobody makes connections. Half of it is for the machine itself. The other half is divided among slivers, for
// connections from each and to each; very many slivers, of which each has the least, may use more.
const (
	mostConnections  = 2048 // the kernel looks at all with each tick in which a new one begins
	leastConnections = 64
	// New connections of a sliver, from it or to it, in a second, and at once. The kernel's count (nf_conncount)
	// drops at most nine connections that have ended with each tick of its clock, a hundred times a second or more.
	newConnections      = 800
	newConnectionsBurst = 800
	usualConnections    = 65536 // where the kernel does not say how many it tracks
)

// connectionsEach is how many connections each of so many slivers may have in each direction, where the kernel tracks
// so many: a power of two, because another bound begins to count anew.
func connectionsEach(tracked, slivers int) uint32 {
	share := tracked / 2 / 2 / max(slivers, 1)
	rounded := 1 << max(bits.Len(uint(share))-1, 0)
	return uint32(min(max(rounded, leastConnections), mostConnections))
}

// trackedConnections is how many connections the machine's kernel tracks.
func trackedConnections() int {
	text, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_max")
	if err != nil {
		return usualConnections // its module is not loaded yet
	}
	most, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || most <= 0 {
		return usualConnections
	}
	return most
}
