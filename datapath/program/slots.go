package program

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// Slots are where nodes' programs are called from: a table of programs for each hook (BPF_MAP_TYPE_PROG_ARRAY), in
// which a node has the same index. A change of an entry is one store: each frame meets the older program or the newer
// one, and never none. The kernel keeps a program for as long as a frame is in it.
type Slots struct {
	tables map[Hook]*ebpf.Map
}

// NewSlots takes tables that stay the caller's.
func NewSlots(tables map[Hook]*ebpf.Map) *Slots { return &Slots{tables} }

// Put makes p the program at the index, for all hooks or, where one refuses it, for none: then the older one, which
// may be nil, is put back.
func (s *Slots) Put(index uint32, p, older *Program) error {
	for i, hook := range Hooks {
		table := s.tables[hook]
		if table == nil {
			continue
		}
		err := table.Put(index, p.programs[hook])
		if err == nil {
			continue
		}
		err = fmt.Errorf("put the program into slot %d of %s: %w", index, hook, err)
		for _, done := range Hooks[:i] {
			err = errors.Join(err, s.restore(done, index, older))
		}
		return err
	}
	return nil
}

func (s *Slots) restore(hook Hook, index uint32, older *Program) error {
	table := s.tables[hook]
	if table == nil {
		return nil
	}
	if older == nil {
		return table.Delete(index)
	}
	return table.Put(index, older.programs[hook])
}

// Replace loads a newer version of a program and puts it in the place of the older one, with that one's memory
// (Load). If it cannot be loaded or put there, the older one stays as it is. The older one is then the caller's to
// close, and so is the newer one.
func (s *Slots) Replace(index uint32, o *Object, older *Program) (*Program, error) {
	p, err := Load(o, older)
	if err != nil {
		return nil, err
	}
	if err := s.Put(index, p, older); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}
