// Package labels keeps the tables by which routers switch labels: a copy of what the slices want, in the data path.
// There is no daemon behind them, so that they are no resource of a node's: every pass hands over what is wanted, and
// what fails is tried again by the next. What the tables have is known from the last pass, and read once before the
// first.
package labels

import (
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/host/agent/machine"
	"github.com/pergola-net/pergola/model/slice"
)

// Labels writes the tables. Its methods may be called from many goroutines.
type Labels struct {
	log *slog.Logger

	mu      sync.Mutex // guards what follows
	path    machine.DataPath
	is      map[Key]datapath.NHLFE
	failed  map[Key]error
	missing map[Hop]string
	rules   map[uint32][]datapath.LabelRule // by label space
	unruled map[uint32]error                // spaces whose rules could not be written
}

// New gives tables that nothing is known of.
func New(log *slog.Logger) *Labels { return &Labels{log: log} }

// Add writes what is wanted, and is not there or is otherwise. path is nil where there is no data path.
func (l *Labels) Add(path machine.DataPath, want Want) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.missing = want.Missing
	if !l.openLocked(path) {
		return
	}
	for _, k := range slices.SortedFunc(maps.Keys(want.Entries), labelsFirst) {
		e := want.Entries[k]
		was, there := l.is[k]
		if there && reflect.DeepEqual(was, e) {
			continue
		}
		err := Put(path, k, e)
		if err != nil {
			if l.failed[k] == nil {
				l.log.Error("write a label", "label", k.String(), "error", err)
			}
			l.failed[k] = err
			if there { // better dropped than sent where they went before
				l.removeLocked(k)
			}
			continue
		}
		delete(l.failed, k)
		l.is[k] = e
	}
}

// labelsFirst orders entries so that what frames get as their first label leads on when they get it.
func labelsFirst(a, b Key) int {
	switch {
	case a.FTN == b.FTN:
		return 0
	case b.FTN:
		return -1
	}
	return 1
}

// Prune removes what is not wanted any more. It is called when no router looks for it.
func (l *Labels) Prune(want Want) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.failed, func(k Key, _ error) bool { _, wanted := want.Entries[k]; return !wanted })
	for k := range l.is {
		if _, wanted := want.Entries[k]; wanted || !k.IsStatic() || want.Unknown[k.Slice()] {
			continue
		}
		l.removeLocked(k)
	}
}

func (l *Labels) removeLocked(k Key) {
	if err := Remove(l.path, k); err != nil {
		l.log.Error("remove a label", "label", k.String(), "error", err)
		return
	}
	delete(l.is, k)
}

// openLocked reads the tables of a data path that is another one than before.
func (l *Labels) openLocked(path machine.DataPath) bool {
	if path == nil {
		l.path, l.is = nil, nil
		return false
	}
	if l.path == path && l.is != nil {
		return true
	}
	is := map[Key]datapath.NHLFE{}
	for e, err := range path.AllLabels() {
		if err != nil {
			l.log.Error("read labels", "error", err)
			l.path, l.is = nil, nil // what was known is of another data path
			return false
		}
		is[Key{e.Space, e.Number, e.FTN}] = e.NHLFE
	}
	rules, err := path.LabelRules()
	if err != nil {
		l.log.Error("read which packets get labels", "error", err)
		l.path, l.is = nil, nil
		return false
	}
	l.path, l.is, l.failed, l.rules, l.unruled = path, is, map[Key]error{}, rules, map[uint32]error{}
	return true
}

// Problem says why a router does not switch packets of an LSP; empty: it does.
func (l *Labels) Problem(id uint16, lsp *slice.LSP, hop int, n *slice.Node) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.path == nil {
		return "there is no fast path"
	}
	k := keyOf(id, lsp, hop, n)
	if err := l.failed[k]; err != nil {
		return err.Error()
	}
	if why := l.missing[Hop{id, lsp.Name, n.Name}]; why != "" {
		return why
	}
	if _, there := l.is[k]; !there && (k.FTN || k.Number >= slice.FirstLabel) {
		return "its label is about to be written"
	}
	return ""
}

func (k Key) String() string {
	if k.FTN {
		return fmt.Sprintf("FTN %d of space %#x", k.Number, k.Space)
	}
	return fmt.Sprintf("label %d of space %#x", k.Number, k.Space)
}

// IsStatic reports whether an entry is of the numbers that LSPs have which are not signalled.
func (k Key) IsStatic() bool {
	if k.FTN {
		return k.Number <= slice.LastStaticFTN
	}
	return k.Number <= slice.LastStatic
}

// Put writes an entry, in place of the one that is there.
func Put(path machine.DataPath, k Key, e datapath.NHLFE) error {
	if k.FTN {
		return path.SetFTN(k.Space, k.Number, e)
	}
	return path.SetLabel(k.Space, k.Number, e)
}

// Remove removes an entry. It is no error if it is not there.
func Remove(path machine.DataPath, k Key) error {
	if k.FTN {
		return path.DeleteFTN(k.Space, k.Number)
	}
	return path.DeleteLabel(k.Space, k.Number)
}
