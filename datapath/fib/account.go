package fib

import "fmt"

// The share of a map that one router may fill, of what all routers have in common: root in a node may add
// routes and neighbours without end, and must not take them from others.
const (
	nodesShare = 4 // a quarter, in which a million routes of either family have room
	tableShare = 8 // an eighth, of the other maps
)

// An account is what a router has taken of the memory.
type account struct {
	*memory
	router   uint32
	records  int // and nodes, each of which is as large as nodePaths of them; guarded by memory.mu, as all of these
	nexthops int
}

// afford reports whether a router may use so many entries of a map that has bound for all.
func afford(router uint32, name string, use, bound, share int) error {
	if use > bound/share {
		return fmt.Errorf("%w: map %s: router %d uses its share, %d of %d", ErrFull, name, router, bound/share,
			bound)
	}
	return nil
}

// take charges the account for memory of nodes.
func (a *account) take(records int) error {
	use := (a.records + records + nodePaths - 1) / nodePaths
	if err := afford(a.router, a.memory.nodes.name, use, max(a.bound, a.made)*chunkNodes, nodesShare); err != nil {
		return err
	}
	a.records += records
	return nil
}

// newNode makes a node in which every entry is the same.
func (a *account) newNode(fill entry) (uint32, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.take(nodePaths); err != nil {
		return 0, err
	}
	n, err := a.takeNode()
	if err != nil {
		a.records -= nodePaths
		return 0, err
	}
	entries := a.node(n)
	for i := range entries {
		entries[i] = uint32(fill)
	}
	return n, nil
}

func (a *account) freeNode(n uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.records -= nodePaths
	a.memory.nodes.giveBack(n)
}

// newPath makes a record; the entry refers to it.
func (a *account) newPath(k key, length int, match, miss entry) (entry, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.take(1); err != nil {
		return 0, err
	}
	e, err := a.takePath()
	if err != nil {
		a.records--
		return 0, err
	}
	*a.path(e) = path{key: k.first(length), length: uint32(length), match: uint32(match), miss: uint32(miss)}
	return e, nil
}

func (a *account) freePath(e entry) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.records--
	a.paths.giveBack(uint32(e))
}

func (a *account) newNexthop() (uint32, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := afford(a.router, a.memory.nexthops.name, a.nexthops+1, len(a.hops), tableShare); err != nil {
		return 0, err
	}
	if err := a.await(&a.memory.nexthops); err != nil {
		return 0, err
	}
	a.nexthops++
	return a.memory.nexthops.take(), nil
}

func (a *account) freeNexthop(n uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.nexthops--
	a.memory.nexthops.giveBack(n)
}
