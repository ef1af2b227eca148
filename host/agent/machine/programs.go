package machine

import (
	"context"
	"errors"
	"os"

	"github.com/pergola-net/pergola/host/wire"
)

// Programs runs packet programs of nodes on the fast path, by name (plan.NodeID.ProgramName). A Network that has it can
// have nodes of kind program.
type Programs interface {
	// SetProgram makes a program run, or replaces it: then memory, counters and all frames are kept. If it fails,
	// what ran before goes on.
	SetProgram(ctx context.Context, name string, p wire.Program) error
	DeleteProgram(ctx context.Context, name string) error
	Programs(ctx context.Context) (map[string]wire.ProgramState, error)
	ProgramCounters(ctx context.Context, name string) (wire.ProgramCounters, error)
	// ProgramTimes is the processor time of slices that have packet programs.
	ProgramTimes(ctx context.Context) (map[uint16]wire.ProgramTime, error)
	// ProgramMemory opens a program's memory, which can be mapped; nil where it declares none.
	ProgramMemory(ctx context.Context, name string) (*os.File, wire.ProgramMemory, error)
	// OpenSlowPath gives the file by which a process has the frames that a program punts.
	OpenSlowPath(ctx context.Context, name, owner string) (*os.File, error)
}

// ErrNoPrograms is the error of a packet program on a machine without a fast path.
var ErrNoPrograms = errors.New("this machine has no fast path, which packet programs need")

// Programs is that of the network that is open; nil where there is none.
func (m *Machine) Programs() Programs {
	p, _ := m.Network().(Programs)
	return p
}

// Filters is what packet programs look up, by the programs' names.
type Filters interface {
	ProgramFilters(ctx context.Context, name string) (wire.ProgramFilters, error)
	ChangeFilters(ctx context.Context, name string, deleted, inserted []string) error
	ReplaceFilters(ctx context.Context, name string, filters []string) error
}

// Filters is that of the network that is open; nil where there is none.
func (m *Machine) Filters() Filters {
	f, _ := m.Network().(Filters)
	return f
}
