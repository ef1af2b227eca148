package node

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/pergola-net/pergola/datapath/filter"
	"github.com/pergola-net/pergola/datapath/program"
)

// Each program has program.MaxTables of the host's tables of filters. A replacement whose filters or key are others has
// tables of its own, so that they change with the program.

func openFilters(maps map[string]*ebpf.Map) (*filter.Filters, error) {
	return filter.Open(filter.Maps{
		Index: maps[objectMapFilterIndex], Buckets: maps[objectMapFilterBuckets],
		Chunks: maps[objectMapFilterChunks], Hits: maps[objectMapFilterHits],
	})
}

// Filters calls f with a node's program and its tables, while nobody else changes them.
func (n *Nodes) Filters(name string, f func(*program.Object, *program.Tables) error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	x := n.nodes[name]
	if x == nil || !x.runs {
		return fmt.Errorf("filters of %s: it has no packet program that runs", name)
	}
	return f(x.loaded.Object, n.tables(x))
}

func (n *Nodes) tables(x *node) *program.Tables {
	quota := filter.Quota{Filters: filter.MaxFilters, Masks: filter.MaxTableMasks}
	return program.NewTables(n.filters, x.table, x.loaded.Object.KeyBytes, quota)
}

// giveTables gives a node that is about to take the place of another one, or of none, its tables with filters.
func (n *Nodes) giveTables(x, old *node, filters []program.Filter) error {
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
	return n.tables(x).Replace(filters)
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

func (n *Nodes) usedTables() map[uint32]bool {
	used := map[uint32]bool{}
	for _, x := range n.nodes {
		if x.runs {
			used[x.table] = true
		}
	}
	return used
}

// sweepTables removes tables that no node has, when no frame is in a program any more that had them.
func (n *Nodes) sweepTables() error {
	used := n.usedTables()
	waited := false
	for _, id := range n.filters.Tables() {
		if used[id/program.MaxTables*program.MaxTables] {
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

// readTable finds the tables of a node that was adopted.
func (x *node) readTable() error {
	settings := x.loaded.Maps()[objectMapNodeSettings]
	if settings == nil { // half made
		return nil
	}
	var s objectSettings
	if err := settings.Lookup(uint32(0), &s); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("read settings: %w", err)
	}
	x.table = s.Table
	return nil
}
