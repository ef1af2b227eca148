package cache

import (
	"fmt"
	"maps"
	"slices"

	"github.com/pergola-net/pergola/control/store/record"
	"github.com/pergola-net/pergola/model/slice"
)

// Slices lists the slices, sorted by name. It fails with ErrUnreachable where they were never listed, or one of them is
// not cached: the agent ends the nodes of slices that are not in the list.
func (c *Cache) Slices() ([]record.Slice, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.names == nil {
		return nil, record.ErrUnreachable
	}
	for _, name := range c.names {
		if c.slices[name] == nil {
			return nil, fmt.Errorf("%w, and network %s is not cached here", record.ErrUnreachable, name)
		}
	}
	records := make([]record.Slice, 0, len(c.slices))
	for _, name := range slices.Sorted(maps.Keys(c.slices)) {
		records = append(records, c.slices[name].Record)
	}
	return records, nil
}

// Slice gives a slice with its record. It fails with ErrNotFound where the slice is not in the list, and with
// ErrUnreachable where there is no list.
func (c *Cache) Slice(name string) (*slice.Slice, record.Slice, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.slices[name]
	switch {
	case e == nil && c.names == nil:
		return nil, record.Slice{}, record.ErrUnreachable
	case e == nil:
		err := fmt.Errorf("%s: %w, as far as is known here: %w", name, record.ErrNotFound,
			record.ErrUnreachable)
		return nil, record.Slice{}, err
	case e.Spec != nil:
		return e.Spec, e.Record, nil
	case e.Record.Deleting:
		return e.Record.NameOnly(), e.Record, nil
	}
	return nil, e.Record, fmt.Errorf("network %s: %w", name, record.ErrCorrupt)
}

// Overrides gives the overrides of a slice, encoded; nil where there are none.
func (c *Cache) Overrides(name string) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.slices[name] == nil {
		return nil
	}
	return c.slices[name].Overrides
}

// Generations gives the generations that the hosts reported of a slice, by host.
func (c *Cache) Generations(name string) map[string]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.slices[name] == nil {
		return nil
	}
	return maps.Clone(c.slices[name].Generations)
}

// Status is what this host itself reports of a slice. Nodes of other hosts count as lost.
func (c *Cache) Status(name string) slice.Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, own := c.slices[name], c.reports[name]
	reports := []record.Report{{Host: own.host, Status: own.Status}}
	if e == nil || e.Spec == nil || e.Record.Deleting {
		return record.Merge(name, nil, reports)
	}
	for _, host := range record.HostsOf(e.Spec) {
		if host != own.host {
			unknown := slice.Status{Generation: own.Generation}
			reports = append(reports, record.Report{Host: host, Lost: true, Status: unknown})
		}
	}
	sum := record.Merge(name, e.Spec, reports)
	for node, st := range sum.Nodes {
		if st.Phase == slice.Lost {
			st.Message = record.ErrUnreachable.Error()
			sum.Nodes[node] = st
		}
	}
	sum.Settled = false
	return sum
}

// Hosts lists the hosts, as far as it is cached where they are. It fails with ErrUnreachable where they were never
// listed.
func (c *Cache) Hosts() ([]record.Host, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hosts == nil {
		return nil, record.ErrUnreachable
	}
	return slices.Clone(c.hosts), nil
}
