package resolve

import (
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/unit"
)

// fitQueues gives lengths to the queues of a node for which the file has none: what suits their rates, and less where
// that is more than there is. All of them get the same part then of what they would have beyond the least. Half of
// what the node has stays free for queues that come while it runs, unless the file itself takes it.
func (n *node) fitQueues() {
	var silent []silentQueue
	var written, least, wanted int64
	for _, p := range n.interfaces {
		for i := range p.shape.Queues {
			q := &p.shape.Queues[i]
			if q.Length != (unit.Length{}) {
				written += q.Bytes(p.out.MTU)
				continue
			}
			q.Length.Frames = slice.LeastDefaultQueue
			least += q.Bytes(p.out.MTU)
			q.Length = q.DefaultLength(p.shape.Rate, p.out.MTU)
			wanted += q.Bytes(p.out.MTU)
			silent = append(silent, silentQueue{q, q.Length.Frames - slice.LeastDefaultQueue})
		}
	}
	most := n.out.Reserve.BufferBound()
	room := min(most/2, most-written)
	if wanted <= room || wanted == least {
		return
	}
	part := float64(max(room-least, 0)) / float64(wanted-least)
	for _, q := range silent {
		q.queue.Length.Frames = slice.LeastDefaultQueue + int(part*float64(q.beyond))
	}
}

// silentQueue is a queue for which the file has no length.
type silentQueue struct {
	queue  *slice.Queue
	beyond int // frames that it would have beyond the least
}
