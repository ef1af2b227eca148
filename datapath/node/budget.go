package node

import (
	"github.com/pergola-net/pergola/datapath/filter"
	"github.com/pergola-net/pergola/model/constants"
)

// A part of a host's filters and masks is a pool, for nodes that have no reservation. The rest can be reserved, and
// is there for nobody else. So what nodes have without a reservation cannot take what is reserved, whoever came first.
const (
	poolFilters       = filter.MaxFilters / constants.PoolPart
	poolMasks         = filter.MaxMasks / constants.PoolPart
	ReservableFilters = filter.MaxFilters - poolFilters
	ReservableMasks   = filter.MaxMasks - poolMasks
)

// What a node may have without a reservation, as long as the pool lasts.
const (
	defaultFilters = 4096
	defaultMasks   = 64
)

// Bounds is what a node has reserved, and may not exceed; 0: nothing, and it has a share of the pool.
type Bounds struct {
	Filters int
	Masks   int // distinct in their table
	// FastPath is in cores, which the slice's nodes here have together. More than that they have of the pool
	// (time.go).
	FastPath float64
}

func newPool() filter.Budget {
	return filter.Budget{
		Filters: &filter.Bound{Max: poolFilters, What: "filters of all nodes without a reservation"},
		Masks:   &filter.Bound{Max: poolMasks, What: "masks of all nodes without a reservation"},
	}
}

// budget is that of one node.
func (n *Nodes) budget(b Bounds) filter.Budget {
	all := filter.Budget{
		Filters: &filter.Bound{Max: b.Filters, What: "filters that the node has reserved"},
		Masks:   &filter.Bound{Max: b.Masks, What: "masks that the node has reserved"},
	}
	if b.Filters == 0 {
		all.Filters = &filter.Bound{
			Max: defaultFilters, Of: n.pool.Filters, What: "filters that a node has without a reservation",
		}
	}
	if b.Masks == 0 {
		all.Masks = &filter.Bound{
			Max: defaultMasks, Of: n.pool.Masks, What: "masks that a node has without a reservation",
		}
	}
	return all
}
