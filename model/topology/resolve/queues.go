package resolve

import (
	"maps"
	"slices"
	"strconv"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology/diagnostic"
	"github.com/pergola-net/pergola/model/topology/file"
	"github.com/pergola-net/pergola/model/unit"
)

// queuesOf gives the queues of an end. One that the link names for both directions is for packet programs alone; one
// that is named for another end is an error.
func (r *resolver) queuesOf(in file.Shape, l *link, p *port, rate unit.Rate, at *diagnostic.Path) []slice.Queue {
	where := at.At("queues")
	if p.node.kind == slice.Program {
		return r.queues(in, rate, where)
	}
	const advice = "write classes:, which choose by what is in the frame"
	switch {
	case at != l.at && len(l.in.From[p.node.name].Queues)+len(l.in.From[p.String()].Queues) > 0:
		r.Add(where, advice, "%q has no packet program, which would choose a queue for each frame", p.node.name)
	case p == l.ends[0] && len(l.in.Queues) > 0 && !slices.Contains(l.kinds(), slice.Program):
		r.Add(l.at.At("queues"), advice,
			"no end of the link has a packet program, which would choose a queue for each frame")
	}
	return nil
}

// queues makes the queues of a direction, number 0 included.
func (r *resolver) queues(in file.Shape, rate unit.Rate, at *diagnostic.Path) []slice.Queue {
	if len(in.Queues) == 0 || !r.canQueue(in, rate, at) {
		return nil
	}
	byNumber := map[int]slice.Queue{}
	var reserved unit.Rate
	least := slice.MaxShare
	for _, key := range slices.Sorted(maps.Keys(in.Queues)) {
		number, err := strconv.Atoi(key)
		if err != nil || number < 0 || number >= slice.MaxQueues || strconv.Itoa(number) != key {
			r.Add(at.At(key), "number them from 1; queue 0 takes all other frames",
				"%q is no number of a queue: 0 to %d", key, slice.MaxQueues-1)
			continue
		}
		q := r.queue(in.Queues[key], number, rate, at.At(key))
		byNumber[number] = q
		reserved += q.Reserve
		if number != 0 || in.Queues[key].Share != nil {
			least = min(least, q.Share)
		}
	}
	if reserved > rate {
		r.Add(at, "lower a reserve:, or raise the rate", "the queues reserve %s of a rate of %s", reserved,
			rate)
	}
	if in.Queues["0"].Share == nil {
		other := byNumber[0]
		other.Share = max(least, 1)
		byNumber[0] = other
	}
	return r.inOrder(byNumber, len(in.Queues), at)
}

// canQueue reports what forbids queues in a direction altogether.
func (r *resolver) canQueue(in file.Shape, rate unit.Rate, at *diagnostic.Path) bool {
	switch n := len(in.Queues); {
	case len(in.Classes) > 0:
		r.Add(at, "leave one of them out", "a link has classes or queues in one direction, and here are both")
	case rate == 0:
		r.Add(at, "add rate: to the link", "queues divide a rate, and there is none here")
	case in.Queue != 0:
		r.Add(at, "write length: in the queues",
			"each queue has a length of its own, so the link has no queue:")
	case n > slice.MaxQueues:
		r.Add(at, "", "%d queues: at most %d, number 0 included", n, slice.MaxQueues)
	default:
		return true
	}
	return false
}

// inOrder lists queues by their numbers, which have no gaps.
func (r *resolver) inOrder(byNumber map[int]slice.Queue, named int, at *diagnostic.Path) []slice.Queue {
	all := make([]slice.Queue, len(byNumber))
	for number := range all {
		q, there := byNumber[number]
		if !there {
			r.Add(at, "number them from 1 without gaps", "there is no queue %d, and there are %d queues",
				number, named)
			return nil
		}
		all[number] = q
	}
	return all
}

func (r *resolver) queue(in file.Queue, number int, rate unit.Rate, at *diagnostic.Path) slice.Queue {
	q := slice.Queue{Share: 1, Reserve: checked(in.Reserve.Bits()), Rate: checked(in.Rate.Bits()),
		Length: checked(in.Length.Value()), Priority: slice.PriorityOf(in.Priority)}
	if in.Share != nil {
		q.Share = *in.Share
	}
	switch {
	case q.Share < 1 || q.Share > slice.MaxShare:
		r.Add(at.At("share"), "the least weight is 1; to bound a queue, give it a rate",
			"share %d is out of range: 1 to %d", q.Share, slice.MaxShare)
	case in.Priority < 0 || in.Priority > slice.LastPriority:
		r.Add(at.At("priority"), "write 1 (served first) to 8", "priority %d is out of range", in.Priority)
	case q.Rate != 0 && q.Reserve > q.Rate:
		r.Add(at.At("reserve"), "", "queue %d reserves %s and has a rate of %s", number, q.Reserve, q.Rate)
	case q.Rate > rate:
		r.Add(at.At("rate"), "leave it out: no queue gets more than the link's rate",
			"the rate of queue %d is above the link's, %s", number, rate)
	}
	return q
}
