package agent

import (
	"context"
	"errors"
	"maps"
	"os"

	"github.com/pergola-net/pergola/host/wire"
)

// refusedProgram is an object that the kernel's verifier refuses.
const refusedProgram = "a program that loops for ever"

// errNoHandover is the error of a program that runs, and to which XDP cannot bring frames.
var errNoHandover = errors.New("make the way from XDP to tc: no buffer space available")

var errRefused = errors.New("x.c:7: parse: infinite loop detected")

func (n *memoryNetwork) SetProgram(_ context.Context, name string, p wire.Program) error {
	return n.step("set program", func() error {
		if string(p.Object) == refusedProgram {
			return errRefused
		}
		if len(p.Object) == 0 {
			return n.violated("program %s has no object", name)
		}
		is := wire.ProgramState{Digest: p.Digest, Runs: true, Verified: len(p.Object), CutOff: n.noHandover}
		for _, device := range p.Ports {
			if device == "" {
				is.Ports = append(is.Ports, 0)
				continue
			}
			port, there := n.state.Ports[device]
			if !there || port.Tunnel {
				return n.violated("program %s is set, and has no port %s", name, device)
			}
			is.Ports = append(is.Ports, port.Index)
		}
		for len(is.Ports) > 0 && is.Ports[len(is.Ports)-1] == 0 {
			is.Ports = is.Ports[:len(is.Ports)-1]
		}
		n.runs[name] = is
		if n.noHandover {
			return &wire.CutOffError{Err: errNoHandover}
		}
		return nil
	}, nil)
}

func (n *memoryNetwork) DeleteProgram(_ context.Context, name string) error {
	return n.step("delete program", func() error { delete(n.runs, name); return nil }, nil)
}

func (n *memoryNetwork) Programs(context.Context) (map[string]wire.ProgramState, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.runs), nil
}

func (n *memoryNetwork) ProgramTimes(context.Context) (map[uint16]wire.ProgramTime, error) {
	return nil, nil
}

func (n *memoryNetwork) ProgramMemory(context.Context, string) (*os.File, wire.ProgramMemory, error) {
	return nil, wire.ProgramMemory{}, nil
}

func (n *memoryNetwork) OpenSlowPath(context.Context, string, string) (*os.File, error) {
	return nil, wire.ErrNoSlowPath
}

// ProgramCounters counts as many frames as a program has ports.
func (n *memoryNetwork) ProgramCounters(_ context.Context, name string) (wire.ProgramCounters, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	frames := uint64(len(n.runs[name].Ports))
	return wire.ProgramCounters{
		Own: map[string]uint64{"passed": frames}, Platform: map[string]uint64{"frames": frames},
	}, nil
}
