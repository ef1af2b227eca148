// Package reconcile is the core of the agent: what is wanted and what is there go in, the actions that make them
// equal come out. It does no I/O and knows no clock: time is a value. What a resource is (a container, a veth pair,
// a queue) is none of its business.
//
// A host is a set of resources. Each has a Key, a Digest of what it is made from, and the resources that it Needs:
// they must be there before it is made, and it must be gone before they go. Some resources Fall with what they need:
// the kernel removes a veth pair when a container's network namespace ends, so no action has to.
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
	After  []Key // if these are to be made too, they come first; if they fail, this one is made all the same
	Falls  Falls // whether it vanishes by itself when its needs do
	// Amend: a change of Digest is carried out in place, by OpUpdate. Otherwise the resource is deleted and made
	// anew.
	Amend bool
}

// Observed is one thing that is there.
type Observed struct {
	Key    Key
	Digest string
	Needs  []Key // as in Resource: what it stands on now
	Falls  Falls
	Broken bool // half made or half gone: not to be mended, only to be deleted
	// Blocks are what cannot be made while this one is there: it has the same name on the machine.
	Blocks []Key
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

// Plan gives the actions that turn observed into wanted. Keys for which hold answers true are left as they are for now,
// and so is what needs them; hold may be nil. An error means that wanted contradicts itself: a need that is not wanted.
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
	o := ordering{
		planner: p, plan: p.list(), deletes: make(map[Key]int), makes: make(map[Key]int),
		clears: make(map[Key][]int), fallen: make(map[Key][]int), blocks: make(map[Key][]int),
	}
	for i, a := range o.plan {
		if a.Op == OpDelete {
			o.deletes[a.Key] = i
		} else {
			o.makes[a.Key] = i
		}
	}
	o.note()
	for i := range o.plan {
		if o.plan[i].Op == OpDelete {
			o.afterDelete(i)
		} else {
			o.afterMake(&o.plan[i])
		}
	}
	return o.plan
}

// list gives the actions in the order in which they are listed: what stands on top is deleted first and made last.
func (p *planner) list() []Action {
	var plan []Action
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
			return compareKeys(b.Key, a.Key)
		}
		return compareKeys(a.Key, b.Key)
	})
	return plan
}

// ordering is a plan in the making.
type ordering struct {
	*planner
	plan    []Action
	deletes map[Key]int   // the index of a key's delete
	makes   map[Key]int   // and of its create or update
	clears  map[Key][]int // deletes of what stands on a key
	fallen  map[Key][]int // by key: deletes by which something falls that stands on it
	blocks  map[Key][]int // by key: deletes by which what blocks it goes
}

// note works out clears, fallen and blocks.
func (o *ordering) note() {
	for k := range o.goes {
		for _, blocked := range o.observed[k].Blocks {
			if i, ok := o.deletes[k]; ok {
				o.blocks[blocked] = append(o.blocks[blocked], i)
			} else {
				o.blocks[blocked] = append(o.blocks[blocked], o.causes(k, o.deletes)...)
			}
		}
	}
	for i, a := range o.plan {
		if a.Op == OpDelete {
			for _, need := range o.observed[a.Key].Needs {
				o.clears[need] = append(o.clears[need], i)
			}
		}
	}
	for k, byItself := range o.falls {
		if byItself {
			for _, need := range o.observed[k].Needs {
				o.fallen[need] = append(o.fallen[need], o.causes(k, o.deletes)...)
			}
		}
	}
}

// afterDelete lets what stands on a thing be deleted before it, and what stands on a falling thing before the cause of
// the fall.
func (o *ordering) afterDelete(i int) {
	k := o.plan[i].Key
	o.plan[i].After = append(o.plan[i].After, o.clears[k]...)
	for _, need := range o.observed[k].Needs {
		if !o.falls[need] {
			continue
		}
		for _, cause := range o.causes(need, o.deletes) {
			if cause != i {
				o.plan[cause].After = append(o.plan[cause].After, i)
			}
		}
	}
}

// afterMake lets a thing be made after its needs, after what it replaces, and after old tenants of its needs have left:
// names may repeat. A thing that fell with several must have fallen before any of those returns.
func (o *ordering) afterMake(a *Action) {
	if d, ok := o.deletes[a.Key]; ok {
		a.After = append(a.After, d)
	} else if o.falls[a.Key] {
		a.After = append(a.After, o.causes(a.Key, o.deletes)...)
	}
	a.After = append(a.After, o.blocks[a.Key]...)
	a.Soft = append(a.Soft, o.fallen[a.Key]...)
	w := o.wanted[a.Key]
	for _, need := range w.Needs {
		if m, ok := o.makes[need]; ok {
			a.After = append(a.After, m)
		}
		a.Soft = append(a.Soft, o.clears[need]...)
	}
	for _, k := range w.After {
		if m, ok := o.makes[k]; ok {
			a.Soft = append(a.Soft, m)
		}
	}
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
