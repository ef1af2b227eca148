// Package reconcile is the core of the agent: what is wanted and what is there go in, the actions that make them
// equal come out. It does no I/O and knows no clock: time is a value. What a resource is (a container, a veth pair,
// a queue) is none of its business.
//
// A host is a set of resources. Each has a Key, a Digest of what it is made from, and the resources that it Needs:
// they must be there before it is made, and it must be gone before they go. Some resources Fall with what they need:
// the kernel removes a veth pair when a container's network namespace ends, so nobody has to.
//
//	wanted ──┐
//	         ├─ Plan ─> actions ─> Run (any order that the graph allows) ─> observe again ─> until Plan is empty
//	observed ┘
//
// Invariants, which the tests check over random histories with failures at every step:
//
//   - Acting on a plan, then planning again until nothing is left, ends with observed equal to wanted.
//   - No action is taken whose needs are not there, and none on a resource that others still need.
//   - A resource that is as wanted, and all of whose needs are, is never touched.
//   - A failure holds back what depends on it, and nothing else.
package reconcile

import (
	"cmp"
	"fmt"
	"slices"
)

// Kind sorts resources; the caller gives the numbers their meaning. Plans list lower kinds first where nothing else
// decides.
type Kind uint8

// Key names a resource on a host.
type Key struct {
	Kind  Kind
	Slice uint16 // 0: of the host itself
	Name  string
}

func compareKeys(a, b Key) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Slice, b.Slice), cmp.Compare(a.Name, b.Name))
}

// Resource is one thing that is wanted.
type Resource struct {
	Key    Key
	Digest string
	Needs  []Key // must be there before; this one is unmade before them
	After  []Key // if these are to be made as well, they come first; should they fail, this one is made all the same
	Falls  Falls // whether it vanishes by itself when its needs do
	// Amend: a change of Digest is carried out in place, by OpUpdate. Otherwise the resource is deleted and made anew.
	Amend bool
}

// Observed is one thing that is there.
type Observed struct {
	Key    Key
	Digest string
	Needs  []Key // as in Resource: what it stands on now
	Falls  Falls
	Broken bool // half made or half gone: not to be mended, only to be deleted
}

// Falls says whether a resource vanishes without an action when what it needs does.
type Falls uint8

// The ways of falling.
const (
	FallsNever   Falls = iota
	FallsWithAny       // of its needs
	FallsWithAll       // of its needs; if only some go, it is deleted by an action
)

// Op is what an action does.
type Op uint8

// The operations, in the order in which a plan lists them.
const (
	OpDelete Op = iota
	OpCreate
	OpUpdate
)

func (o Op) String() string { return [...]string{"delete", "create", "update"}[o] }

// Action is one step. Every index in After (of actions in the same plan) must have been carried out, or must have
// failed in the case of Soft, before it may begin.
type Action struct {
	Op    Op
	Key   Key
	After []int
	Soft  []int
}

func (a Action) String() string {
	return fmt.Sprintf("%s %d/%d/%s", a.Op, a.Key.Kind, a.Key.Slice, a.Key.Name)
}

// Plan gives the actions that turn observed into wanted. Keys for which hold answers true are left as they are for
// now, and so is what needs them; hold may be nil. An error means that wanted contradicts itself: a need that is not wanted.
func Plan(wanted []Resource, observed []Observed, hold func(Key) bool) ([]Action, error) {
	p := planner{
		wanted:   make(map[Key]*Resource, len(wanted)),
		observed: make(map[Key]*Observed, len(observed)),
		goes:     make(map[Key]bool),
		unfit:    make(map[Key]bool),
		falls:    make(map[Key]bool),
		hold:     hold,
	}
	for i := range wanted {
		p.wanted[wanted[i].Key] = &wanted[i]
	}
	for i := range observed {
		p.observed[observed[i].Key] = &observed[i]
	}
	for i := range wanted {
		for _, need := range wanted[i].Needs {
			if p.wanted[need] == nil {
				return nil, fmt.Errorf("plan %v: needs %v, which is not wanted", wanted[i].Key, need)
			}
		}
	}
	p.decideWhatGoes(observed)
	p.decideWhatComes(wanted)
	return p.order(), nil
}

type planner struct {
	wanted   map[Key]*Resource
	observed map[Key]*Observed
	goes     map[Key]bool // observed, and will not be there any more (deleted, or fallen)
	unfit    map[Key]bool // observed, and should go, but cannot now: nothing new is put on it
	falls    map[Key]bool // of those: goes by itself
	comes    map[Key]Op   // wanted: OpCreate or OpUpdate
	hold     func(Key) bool
}

func (p *planner) held(k Key) bool { return p.hold != nil && p.hold(k) }

// decideWhatGoes marks what is not wanted, broken, or of another make, and all that stands on it.
func (p *planner) decideWhatGoes(observed []Observed) {
	above := make(map[Key][]Key)
	for i := range observed {
		for _, need := range observed[i].Needs {
			above[need] = append(above[need], observed[i].Key)
		}
	}
	stuck := p.stuck(observed)
	var queue []Key
	mark := func(k Key) {
		switch {
		case stuck[k]:
			p.unfit[k] = true
		case !p.goes[k]:
			p.goes[k] = true
			queue = append(queue, k)
		}
	}
	for i := range observed {
		o := &observed[i]
		w := p.wanted[o.Key]
		if w == nil || o.Broken || (o.Digest != w.Digest && !w.Amend) {
			mark(o.Key)
		}
	}
	for ; len(queue) > 0; queue = queue[1:] {
		for _, k := range above[queue[0]] {
			mark(k)
		}
	}
	for k := range p.goes {
		p.falls[k] = p.fallsByItself(p.observed[k])
	}
}

// stuck marks what cannot be deleted now: what is held, and what it stands on.
func (p *planner) stuck(observed []Observed) map[Key]bool {
	stuck := make(map[Key]bool)
	var queue []Key
	for i := range observed {
		if p.held(observed[i].Key) {
			queue = append(queue, observed[i].Key)
		}
	}
	for ; len(queue) > 0; queue = queue[1:] {
		k := queue[0]
		if o := p.observed[k]; o != nil && !stuck[k] {
			stuck[k] = true
			queue = append(queue, o.Needs...)
		}
	}
	return stuck
}

func (p *planner) fallsByItself(o *Observed) bool {
	going := 0
	for _, need := range o.Needs {
		if p.goes[need] {
			going++
		}
	}
	return o.Falls == FallsWithAny && going > 0 || o.Falls == FallsWithAll && going > 0 && going == len(o.Needs)
}

// decideWhatComes marks what is wanted and not there, or not as wanted, unless it or something below it is held.
func (p *planner) decideWhatComes(wanted []Resource) {
	p.comes = make(map[Key]Op)
	blocked := make(map[Key]bool) // nothing new can be put on it
	var isBlocked func(k Key, depth int) bool
	isBlocked = func(k Key, depth int) bool {
		if b, known := blocked[k]; known {
			return b
		}
		o := p.observed[k]
		b := p.unfit[k] || depth > len(p.wanted)
		if o == nil || p.goes[k] {
			b = b || p.held(k)
		}
		for _, need := range p.wanted[k].Needs {
			b = b || isBlocked(need, depth+1)
		}
		blocked[k] = b
		return b
	}
	for i := range wanted {
		w := &wanted[i]
		o := p.observed[w.Key]
		switch {
		case o == nil || p.goes[w.Key]:
			if !isBlocked(w.Key, 0) {
				p.comes[w.Key] = OpCreate
			}
		case o.Digest != w.Digest && w.Amend && !p.held(w.Key) && !isBlocked(w.Key, 0):
			p.comes[w.Key] = OpUpdate
		}
	}
}

// order lays the actions out and joins them by what must come first.
func (p *planner) order() []Action {
	var plan []Action
	deletes, makes := make(map[Key]int), make(map[Key]int)
	for k := range p.goes {
		if !p.falls[k] {
			plan = append(plan, Action{Op: OpDelete, Key: k})
		}
	}
	for k, op := range p.comes {
		plan = append(plan, Action{Op: op, Key: k})
	}
	slices.SortFunc(plan, func(a, b Action) int {
		if (a.Op == OpDelete) != (b.Op == OpDelete) {
			return cmp.Compare(a.Op, b.Op)
		}
		if a.Op == OpDelete {
			return compareKeys(b.Key, a.Key) // what stands on top goes first
		}
		return compareKeys(a.Key, b.Key)
	})
	clears := make(map[Key][]int) // deletes of things that stand on a key
	for i, a := range plan {
		if a.Op != OpDelete {
			makes[a.Key] = i
			continue
		}
		deletes[a.Key] = i
		for _, need := range p.observed[a.Key].Needs {
			clears[need] = append(clears[need], i)
		}
	}
	for i, a := range plan { // what stands on a falling thing is deleted before the cause of the fall
		if a.Op != OpDelete {
			continue
		}
		for _, need := range p.observed[a.Key].Needs {
			if p.falls[need] {
				for _, cause := range p.causes(need, deletes) {
					if cause != i {
						plan[cause].After = append(plan[cause].After, i)
					}
				}
			}
		}
	}
	fallen := make(map[Key][]int)
	for k, byItself := range p.falls { // a thing that falls with several must have fallen before any of them returns
		if byItself {
			for _, need := range p.observed[k].Needs {
				fallen[need] = append(fallen[need], p.causes(k, deletes)...)
			}
		}
	}
	for i := range plan {
		a := &plan[i]
		if a.Op == OpDelete {
			a.After = append(a.After, clears[a.Key]...)
			continue
		}
		if d, ok := deletes[a.Key]; ok {
			a.After = append(a.After, d)
		} else if p.falls[a.Key] {
			a.After = append(a.After, p.causes(a.Key, deletes)...)
		}
		a.Soft = append(a.Soft, fallen[a.Key]...)
		w := p.wanted[a.Key]
		for _, need := range w.Needs {
			if m, ok := makes[need]; ok {
				a.After = append(a.After, m)
			}
			a.Soft = append(a.Soft, clears[need]...) // old tenants leave before new ones move in: names may repeat
		}
		for _, k := range w.After {
			if m, ok := makes[k]; ok {
				a.Soft = append(a.Soft, m)
			}
		}
	}
	return plan
}

// causes finds the deletes by which a falling resource falls.
func (p *planner) causes(k Key, deletes map[Key]int) []int {
	var found []int
	seen := map[Key]bool{k: true}
	for queue := []Key{k}; len(queue) > 0; queue = queue[1:] {
		for _, need := range p.observed[queue[0]].Needs {
			if seen[need] || !p.goes[need] {
				continue
			}
			seen[need] = true
			if d, ok := deletes[need]; ok {
				found = append(found, d)
			} else {
				queue = append(queue, need)
			}
		}
	}
	return found
}
