package sliver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pergola-net/pergola/i3/fastpath"
	"github.com/pergola-net/pergola/i3/fastpath/layout"
	"github.com/pergola-net/pergola/i3/ident"
	"github.com/pergola-net/pergola/sdk/node"
)

// edit is what has to be done to the filters of one key: it is in one request, so a packet meets all of it, or nothing.
type edit struct {
	key    ident.Key
	set    layout.Filters
	remove []string
	insert []string
}

func (e *edit) size() int { return len(e.remove) + len(e.insert) }

// editOf makes filters of a key what they are to be: those to set, and of these names no others.
func (f *FastPath) editOf(k ident.Key, set layout.Filters, names []string) edit {
	e := edit{key: k, set: set}
	written := f.written[k]
	for _, name := range names {
		was, there := written[name]
		result, wanted := set[name]
		if there && (!wanted || was != result) {
			e.remove = append(e.remove, name)
		}
		if wanted && was != result {
			e.insert = append(e.insert, name+" -> "+result)
		}
	}
	return e
}

// wanted are the filters of the program as they are to be, by key.
func (f *FastPath) wanted() map[ident.Key]layout.Filters {
	all := map[ident.Key]layout.Filters{}
	for p, a := range f.actions {
		k := p.ID.Key()
		if f.full[k] {
			continue
		}
		if all[k] == nil {
			all[k] = layout.Filters{}
		}
		f.node.Add(all[k], fastpath.Filter{Prefix: p, Action: a})
	}
	return all
}

// rewrite makes the program's filters those that are wanted, as far as they are others. Where there is no room, the
// keys that are left get none, and the error is fastpath.ErrFull.
func (f *FastPath) rewrite(wanted map[ident.Key]layout.Filters) error {
	var edits []edit
	for k, set := range wanted {
		names := slices.Collect(maps.Keys(set))
		for name := range f.written[k] {
			if _, there := set[name]; !there {
				names = append(names, name)
			}
		}
		edits = append(edits, f.editOf(k, set, names))
	}
	for k, written := range f.written {
		if wanted[k] == nil {
			edits = append(edits, f.editOf(k, nil, slices.Collect(maps.Keys(written))))
		}
	}
	edits = slices.DeleteFunc(edits, func(e edit) bool { return e.size() == 0 })
	// What only goes makes room for the others.
	slices.SortFunc(edits, func(a, b edit) int { return min(len(a.insert), 1) - min(len(b.insert), 1) })
	for len(edits) > 0 {
		n, size := 0, 0
		for n < len(edits) && (n == 0 || size+edits[n].size() <= batch) {
			size += edits[n].size()
			n++
		}
		err := f.change(patience, edits[:n])
		if errors.Is(err, fastpath.ErrFull) {
			return errors.Join(err, f.fill(edits))
		}
		if err != nil {
			return err
		}
		edits = edits[n:]
	}
	return nil
}

// fill carries edits out one by one until there is no room: of the keys that are left, there will be no filters.
func (f *FastPath) fill(edits []edit) error {
	for i, e := range edits {
		err := f.change(patience, []edit{e})
		if errors.Is(err, fastpath.ErrFull) {
			f.mu.Lock()
			defer f.mu.Unlock()
			for _, e := range edits[i:] {
				f.full[e.key] = true
			}
			f.fallBehind(false) // of some of these keys there may be filters
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// change carries edits out in one request.
func (f *FastPath) change(atMost time.Duration, edits []edit) error {
	var remove, insert []string
	for _, e := range edits {
		remove, insert = append(remove, e.remove...), append(insert, e.insert...)
	}
	if len(remove)+len(insert) == 0 {
		return nil
	}
	err := f.request(
		atMost,
		func(ctx context.Context) error { return f.program.ChangeFilters(ctx, remove, insert) },
	)
	if err != nil {
		return err
	}
	for _, e := range edits {
		written := f.written[e.key]
		if written == nil {
			written = layout.Filters{}
			f.written[e.key] = written
		}
		for _, name := range e.remove {
			delete(written, name)
		}
		maps.Copy(written, e.set)
		if len(written) == 0 {
			delete(f.written, e.key)
		}
	}
	return nil
}

// compare looks whether the program's filters are those that were written, and gives those another chance for which
// there was no room.
func (f *FastPath) compare() error {
	var all node.Filters
	err := f.request(patience, func(ctx context.Context) (err error) {
		all, err = f.program.Filters(ctx)
		return err
	})
	if err != nil {
		return err
	}
	there, written := layout.Filters{}, layout.Filters{}
	for _, one := range all.Filters {
		name := fmt.Sprintf("priority %d %s", one.Priority, one.Match)
		if one.Table != 0 {
			name = fmt.Sprintf("table %d %s", one.Table, name)
		}
		there[name] = one.Result
	}
	for _, of := range f.written {
		maps.Copy(written, of)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.full)
	if !maps.Equal(there, written) {
		f.fallBehind(true)
	}
	return nil
}
