package mapping

import (
	"fmt"

	"github.com/pergola-net/pergola/model/slice"
)

// Resource is a kind of what hosts have and nodes reserve.
type Resource int

// The kinds.
const (
	Cores    Resource = iota // of the nodes' own processes
	Memory                   // bytes, of the nodes' own processes and of packet programs
	FastPath                 // cores, of packet programs
	Filters                  // of packet programs
	Masks                    // of these filters, distinct in their table
	Queues                   // of packet programs
	Buffer                   // bytes, the lengths of these queues

	kinds
)

// Resources is an amount of each kind. Zero in a host's capacity means none. Zero in a node's demand means that nothing
// is reserved for it.
type Resources [kinds]float64

// words name the kinds in topologies and in the API.
var words = [kinds]string{"cores", "memory", "fastpath", "filters", "masks", "queues", "buffer"}

// String is the kind's name in topologies and in the API.
func (r Resource) String() string { return words[r] }

// names are as messages have them.
var names = [kinds]string{"cores", "of memory", "cores of the fast path", "filters", "masks", "queues", "of buffer"}

// tolerance is a millionth of a core: sums of fractions are not exact.
const tolerance = 1e-6

// Demand is what a node reserves.
func Demand(n *slice.Node) Resources {
	r := Reserved(n.Reserve)
	r[Cores] += n.CPU
	r[Memory] += float64(n.Memory)
	return r
}

// Reserved gives a reservation, or what a host has to reserve, by kind.
func Reserved(r slice.Reserve) Resources {
	return Resources{
		Memory: float64(r.Memory), FastPath: r.FastPath, Filters: float64(r.Filters), Masks: float64(r.Masks),
		Queues: float64(r.Queues), Buffer: float64(r.Buffer),
	}
}

// Each applies f to each kind of a and b.
func Each(a, b Resources, f func(a, b float64) float64) (all Resources) {
	for kind := range all {
		all[kind] = f(a[kind], b[kind])
	}
	return all
}

// Plus is the sum.
func (r Resources) Plus(other Resources) Resources {
	return Each(r, other, func(a, b float64) float64 { return a + b })
}

// Minus is the difference.
func (r Resources) Minus(other Resources) Resources {
	return Each(r, other, func(a, b float64) float64 { return a - b })
}

// WhyFull says of which kind a demand exceeds what is free; empty where there is enough of each.
func (r Resources) WhyFull(used, capacity Resources) string {
	for kind, wanted := range r {
		free := max(capacity[kind]-used[kind], 0)
		if wanted == 0 || wanted <= free+tolerance {
			continue
		}
		return fmt.Sprintf("%s %s wanted, %s of %s free", amount(Resource(kind), wanted), names[kind],
			amount(Resource(kind), free), amount(Resource(kind), capacity[kind]))
	}
	return ""
}

// amount prints how much of a kind there is.
func amount(kind Resource, n float64) string {
	switch kind {
	case Cores, FastPath:
		return fmt.Sprintf("%.4g", n)
	case Memory:
		return fmt.Sprintf("%d MiB", uint64(n)>>20)
	case Buffer:
		return fmt.Sprintf("%d KiB", uint64(n)>>10)
	default:
		return fmt.Sprintf("%.0f", n)
	}
}
