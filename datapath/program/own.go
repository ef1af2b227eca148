package program

import (
	"errors"

	"github.com/pergola-net/pergola/datapath/filter"
)

// A program that runs by itself has all tables of a host for itself: maps of its own, and the first MaxTables in them.

// filterMaps are the maps of filters.
var filterMaps = []string{stagesMapFilterIndex, stagesMapFilterBuckets, stagesMapFilterChunks, stagesMapFilterHits}

// withTables calls f with the program's tables.
func (p *Program) withTables(f func(*Tables) error) error {
	host, err := filter.Open(filter.Maps{
		Index: p.maps[stagesMapFilterIndex], Buckets: p.maps[stagesMapFilterBuckets],
		Chunks: p.maps[stagesMapFilterChunks], Hits: p.maps[stagesMapFilterHits],
	})
	if err != nil {
		return err
	}
	t, err := NewTables(host, 0, p.Object.KeyBytes, filter.Budget{})
	if err == nil {
		err = f(t)
	}
	return errors.Join(err, host.Close())
}

// A place is by what a lookup names a filter.
type place struct {
	table uint32
	rank  uint64
}

// SetFilters replaces all filters. Outcomes count them in this order, from 1.
func (p *Program) SetFilters(filters []Filter) error {
	return p.withTables(func(t *Tables) error {
		if err := t.Replace(filters); err != nil {
			return err
		}
		all, err := t.List()
		if err != nil {
			return err
		}
		p.numbers = map[place]int{}
		for table := range uint32(MaxTables) {
			order := inOrder(filters, table)
			for _, e := range all {
				if e.Table == table {
					p.numbers[place{table, e.Rank}] = order[0]
					order = order[1:]
				}
			}
		}
		return nil
	})
}

// Hits counts how often each filter was found, in the order in which SetFilters was given them.
func (p *Program) Hits() ([]uint64, error) {
	hits := make([]uint64, len(p.numbers))
	return hits, p.withTables(func(t *Tables) error {
		all, err := t.List()
		for _, e := range all {
			if n := p.numbers[place{e.Table, e.Rank}]; n > 0 {
				hits[n-1] = e.Hits
			}
		}
		return err
	})
}
