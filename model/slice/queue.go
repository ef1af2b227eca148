package slice

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/pergola-net/pergola/model/unit"
)

// Queue is one of the queues among which a packet program chooses, by its number, for each frame that it sends by an
// interface. A queue first gets what it has reserved; what is left of the interface's rate goes to the queues in which
// frames wait: by priority, and among queues of one priority by share.
type Queue struct {
	Share   int         `json:"share"`             // weight, 1 to MaxShare
	Reserve unit.Rate   `json:"reserve,omitempty"` // bit/s that the queue gets whenever it wants them
	Rate    unit.Rate   `json:"rate,omitempty"`    // bit/s that the queue gets at most; 0: the interface's
	Length  unit.Length `json:"length,omitzero"`   // zero, of older versions: DefaultQueue frames
	// Priority is 1 (served first) to LastPriority-1; 0: LastPriority.
	Priority int `json:"priority,omitempty"`
}

// PriorityOf is a queue's from one that was written, of which LastPriority is none.
func PriorityOf(written int) int {
	if written == LastPriority {
		return 0
	}
	return written
}

// MaxQueues is how many queues an interface has at most, number 0 included.
const MaxQueues = 1024

// LeastDefaultQueue is how many frames a queue holds at least for which nobody said so: a burst of a sender that sends
// what one super-frame holds (64 KiB).
const LeastDefaultQueue = 64

// DefaultLength is what the queue holds for which nobody said so: full frames, as many as it sends in 100 ms, which is
// the bandwidth-delay product of a long path, from LeastDefaultQueue to DefaultQueue. Rate is that of the link.
func (q Queue) DefaultLength(rate unit.Rate, mtu int) unit.Length {
	full := int(min(cmp.Or(q.Rate, rate).BytesPerSecond()/10/uint64(mtu+ethernetHeader), DefaultQueue))
	return unit.Length{Frames: max(full, LeastDefaultQueue)}
}

// Bytes is the queue's length where frames have this MTU.
func (q Queue) Bytes(mtu int) int64 {
	if q.Length.Bytes != 0 {
		return q.Length.Bytes
	}
	return int64(cmp.Or(q.Length.Frames, DefaultQueue)) * int64(mtu+ethernetHeader)
}

const ethernetHeader = 14

func (s Scheduler) checkQueues() error {
	var reserved unit.Rate
	switch {
	case len(s.Classes) > 0:
		return errors.New("a link has classes or queues in one direction, not both")
	case s.Rate == 0:
		return errors.New("queues divide a rate, and there is none")
	case len(s.Queues) > MaxQueues:
		return fmt.Errorf("%d queues: at most %d", len(s.Queues), MaxQueues)
	}
	for number, q := range s.Queues {
		if err := q.check(); err != nil {
			return fmt.Errorf("queue %d: %w", number, err)
		}
		reserved += q.Reserve
	}
	if reserved > s.Rate {
		return fmt.Errorf("the queues reserve %s, which is more than the rate, %s", reserved, s.Rate)
	}
	return nil
}

func (q Queue) check() error {
	switch {
	case q.Share < 1 || q.Share > MaxShare:
		return fmt.Errorf("share %d is out of range: 1 to %d", q.Share, MaxShare)
	case q.Priority < 0 || q.Priority >= LastPriority:
		return fmt.Errorf("priority %d is out of range: 1 to %d", q.Priority, LastPriority)
	case q.Rate != 0 && q.Reserve > q.Rate:
		return fmt.Errorf("it reserves %s and is limited to %s", q.Reserve, q.Rate)
	}
	return errors.Join(q.Reserve.Check(), q.Rate.Check(), q.Length.Check())
}
