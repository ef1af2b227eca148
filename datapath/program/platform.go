package program

import (
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
)

// Platform is programs of the platform's, one for each hook, that a slice's code is put into.
type Platform struct {
	names map[Hook]string
	read  func() (*ebpf.CollectionSpec, error) // callers copy it

	mu      sync.Mutex // guards weighed
	weighed map[reach]map[Hook]int
}

// NewPlatform is for programs of these names in an object that has the stages of bpf/program.h. It is read once. Maps
// that no program uses are left out, and none is pinned.
func NewPlatform(object func() (*ebpf.CollectionSpec, error), names map[Hook]string) *Platform {
	p := &Platform{names: names, weighed: map[reach]map[Hook]int{}}
	p.read = sync.OnceValues(func() (*ebpf.CollectionSpec, error) {
		spec, err := object()
		if err != nil {
			return nil, fmt.Errorf("read the platform's program: %w", err)
		}
		strip(spec)
		return spec, nil
	})
	return p
}

// alone is the platform of programs that run by themselves, without a network.
var alone = NewPlatform(loadStages, map[Hook]string{XDP: stagesProgProgramXdp, TC: stagesProgProgramTc})

func strip(spec *ebpf.CollectionSpec) {
	used := map[string]bool{}
	for _, p := range spec.Programs {
		for i := range p.Instructions {
			used[p.Instructions[i].Reference()] = true
		}
	}
	for name, m := range spec.Maps {
		m.Pinning = ebpf.PinNone
		if !used[name] || name == ".bss" { // which holds pointers that put names into the object's types
			delete(spec.Maps, name)
		}
	}
	for name, v := range spec.Variables {
		if v.SectionName == ".bss" {
			delete(spec.Variables, name)
		}
	}
}

// Load puts the code into copies of the platform's programs, and these into the kernel. The error is a *RefusedError
// if it is the program's fault.
func (p *Platform) Load(o *Object, opts Options) (*Program, error) {
	spec, err := p.read()
	if err != nil {
		return nil, err
	}
	return p.load(o, spec.Copy(), opts)
}

// Options are how a program is loaded.
type Options struct {
	// Keep, if it is not nil, is an older program of the same node: memory and global variables are taken over from
	// it if their sizes are the same, and counters if their names are.
	Keep *Program
	// Maps take the place of those of the platform that have these names. They stay the caller's.
	Maps map[string]*ebpf.Map
	// Change, if it is not nil, changes the platform's maps before they are made.
	Change func(maps map[string]*ebpf.MapSpec)
	// Constants are written into the platform's constants of these names.
	Constants map[string]any
}

// load is Load with a platform's program that constants may have been written into.
func (p *Platform) load(o *Object, platform *ebpf.CollectionSpec, opts Options) (*Program, error) {
	spec, err := o.splice(platform)
	if err != nil {
		return nil, err
	}
	if opts.Change != nil {
		opts.Change(spec.Maps)
	}
	for name, value := range opts.Constants {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("set %s: %w", name, err)
		}
	}
	q, err := p.start(o, spec, opts)
	if err != nil {
		return nil, o.explain(spec, err)
	}
	if err := q.weigh(spec); err != nil {
		return nil, q.closeAfter(err)
	}
	return q, nil
}

// start loads a collection for all hooks, with the statistics of the verifier in its log.
func (p *Platform) start(o *Object, spec *ebpf.CollectionSpec, opts Options) (*Program, error) {
	maps := opts.Keep.mapsFor(o)
	for name, m := range opts.Maps {
		maps[name] = m
	}
	for name := range maps {
		if spec.Maps[name] == nil {
			delete(maps, name)
		}
	}
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{
		MapReplacements: maps,
		Programs:        ebpf.ProgramOptions{LogLevel: ebpf.LogLevelStats},
	})
	if err != nil {
		return nil, err
	}
	q := &Program{Object: o, Costs: map[Hook]Cost{}, platform: p, programs: map[Hook]*ebpf.Program{}, maps: c.Maps}
	for hook, name := range p.names {
		q.programs[hook] = c.Programs[name]
	}
	return q, nil
}

// Adopt makes a Program of what an earlier process loaded with the object, and has pinned.
func (p *Platform) Adopt(o *Object, costs map[Hook]Cost, programs map[Hook]*ebpf.Program,
	maps map[string]*ebpf.Map,
) *Program {
	return &Program{Object: o, Costs: costs, platform: p, programs: programs, maps: maps}
}

// costs are the instructions that the verifier looks at without a slice's code, but for a program that reaches so far.
// What could not be found out is asked again: the host may have been short of memory.
func (p *Platform) costs(r reach) (map[Hook]int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.weighed[r]; known != nil {
		return known, nil
	}
	costs, err := p.weigh(r)
	if err == nil {
		p.weighed[r] = costs
	}
	return costs, err
}

func (p *Platform) weigh(r reach) (map[Hook]int, error) {
	spec, err := p.read()
	if err != nil {
		return nil, err
	}
	spec = spec.Copy()
	if err := setConstants(spec, 0, r); err != nil {
		return nil, err
	}
	c, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, fmt.Errorf("load the platform's program: %w", err)
	}
	defer c.Close()
	costs := map[Hook]int{}
	for hook, name := range p.names {
		if costs[hook], err = verifiedInstructions(c.Programs[name]); err != nil {
			return nil, err
		}
	}
	return costs, nil
}
