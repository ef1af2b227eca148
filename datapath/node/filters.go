package node

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/pergola-net/pergola/datapath/filter"
	"github.com/pergola-net/pergola/datapath/program"
)

// Each program has program.MaxTables of the host's tables of filters. A replacement whose filters or key are others has
// tables of its own, so that they change with the program.

// openFilters opens the host's tables, unless they are open.
func (n *Nodes) openFilters() (err error) {
	if n.filters != nil {
		return nil
	}
	maps := n.config.Maps
	n.filters, err = filter.Open(filter.Maps{
		Index: maps[objectMapFilterIndex], Buckets: maps[objectMapFilterBuckets],
		Chunks: maps[objectMapFilterChunks], Hits: maps[objectMapFilterHits],
	})
	return err
}

// Object is what a node's program was made from. It does not change; a replacement has another one.
func (n *Nodes) Object(name string) (*program.Object, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	x := n.nodes[name]
	if x == nil || !x.runs {
		return nil, fmt.Errorf("read the program of %s: it has no packet program that runs", name)
	}
	return x.loaded.Object, nil
}

// Filters calls f with a node's program and its tables, while nobody else changes tables of this host: f must be short.
func (n *Nodes) Filters(name string, f func(*program.Object, *program.Tables) error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	x := n.nodes[name]
	if x == nil || !x.runs {
		return fmt.Errorf("filters of %s: it has no packet program that runs", name)
	}
	t, err := n.tables(x)
	if err != nil {
		return err
	}
	return f(x.loaded.Object, t)
}

// tables gives the tables of a node, which count in its budget from now on.
func (n *Nodes) tables(x *node) (*program.Tables, error) {
	return program.NewTables(n.filters, x.table, x.loaded.Object.KeyBytes, x.budget)
}

// charge counts the tables of a node in its budget.
func (n *Nodes) charge(x *node) error {
	_, err := n.tables(x)
	return err
}

// giveTables gives a node that is about to take the place of another one, or of none, its tables with filters.
func (n *Nodes) giveTables(x, old *node, filters []program.Filter) error {
	x.budget = n.budget(x.about.Bounds)
	x.about.Filters = digest(filters)
	if old != nil && old.runs && old.about.Filters == x.about.Filters &&
		old.loaded.Object.KeyBytes == x.loaded.Object.KeyBytes {
		x.table = old.table
		return nil
	}
	first, err := n.freeTables()
	if err != nil {
		return err
	}
	x.table = first
	t, err := n.tables(x)
	if err != nil {
		return err
	}
	return t.Replace(filters)
}

func digest(filters []program.Filter) string {
	sum := sha256.New()
	for _, f := range filters {
		fmt.Fprintln(sum, f.Text(nil))
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// freeTables finds tables that no node has.
func (n *Nodes) freeTables() (uint32, error) {
	used := n.usedTables()
	for first := uint32(0); first+program.MaxTables <= filter.MaxTables; first += program.MaxTables {
		if !used[first] {
			return first, nil
		}
	}
	return 0, fmt.Errorf("%d packet programs have tables of filters already: the host has no more", len(used))
}

// usedTables are the first ones of those that programs have that frames may meet. While it is not known which ones some
// node has, these are all that have filters.
func (n *Nodes) usedTables() map[uint32]bool {
	used := map[uint32]bool{}
	for _, x := range n.nodes {
		switch x.holds {
		case noTables:
		case itsTable:
			used[x.table] = true
		case unknownTables:
			for _, id := range n.filters.Tables() {
				used[firstOf(id)] = true
			}
		}
	}
	return used
}

// firstOf is the first one of the tables of the program that has this one.
func firstOf(id uint32) uint32 { return id / program.MaxTables * program.MaxTables }

// sweepTables removes tables that no node has, when no frame is in a program any more that had them. While there is no
// node, it leaves them to the first one.
func (n *Nodes) sweepTables() error {
	if n.filters == nil {
		return nil
	}
	used := n.usedTables()
	waited := false
	for _, id := range n.filters.Tables() {
		if used[firstOf(id)] {
			continue
		}
		if !waited {
			if err := n.filters.Wait(); err != nil {
				return err
			}
			waited = true
		}
		n.filters.Remove(id)
	}
	return nil
}

// readTable finds the tables of a node that is adopted and may run.
func (x *node) readTable(settings *ebpf.Map) error {
	if x.holds == noTables || settings == nil {
		return nil
	}
	var s objectSettings
	if err := settings.Lookup(uint32(0), &s); err != nil {
		return fmt.Errorf("read settings: %w", err)
	}
	x.table, x.holds = s.Table, itsTable
	return nil
}
