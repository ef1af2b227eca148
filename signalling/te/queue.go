package te

// label is a way to a router. It has no pointers: there are many, and they are moved about.
type label struct {
	cost       uint64
	unreserved uint64 // of its links, the least
	hops       int32
	node       int32
	link       int32 // by which it enters node
	end        int32 // which of the link's
	before     int32 // the label that it goes on from
}

// better orders ways, the best first.
func (l label) better(o label) bool {
	switch {
	case l.cost != o.cost:
		return l.cost < o.cost
	case l.hops != o.hops:
		return l.hops < o.hops
	case l.unreserved != o.unreserved:
		return l.unreserved > o.unreserved
	case l.node != o.node:
		return l.node < o.node
	}
	return l.link < o.link
}

// queue is the labels that wait. Of each router it takes only those better than the ones before, or several.
type queue struct {
	heap
	best    []label
	several bool
}

func (q *queue) offer(l label) {
	if b := &q.best[l.node]; q.several || b.hops == 0 || l.better(*b) {
		*b = l
		q.push(l)
	}
}

// heap is a binary heap of labels, the best first.
type heap []label

func (h *heap) push(l label) {
	*h = append(*h, l)
	all := *h
	for i := len(all) - 1; i > 0; {
		up := (i - 1) / 2
		if !all[i].better(all[up]) {
			return
		}
		all[i], all[up] = all[up], all[i]
		i = up
	}
}

func (h *heap) pop() label {
	all := *h
	best, n := all[0], len(all)-1
	all[0] = all[n]
	all = all[:n]
	*h = all
	for i := 0; ; {
		down := 2*i + 1
		if down >= n {
			return best
		}
		if down+1 < n && all[down+1].better(all[down]) {
			down++
		}
		if !all[down].better(all[i]) {
			return best
		}
		all[i], all[down] = all[down], all[i]
		i = down
	}
}
