package datapath

import (
	"testing"

	"github.com/pergola-net/pergola/datapath/node"
)

// chooser sends every frame out by its second interface, into the queue that the frame names.
const chooser = `
PERGOLA_PARSE(packet)
{
	packet->output = 2;
	packet->queue = pergola_ntohl(*pergola_header(packet, PERGOLA_ETHERNET + 2, uint32_t));
	return PERGOLA_SEND;
}
`

func TestPacketProgramChoosesAQueue(t *testing.T) {
	inProgramWorld(t, func(w *world, n *node.Nodes) {
		w.line(1)
		ports, _ := w.behind(2)
		w.check(n.Set("x", made(w.compile(chooser), ports...)))
		queued := func(queues int) {
			w.change(ports[1], func(p *Port) { p.Mode, p.Queues = Queue, queues })
		}
		for name, c := range map[string]struct {
			queues int
			frame  []byte // queue
			class  uint32
			missed uint64
		}{
			"none chosen":         {6, []byte{0, 0, 0, 0}, FirstQueue, 0},
			"the first":           {6, []byte{0, 0, 0, 1}, FirstQueue + 1, 0},
			"the last":            {6, []byte{0, 0, 0, 5}, FirstQueue + 5, 0},
			"one too many":        {6, []byte{0, 0, 0, 6}, FirstQueue, 1},
			"of another number":   {6, []byte{0, 1, 0, 1}, FirstQueue, 1},
			"around zero":         {6, []byte{255, 255, 255, 240}, FirstQueue, 1},
			"of 1024, the last":   {1024, []byte{0, 0, 3, 255}, FirstQueue + 1023, 0},
			"there are no queues": {0, []byte{0, 0, 0, 1}, 0, 1},
		} {
			w.name = name
			queued(c.queues)
			if p, _, err := w.d.Port(ports[1]); err != nil || p.Queues != c.queues {
				t.Errorf("%s: %d queues, read back as %d: %v", name, c.queues, p.Queues, err)
			}
			before := counted(n, "x")["no such queue"]
			f := order(macB, append([]byte{0, 0}, c.frame...)...)
			if have := w.priority(w.a, f); have != c.class {
				t.Errorf("%s: class %x, want %x", name, have, c.class)
			}
			if missed := counted(n, "x")["no such queue"] - before; missed != c.missed {
				t.Errorf("%s: %d frames for queues that are not there, want %d", name, missed, c.missed)
			}
		}
	})
}

// What the node's own kernel sends, such as its slow path, takes queue 0.
func TestFramesOfTheNodeItselfTakeQueueZero(t *testing.T) {
	inProgramWorld(t, func(w *world, n *node.Nodes) {
		w.line(1)
		ports, _ := w.behind(2)
		w.check(n.Set("x", made(w.compile(chooser), ports[0], w.a)))
		w.change(w.a, func(p *Port) { p.Mode, p.Queues = Queue, 6 })
		if have := w.priority(w.a, order(macB, 0, 0, 0, 0, 0, 3)); have != FirstQueue {
			t.Errorf("class %x, want %x", have, FirstQueue)
		}
	})
}
