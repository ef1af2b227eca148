package program

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/pergola-net/pergola/datapath/filter"
)

// MaxTables is how many tables of filters a program has (PERGOLA_TABLES).
const MaxTables = 8

// Tables are a program's tables of filters: of those of a host (package filter), MaxTables in turn. A table is there
// when it has had a filter. Methods may not be called concurrently.
type Tables struct {
	host     *filter.Filters
	first    uint32 // number of table 0
	keyBytes int
	budget   filter.Budget // of all
}

// Entry is a filter that is in a table.
type Entry struct {
	Filter
	Hits uint64 // frames, since it was inserted
	Rank uint64 // by which lookups name it, within its table
}

// NewTables takes tables of a host, from this number on, for keys of so many bytes (Object.KeyBytes). What an earlier
// process has left in them stays, and is counted in the budget.
func NewTables(host *filter.Filters, first uint32, keyBytes int, budget filter.Budget) (*Tables, error) {
	t := &Tables{host, first, keyBytes, budget}
	for _, n := range t.there() {
		if _, err := t.table(n); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (t *Tables) table(n uint32) (*filter.Table, error) {
	quota := filter.Quota{Filters: filter.MaxFilters, Masks: filter.MaxTableMasks}
	table, err := t.host.Table(t.first+n, t.keyBytes, quota)
	if err == nil {
		table.Charge(t.budget)
	}
	return table, err
}

// there lists the tables that are there, by their own numbers.
func (t *Tables) there() []uint32 {
	var all []uint32
	for _, id := range t.host.Tables() {
		if id >= t.first && id < t.first+MaxTables {
			all = append(all, id-t.first)
		}
	}
	return all
}

// List lists all filters: by table, and in each in the order in which they win.
func (t *Tables) List() ([]Entry, error) {
	var all []Entry
	for _, n := range t.there() {
		table, err := t.table(n)
		if err != nil {
			return nil, err
		}
		for _, e := range table.List() {
			f, err := fromHost(n, e.Filter)
			if err != nil {
				return nil, err
			}
			all = append(all, Entry{Filter: f, Hits: e.Hits, Rank: e.Rank})
		}
	}
	return all, nil
}

// Insert adds filters, all or none. One with table, key, mask and priority of another is an error.
func (t *Tables) Insert(filters ...Filter) error { return t.Change(nil, filters) }

// Delete deletes filters, all or none, by their tables, keys, masks and priorities.
func (t *Tables) Delete(filters ...Filter) error { return t.Change(filters, nil) }

// Change deletes filters and then inserts others, all or nothing. Frames see a table as it was or as it is afterwards.
// An error that is about one filter is a *filter.Error, which counts those that are deleted first.
func (t *Tables) Change(deleted, inserted []Filter) error {
	return t.change(append(slices.Clone(deleted), inserted...), nil, func(table *filter.Table, p *part) error {
		changes := make([]filter.Change, len(p.filters))
		for i := range changes {
			changes[i] = filter.Change{Op: filter.Insert, Filter: p.filters[i]}
			if p.numbers[i] <= len(deleted) {
				changes[i].Op = filter.Delete
			}
		}
		return table.Apply(changes...)
	})
}

// Replace makes filters all that the tables have, or changes nothing. Frames see all of an old table or all of the new
// one. Filters that stay keep their hits. Errors are as those of Change.
func (t *Tables) Replace(filters []Filter) error {
	return t.change(filters, t.there(), func(table *filter.Table, p *part) error {
		return table.Replace(p.filters)
	})
}

// change changes the tables that filters name, and those that are listed. If one refuses, those that were changed
// before are put back.
func (t *Tables) change(filters []Filter, also []uint32, do func(*filter.Table, *part) error) error {
	parts, err := t.parts(filters, also)
	if err != nil {
		return err
	}
	var undo []func() error
	for i, p := range parts {
		table, err := t.table(p.table)
		if err == nil {
			back := func() error { return nil }
			if i+1 < len(parts) {
				was := hostFilters(table)
				back = func() error { return table.Replace(was) }
			}
			if err = do(table, p); err == nil {
				undo = append(undo, back)
				continue
			}
			err = p.explain(err, len(filters))
		}
		for _, back := range slices.Backward(undo) {
			err = errors.Join(err, back())
		}
		return err
	}
	return nil
}

// part is those of several filters that are in one table.
type part struct {
	table   uint32
	filters []filter.Filter
	numbers []int // among all, from 1
}

func (t *Tables) parts(filters []Filter, also []uint32) ([]*part, error) {
	of := map[uint32]*part{}
	for _, n := range also {
		of[n] = &part{table: n}
	}
	for i, f := range filters {
		h, err := f.forHost(t.keyBytes)
		if err != nil {
			return nil, &filter.Error{Number: i + 1, Of: len(filters), Err: err}
		}
		p := of[f.Table]
		if p == nil {
			p = &part{table: f.Table}
			of[f.Table] = p
		}
		p.filters, p.numbers = append(p.filters, h), append(p.numbers, i+1)
	}
	var all []*part
	for _, n := range slices.Sorted(maps.Keys(of)) {
		all = append(all, of[n])
	}
	return all, nil
}

// explain gives a filter its number among all, and leaves out which table of the host it is about.
func (p *part) explain(err error, all int) error {
	var one *filter.Error
	if errors.As(err, &one) && one.Number <= len(p.numbers) {
		return &filter.Error{Number: p.numbers[one.Number-1], Of: all, Err: one.Err}
	}
	return err
}

func hostFilters(table *filter.Table) []filter.Filter {
	var all []filter.Filter
	for _, e := range table.List() {
		all = append(all, e.Filter)
	}
	return all
}

// Remove removes all tables: frames match nothing then.
func (t *Tables) Remove() error {
	var errs []error
	for _, n := range t.there() {
		table, err := t.table(n)
		if err == nil {
			err = table.Remove()
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// forHost is a filter as the host's tables have it.
func (f Filter) forHost(keyBytes int) (filter.Filter, error) {
	if err := f.check(keyBytes); err != nil {
		return filter.Filter{}, err
	}
	h := filter.Filter{Priority: f.Priority}
	h.Key, h.Mask = f.masked(keyBytes)
	result := f.Result.encode()
	if _, err := binary.Encode(h.Result[:], nativeOrder, &result); err != nil {
		return h, fmt.Errorf("encode the result: %w", err)
	}
	return h, nil
}

func fromHost(table uint32, h filter.Filter) (Filter, error) {
	var result stagesPergolaResult
	if err := binary.Read(bytes.NewReader(h.Result[:]), nativeOrder, &result); err != nil {
		return Filter{}, fmt.Errorf("read a filter's result: %w", err)
	}
	return Filter{Table: table, Priority: h.Priority, Key: h.Key, Mask: h.Mask, Result: result.decode()}, nil
}
