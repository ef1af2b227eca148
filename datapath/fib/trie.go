package fib

// A trie is the routes of one family of one router (bpf/fib.h says what programs make of it).
//
// A node at depth d decides bits d to d+7. Invariants, at any moment that a program may look:
//
//   - The answer found for a destination is that of the longest prefix that covers it.
//
//     only route below this place, whose answer is its match. Its miss is what covers the place as a whole.
type trie struct {
	*account
	root uint32
}

func newTrie(a *account) (trie, error) {
	root, err := a.newNode(0)
	return trie{account: a, root: root}, err
}

// lookup gives the answer for a destination, as find_entry() in bpf/fib.h does.
func (t trie) lookup(k key) entry {
	n, depth := t.root, 0
	for {
		e := load(&t.node(n)[k.byteAt(depth)])
		depth += 8
		if e.kind() == pathEntry {
			p := t.path(e)
			if k.common(p.key) < int(p.length) {
				return load(&p.miss)
			}
			e, depth = load(&p.match), int(p.length)
		}
		if e.kind() != nodeEntry {
			return e
		}
		n = e.index()
	}
}

// set makes v the answer of a prefix that has another, or none.
func (t trie) set(k key, length int, v entry) error {
	v = v.withLength(length)
	n, depth := t.root, 0
	for length > depth+8 {
		slot := &t.node(n)[k.byteAt(depth)]
		e := load(slot)
		switch e.kind() {
		case nodeEntry:
			n, depth = e.index(), depth+8
			continue
		case leafEntry, groupEntry:
			p, err := t.newPath(k, length, v, e)
			if err == nil {
				t.store(slot, p)
			}
			return err
		case pathEntry:
		}
		p := t.path(e)
		match, at := load(&p.match), int(p.length)
		common := min(k.common(p.key), length, at)
		switch {
		case common == at && length == at:
			t.push(&p.match, length, v)
			return nil
		case common == at && match.kind() == nodeEntry:
			n, depth = match.index(), at
		default:
			if err := t.split(slot, depth+8, common&^7); err != nil {
				return err
			}
		}
	}
	t.pushRange(n, depth, k, length, v)
	return nil
}

// delete makes cover, the answer of the next shorter prefix, the answer of a prefix that is in the trie.
func (t trie) delete(k key, length int, cover entry) {
	n, depth := t.root, 0
	var trail []place
	for length > depth+8 {
		slot := &t.node(n)[k.byteAt(depth)]
		e := load(slot)
		if e.kind() == nodeEntry {
			n, depth = e.index(), depth+8
			trail = append(trail, place{slot: slot, node: n, depth: depth})
			continue
		}
		p := t.path(e)
		match, at := load(&p.match), int(p.length)
		if length == at {
			if match.kind() != nodeEntry { // the route of which the record is all
				t.store(slot, load(&p.miss))
				t.freePath(e)
			} else {
				t.push(&p.match, length, cover)
				trail = append(trail, place{slot: slot, node: match.index(), depth: at})
			}
			t.fold(trail, k)
			return
		}
		n, depth = match.index(), at
		trail = append(trail, place{slot: slot, node: n, depth: depth})
	}
	t.pushRange(n, depth, k, length, cover)
	t.fold(trail, k)
}

// pushRange pushes an answer into the entries of a node that the prefix covers.
func (t trie) pushRange(n uint32, depth int, k key, length int, v entry) {
	first, count := int(k.first(length).byteAt(depth)), 1<<(depth+8-length)
	for i := first; i < first+count; i++ {
		t.push(&t.node(n)[i], length, v)
	}
}

// push gives all places below one the answer of a prefix that covers them, where no longer prefix has given another.
func (t trie) push(slot *uint32, length int, v entry) {
	switch e := load(slot); e.kind() {
	case nodeEntry:
		for i := range t.node(e.index()) {
			t.push(&t.node(e.index())[i], length, v)
		}
	case pathEntry:
		t.push(&t.path(e).miss, length, v)
		t.push(&t.path(e).match, length, v)
	default:
		if e.length() <= length && e != v {
			t.store(slot, v)
		}
	}
}
