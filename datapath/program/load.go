package program

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// Hook is where a program runs.
type Hook string

// The hooks.
const (
	XDP Hook = "xdp" // at a device, before the kernel makes a packet of it
	TC  Hook = "tc"  // at a port, for frames that a node sends
)

// Hooks are all of them.
var Hooks = []Hook{XDP, TC}

// Program is an object in the kernel, one program for each hook. Its memory and counters are theirs together.
type Program struct {
	Object *Object
	Costs  map[Hook]Cost

	platform *Platform
	programs map[Hook]*ebpf.Program
	maps     map[string]*ebpf.Map
	numbers  map[place]int // of filters, as SetFilters was given them
}

// Cost is what the slice's code adds to a program of the platform's.
type Cost struct {
	Verified int `json:"verified"` // instructions that the verifier looked at
	Stack    int `json:"stack"`    // bytes, of the deeper stage with all functions that it calls
}

// Load loads a program that runs by itself, without a network. The error is a *RefusedError if it is the program's
// fault. keep, if it is not nil, is an older version: what Options.Keep says is taken over from it, and
// filters, if the key's size is the same.
func Load(o *Object, keep *Program) (*Program, error) {
	opts := Options{Keep: keep}
	if keep != nil && keep.Object.KeyBytes == o.KeyBytes {
		opts.Maps = map[string]*ebpf.Map{}
		for _, name := range filterMaps {
			opts.Maps[name] = keep.maps[name]
		}
	}
	p, err := alone.Load(o, opts)
	if err == nil && keep != nil {
		p.numbers = keep.numbers
	}
	return p, err
}

// Maps are those of the program, by name.
func (p *Program) Maps() map[string]*ebpf.Map { return p.maps }

// Memory is the map of the slice's memory; nil: it declares none.
func (p *Program) Memory() *ebpf.Map { return p.maps[prefix+memoryMap] }

// Programs are those in the kernel, by hook.
func (p *Program) Programs() map[Hook]*ebpf.Program { return p.programs }

// mapsFor are the maps that a newer version of the program keeps.
func (p *Program) mapsFor(o *Object) map[string]*ebpf.Map {
	kept := map[string]*ebpf.Map{}
	if p == nil {
		return kept
	}
	keep := func(name string) {
		if m := p.maps[prefix+name]; m != nil {
			kept[prefix+name] = m
		}
	}
	if o.Memory == p.Object.Memory && o.Memory.Count > 0 {
		keep(memoryMap)
	}
	if len(o.Counters) > 0 && strings.Join(o.Counters, " ") == strings.Join(p.Object.Counters, " ") {
		keep(countersMap)
	}
	for _, g := range o.Globals {
		for _, was := range p.Object.Globals {
			if g.Section == was.Section && len(g.Contents) == len(was.Contents) && !g.Constant() {
				keep(g.Section)
			}
		}
	}
	return kept
}

// Close lets the kernel's objects go, unless others hold them.
func (p *Program) Close() error {
	var errs []error
	for _, q := range p.programs {
		errs = append(errs, q.Close())
	}
	for _, m := range p.maps {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}

func (p *Program) closeAfter(err error) error { return errors.Join(err, p.Close()) }

// weigh finds out what the code costs, and refuses what is above the limits.
func (p *Program) weigh(spec *ebpf.CollectionSpec) error {
	own, err := p.platform.costs(p.Object.reach)
	if err != nil {
		return err
	}
	for hook, q := range p.programs {
		verified, err := verifiedInstructions(q)
		if err != nil {
			return err
		}
		depths, err := stackDepths(q, spec.Programs[p.platform.names[hook]].Instructions)
		if err != nil {
			return err
		}
		c, sums := Cost{Verified: max(verified-own[hook], 0)}, map[string]int{}
		for _, stage := range []string{parseSymbol, formatSymbol} {
			if p.Object.functions[stage] != nil {
				c.Stack = max(c.Stack, p.Object.stack(stage, depths, sums))
			}
		}
		p.Costs[hook] = c
		if err := p.Object.refuseCost(hook, c); err != nil {
			return err
		}
	}
	return nil
}

func (o *Object) refuseCost(hook Hook, c Cost) error {
	var err *RefusedError
	switch {
	case c.Verified > MaxVerified:
		err = refuse("loop fewer times, or do less for each frame",
			"%d instructions are to be checked (%s), and %d may be: so many can a frame cost", c.Verified,
			hook, MaxVerified)
	case c.Stack > MaxStack:
		err = refuse("keep large variables in PERGOLA_SCRATCH", "needs %d bytes of stack, and there are %d",
			c.Stack, MaxStack)
	default:
		return nil
	}
	err.Object = o.Name
	return err
}

func verifiedInstructions(p *ebpf.Program) (int, error) {
	info, err := p.Info()
	if err != nil {
		return 0, fmt.Errorf("ask for what the verifier did: %w", err)
	}
	n, ok := info.VerifiedInstructions()
	if !ok {
		return 0, errors.New("the kernel does not say how many instructions it verified; Linux 6.1 does")
	}
	return int(n), nil
}

var stackLine = regexp.MustCompile(`(?m)^stack depth ([0-9+]+)`)

// stackDepths are what the verifier says that each function takes, by symbol.
func stackDepths(p *ebpf.Program, code asm.Instructions) (map[string]int, error) {
	line := stackLine.FindStringSubmatch(p.VerifierLog)
	if line == nil {
		return nil, fmt.Errorf("the kernel does not say how much stack the program takes: %q", p.VerifierLog)
	}
	var depths []int
	for text := range strings.SplitSeq(line[1], "+") {
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("read the stack's depth: %w", err)
		}
		depths = append(depths, n)
	}
	all := map[string]int{}
	for i := range code {
		if name := code[i].Symbol(); name != "" && len(all) < len(depths) {
			all[name] = depths[len(all)]
		}
	}
	return all, nil
}

// stack is what a function takes with all that it calls. The kernel gives each at least 32 bytes, and multiples of
// that. sums has those that are known.
func (o *Object) stack(name string, depths, sums map[string]int) int {
	const unit = 32
	if sum, ok := sums[name]; ok {
		return sum
	}
	below := 0
	for _, callee := range o.functions[name].calls {
		below = max(below, o.stack(callee, depths, sums))
	}
	symbol := name
	if name != parseSymbol && name != formatSymbol {
		symbol = prefix + name
	}
	sums[name] = (max(depths[symbol], 1)+unit-1)/unit*unit + below
	return sums[name]
}
