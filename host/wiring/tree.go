package wiring

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/unit"
)

// Tree is the qdiscs of a device as values, in the units of the kernel, so that what is wanted and what a netlink dump
// shows can be compared. The zero Tree is the qdisc that the device was made with. From the root down:
//
//	netem 10:        delay, jitter, loss: frames that are under way
//	htb 1:           class 1:1 has the rate
//	  class 1:2      what is within reservations of LSPs; then there are others, too
//	  class 1:10 ... one for each class or queue of a scheduler that has several
//	pfifo, bfifo     at each leaf: frames that wait for their turn; the tail is dropped
//
// netem is above htb, and not htb's leaf as one often sees it, so that frames under way do not take up the queue. That
// frames are first delayed and then queued, where a real link does the reverse, makes no difference to when they
// arrive.
type Tree struct {
	Netem   Netem   // zero: none
	Default uint16  // minor number of the class of frames that name none; 0: there is no HTB
	Classes []Class // of HTB, by minor number
	Foreign bool    // in what was observed: there are qdiscs that no shape calls for
}

// Netem is the parameters of sch_netem.
type Netem struct {
	Delay, Jitter time.Duration
	Loss          uint32 // of 2^32-1
	Limit         uint32 // frames
}

// Class is a class of sch_htb, with its leaf.
type Class struct {
	Minor, Parent    uint16 // Parent is 0 at the root class
	Rate, Ceil       uint64 // byte/s
	Burst, CeilBurst uint32 // in Tick
	Quantum          uint32 // bytes of a turn among classes of one priority
	Priority         uint32 // 0 is served first
	Queue            uint32 // frames in the pfifo at this leaf; 0: there is none
	Bytes            uint32 `json:",omitempty"` // in the bfifo at this leaf; 0: there is none
}

// IsInner reports whether no frames wait in the class itself.
func (c Class) IsInner() bool { return c.Queue == 0 && c.Bytes == 0 }

// Tick is the unit of time in which htb takes bursts.
const Tick = 64 * time.Nanosecond

// Numbers of qdiscs and classes.
const (
	HandleNetem   = 0x10 << 16
	HandleHTB     = 1 << 16
	RootClass     = 1    // minor number of the class that has the rate
	ReservedClass = 2    // of that of frames within reservations of LSPs
	FirstClass    = 0x10 // of the first of a scheduler's classes; the next has the next number
)

// Bytes of Ethernet: what a frame is longer than the MTU, and how long it is at least.
const ethernetHeader, ethernetLeast = 14, 60

// IsZero reports whether the device has the qdisc that it was made with.
func (t Tree) IsZero() bool { return t.Netem == Netem{} && t.Default == 0 && !t.Foreign }

// Equal compares values.
func (t Tree) Equal(o Tree) bool {
	return t.Netem == o.Netem && t.Default == o.Default && t.Foreign == o.Foreign &&
		slices.Equal(t.Classes, o.Classes)
}

// Alike reports whether one tree becomes the other without a qdisc being added or removed, but for those of classes
// that come or go: then frames that wait in the other classes stay.
func (t Tree) Alike(o Tree) bool {
	for _, c := range t.Classes {
		other, there := o.class(c.Minor)
		same := c.Parent == other.Parent && c.IsInner() == other.IsInner() &&
			(c.Bytes == 0) == (other.Bytes == 0)
		if there && !same {
			return false
		}
	}
	return !t.Foreign && !o.Foreign && (t.Netem == Netem{}) == (o.Netem == Netem{}) && t.Default == o.Default &&
		(len(t.Classes) == 0) == (len(o.Classes) == 0)
}

func (t Tree) class(minor uint16) (Class, bool) {
	at, there := slices.BinarySearchFunc(t.Classes, minor, func(c Class, minor uint16) int {
		return cmp.Compare(c.Minor, minor)
	})
	if !there {
		return Class{}, false
	}
	return t.Classes[at], true
}

// FIFO is the handle of the class's leaf.
func (c Class) FIFO() uint32 {
	if c.Minor == RootClass {
		return 2 << 16
	}
	return uint32(c.Minor+0x10) << 16
}

// TreeOf gives the qdiscs that treat frames of a device of this MTU.
func TreeOf(s slice.Shape, mtu int) Tree {
	t := Tree{Netem: netemOf(s, mtu)}
	scheduler := s.Scheduler()
	if scheduler.IsZero() {
		return t
	}
	whole := classOf(orLine(scheduler.Rate), mtu)
	all := leaves(scheduler)
	if len(all) == 0 {
		whole.Queue = frames(scheduler.Queue)
		t.Default, t.Classes = RootClass, []Class{whole}
		return t
	}
	t.Default, t.Classes = FirstClass, append(t.Classes, whole)
	if len(scheduler.Classes) > 0 {
		t.Default += uint16(scheduler.Default())
	}
	least := slices.MinFunc(all, func(a, b leaf) int { return a.share - b.share }).share
	for i, l := range all {
		class := classOf(orLine(scheduler.Rate), mtu)
		if l.limit != 0 {
			class.Ceil, class.CeilBurst = l.limit.BytesPerSecond(), burst(mtu, l.limit.BytesPerSecond())
		}
		// sch_htb has no class without a rate.
		class.Rate = max(l.reserve.BytesPerSecond(), unit.MinRate.BytesPerSecond())
		class.Burst = burst(mtu, class.Rate)
		class.Minor, class.Parent = FirstClass+uint16(i), RootClass
		// That of the smallest share is one frame.
		class.Quantum = uint32((mtu + ethernetHeader) * l.share / max(least, 1))
		class.Priority = uint32(l.priority - 1)
		class.Bytes = uint32(l.length.Bytes)
		if class.Bytes == 0 {
			class.Queue = frames(l.length.Frames)
		}
		t.Classes = append(t.Classes, class)
	}
	return t
}

// withReserved adds the class of frames within reservations. It may have all of the rate that the other classes have
// not reserved: what comes was admitted and measured before, and is served at once. All others are then in a class of
// their own, if there was only one.
func (t Tree) withReserved(mtu int) Tree {
	whole := t.Classes[0]
	reserved := whole
	reserved.Minor, reserved.Parent, reserved.Queue = ReservedClass, RootClass, slice.DefaultQueue
	others := slices.Clone(t.Classes[1:])
	if len(others) == 0 {
		rest := whole
		rest.Minor, rest.Parent, rest.Priority = FirstClass, RootClass, slice.LastPriority-1
		rest.Rate = unit.MinRate.BytesPerSecond()
		rest.Burst = burst(mtu, rest.Rate)
		whole.Queue, t.Default = 0, FirstClass
		others = []Class{rest}
	} else {
		for _, c := range others {
			reserved.Rate -= min(reserved.Rate, c.Rate)
		}
		reserved.Rate = max(reserved.Rate, unit.MinRate.BytesPerSecond())
		reserved.Burst = burst(mtu, reserved.Rate)
	}
	t.Classes = append([]Class{whole, reserved}, others...)
	return t
}

// leaf is what a class and a queue have in common.
type leaf struct {
	share, priority int
	reserve, limit  unit.Rate
	length          unit.Length
}

func leaves(s slice.Scheduler) (all []leaf) {
	for _, c := range s.Classes {
		all = append(all, leaf{c.Share, c.Priority, c.Reserve, c.Limit, unit.Length{Frames: c.Queue}})
	}
	for _, q := range s.Queues {
		all = append(all, leaf{q.Share, cmp.Or(q.Priority, slice.LastPriority), q.Reserve, q.Rate, q.Length})
	}
	return all
}

func orLine(r unit.Rate) unit.Rate {
	if r == 0 { // a queue without a rate still has to be a queue
		return unit.MaxRate
	}
	return r
}

func frames(queue int) uint32 {
	if queue == 0 {
		return slice.DefaultQueue
	}
	return uint32(queue)
}

// classOf is the root class, which nothing exceeds.
func classOf(rate unit.Rate, mtu int) Class {
	bytes := rate.BytesPerSecond()
	b := burst(mtu, bytes)
	quantum := uint32(mtu + ethernetHeader)
	return Class{Minor: RootClass, Rate: bytes, Ceil: bytes, Burst: b, CeilBurst: b, Quantum: quantum}
}

// burst is how long a class may send at once after a pause: what it must make up for is that timers come late, by up
// to two milliseconds on a busy machine. At low rates, it is two frames.
func burst(mtu int, bytesPerSecond uint64) uint32 {
	const late = 2 * time.Millisecond
	frames := float64(2*(mtu+ethernetHeader)) / float64(bytesPerSecond) * float64(time.Second)
	return uint32(min(max(frames, float64(late))/float64(Tick), math.MaxUint32))
}

func netemOf(s slice.Shape, mtu int) Netem {
	if !s.NeedsNetem() {
		return Netem{}
	}
	loss := uint32(math.Round(s.Loss / 100 * math.MaxUint32))
	return Netem{Delay: s.Delay, Jitter: s.Jitter, Loss: loss, Limit: netemLimit(s, mtu)}
}

// netemLimit is how many frames netem must be able to hold: what arrives while one is delayed, in small frames, or
// where no rate bounds that, in full ones at 10 Gbit/s; and what waits in the queues below.
func netemLimit(s slice.Shape, mtu int) uint32 {
	const (
		least, most = 1000, 200_000
		small       = 84 // bytes of the smallest frame on a wire
		fast        = 10e9
	)
	rate, frame := float64(s.Rate), float64(small)
	if rate == 0 {
		rate, frame = fast, float64(mtu+ethernetHeader)
	}
	waiting := s.Queue
	for _, l := range leaves(s.Scheduler()) {
		if l.length.Bytes != 0 {
			waiting += int(l.length.Bytes / ethernetLeast)
		} else {
			waiting += int(frames(l.length.Frames))
		}
	}
	longest := s.Delay + 4*s.Jitter
	return uint32(min(max(rate/8/frame*longest.Seconds()+float64(waiting), least), most))
}

// Shape is the treatment that the tree gives, as far as the kernel tells it: a class is named by its number. Queued
// says that its classes are queues of a packet program.
func (t Tree) Shape(rules []Rule, queued bool) slice.Shape {
	s := slice.Shape{
		Delay: t.Netem.Delay, Jitter: t.Netem.Jitter,
		Loss: math.Round(float64(t.Netem.Loss)/math.MaxUint32*100*1e7) / 1e7, // the kernel's unit: 2.3e-8 %
	}
	var least uint32 = math.MaxUint32
	_, reserves := t.class(ReservedClass)
	for _, c := range t.Classes {
		if c.Minor == ReservedClass {
			continue
		}
		if c.Minor != RootClass {
			least = min(least, max(c.Quantum, 1))
			continue
		}
		if s.Rate = unit.Rate(c.Rate * 8); s.Rate == unit.MaxRate {
			s.Rate = 0
		}
		s.Queue = length(c.Queue)
	}
	if reserves && len(t.Classes) == 3 && len(rules) == 0 { // what was one class without it
		s.Queue = length(t.Classes[2].Queue)
		return s
	}
	for _, c := range t.Classes {
		if c.Minor == RootClass || c.Minor == ReservedClass {
			continue
		}
		share := int(math.Round(float64(c.Quantum) / float64(least)))
		class := slice.Class{
			Name: name(c.Minor), Share: share, Priority: int(c.Priority) + 1, Queue: length(c.Queue),
		}
		if rate := unit.Rate(c.Rate * 8); rate > unit.MinRate {
			class.Reserve = rate
		}
		if limit := unit.Rate(c.Ceil * 8); limit < s.Rate {
			class.Limit = limit
		}
		if queued {
			s.Queues = append(s.Queues, slice.Queue{Share: share, Reserve: class.Reserve, Rate: class.Limit,
				Length:   unit.Length{Bytes: int64(c.Bytes), Frames: class.Queue},
				Priority: slice.PriorityOf(class.Priority)})
			continue
		}
		for _, r := range rules {
			if r.Class == c.Minor {
				class.Match = append(class.Match, r.Match)
			}
		}
		s.Classes = append(s.Classes, class)
	}
	return s
}

func length(queue uint32) int {
	if queue == slice.DefaultQueue {
		return 0
	}
	return int(queue)
}
