package fib

// How a trie changes its shape: by one store each, which changes no answer.

// split turns the path at a place of that depth into a node at depth at, where something new is to branch off, with
// what the path said.
func (t trie) split(slot *uint32, depth, at int) error {
	e := load(slot)
	p := t.path(e)
	match, miss, length := load(&p.match), load(&p.miss), int(p.length)
	fill := miss
	if length == at {
		fill = match
	}
	n, err := t.newNode(fill)
	if err != nil {
		return err
	}
	kept := false // the record
	first := int(p.key.byteAt(at))
	switch {
	case length == at:
	case length > at+8:
		t.node(n)[first] = uint32(e)
		kept = true
	case match.kind() == nodeEntry:
		t.node(n)[first] = uint32(match)
	default:
		for i := range 1 << (at + 8 - length) {
			t.node(n)[first+i] = uint32(match)
		}
	}
	here := newEntry(nodeEntry, n)
	if at > depth {
		if here, err = t.newPath(p.key, at, here, miss); err != nil {
			t.freeNode(n)
			return err
		}
	}
	t.store(slot, here)
	if !kept {
		t.freePath(e)
	}
	return nil
}

// A place is where a node hangs: at an entry of its parent, by itself or as the match of a jump.
type place struct {
	slot  *uint32
	node  uint32
	depth int // of the node
}

// fold takes out nodes that a deletion has left with less than two routes, from the last place up.
func (t trie) fold(trail []place, k key) {
	for i := len(trail) - 1; i >= 0; i-- {
		if !t.foldOne(trail[i], k.first(trail[i].depth)) {
			return
		}
	}
}

// foldOne folds a node whose destinations begin with k, if it can.
func (t trie) foldOne(at place, k key) bool {
	cover, rest, ok := t.reduce(at, k)
	if !ok {
		return false
	}
	e := load(at.slot)
	jump := e.kind() == pathEntry
	exact := jump && cover.length() == at.depth // a route to just what the node decides
	var into entry
	switch {
	case exact && rest != nil:
		return false
	case exact:
		t.store(&t.path(e).match, cover)
		t.freeNode(at.node)
		return true
	case rest == nil:
		into = cover
	case rest.entry.kind() == pathEntry:
		into = rest.entry
	default:
		p, err := t.newPath(rest.key, rest.length, rest.entry, cover)
		if err != nil { // full: then the node stays
			return false
		}
		into = p
	}
	t.store(at.slot, into)
	t.freeNode(at.node)
	if jump {
		t.freePath(e)
	}
	return true
}

// An exception is the one entry of a node beside the answer that covers the node as a whole.
type exception struct {
	entry  entry
	key    key
	length int
}

// reduce gives the answer that covers a node, and the exception if there is one. It is not ok where there are several
// exceptions.
func (t trie) reduce(at place, k key) (cover entry, rest *exception, ok bool) {
	covered := false
	for i := range t.node(at.node) {
		e := load(&t.node(at.node)[i])
		if e.answer() && e.length() <= at.depth {
			cover, covered = e, true
			continue
		}
		here := exception{entry: e, length: at.depth + 8}
		if e.answer() {
			here.length = e.length()
		}
		here.key = k.withByte(at.depth, uint8(i)).first(here.length)
		if rest != nil && *rest != here {
			return 0, nil, false
		}
		rest = &here
	}
	if rest != nil && rest.entry.kind() == pathEntry && load(&t.path(rest.entry).miss).length() > at.depth {
		return 0, nil, false // a route to just that entry
	}
	return cover, rest, covered
}
