package slice

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/pergola-net/pergola/model/unit"
)

// Shape is the treatment of one direction of a link: a policer, then a scheduler and, beside it, an impairment. The
// zero value leaves frames alone. A rate or a queue without classes is a scheduler with one class.
type Shape struct {
	Police Policer `json:"police,omitzero"`

	Rate   unit.Rate     `json:"rate,omitempty"`   // bit/s; 0: not limited
	Delay  time.Duration `json:"delay,omitempty"`  // added, one way, ns in JSON
	Jitter time.Duration `json:"jitter,omitempty"` // standard deviation of Delay
	Loss   unit.Loss     `json:"loss,omitempty"`   // per cent of frames, 0 to 100
	Queue  int           `json:"queue,omitempty"`  // frames that wait before the tail is dropped; 0: DefaultQueue

	// Classes divide Rate. One of them, and one only, matches nothing by itself: it has the frames that no other
	// class has.
	Classes []Class `json:"classes,omitempty"`

	// Queues divide Rate in place of Classes: a packet program chooses one of them, by its number, which is the
	// index here. Number 0 takes frames for which none was chosen, or one that is not there.
	Queues []Queue `json:"queues,omitempty"`
}

// Scheduler divides a rate among classes of frames. The zero value has no limit and no queue.
type Scheduler struct {
	Rate    unit.Rate // bit/s; 0: not limited
	Queue   int       // frames; of the one class where there are neither Classes nor Queues
	Classes []Class
	Queues  []Queue
}

// Policer drops what exceeds a rate when it enters a link; no frame waits. It is a token bucket, and its terms are
// those of RFC 2697, with an excess burst size of 0. The zero value drops nothing.
type Policer struct {
	// Rate is in bit/s, with Ethernet headers: the committed information rate. 0: there is no policer.
	Rate unit.Rate `json:"rate"`
	// Burst is in bytes, those that may come at once: the committed burst size. 0: DefaultBurst.
	Burst int64 `json:"burst,omitempty"`
}

// Impairment is what a link does to frames besides queueing them.
type Impairment struct {
	Delay  time.Duration // added, one way
	Jitter time.Duration // standard deviation of Delay
	Loss   unit.Loss     // per cent of frames
}

// Class is a part of a scheduler: the frames that one of the rules of Match matches. Each class has a queue of its own.
//
// A class first gets what it has reserved. What is left goes to the classes that want more: by priority, and among
// classes of one priority by share. So a class of a high priority that has no limit can take all that is not reserved.
type Class struct {
	Name     string    `json:"name"`
	Match    []Match   `json:"match,omitempty"`   // empty: the default class
	Share    int       `json:"share"`             // weight, 1 to MaxShare, after reservations are served
	Reserve  unit.Rate `json:"reserve,omitempty"` // bit/s that the class gets whenever it wants them
	Limit    unit.Rate `json:"limit,omitempty"`   // bit/s that the class gets at most; 0: the scheduler's rate
	Priority int       `json:"priority"`          // 1 (served first) to LastPriority
	Queue    int       `json:"queue,omitempty"`   // frames that wait before the tail is dropped; 0: DefaultQueue
}

// Match is one rule of a class: all that it names must hold. The zero value of a field matches everything.
type Match struct {
	DSCP     *int         `json:"dscp,omitempty"`     // 0 to 63
	Protocol int          `json:"protocol,omitempty"` // of IP: 6 is TCP; 1 to 255
	Src      netip.Prefix `json:"src,omitzero"`
	Dst      netip.Prefix `json:"dst,omitzero"`
	SrcPort  Ports        `json:"sport,omitzero"`
	DstPort  Ports        `json:"dport,omitzero"`
	Port     Ports        `json:"port,omitzero"` // the source's or the destination's
}

// Ports is a range of ports of TCP, UDP, SCTP, DCCP or UDP-Lite, both ends included. The zero value matches all.
type Ports struct {
	First uint16 `json:"first"`
	Last  uint16 `json:"last"`
}

// Limits and defaults of schedulers.
const (
	MaxClasses   = 8  // of a scheduler, the default class included
	MaxRules     = 16 // of all classes of a scheduler together
	MaxShare     = 100
	LastPriority = 8    // sch_htb has eight levels (TC_HTB_NUMPRIO)
	DefaultQueue = 1000 // frames; the kernel's txqueuelen of an Ethernet device
)

// CanPolice reports whether what a node sends into a link can be policed, by the kinds of all nodes of the link.
// Between two switches, a LAN being one too, no program of the data path meets the frames.
func CanPolice(sender Kind, lan bool, all []Kind) bool {
	node := func(k Kind) bool { return k != Switch }
	return node(sender) || !lan && slices.ContainsFunc(all, node)
}

// DefaultBurst is what the rate lets through in 100 ms, in bytes: the bandwidth-delay product of a long path, so that
// a single TCP connection can come near the rate. It is at least ten frames of this length.
func DefaultBurst(rate unit.Rate, frame int) int64 {
	return max(int64(rate.BytesPerSecond()/10), 10*int64(frame))
}

// Scheduler is the part of the shape that divides bandwidth.
func (s Shape) Scheduler() Scheduler {
	return Scheduler{Rate: s.Rate, Queue: s.Queue, Classes: s.Classes, Queues: s.Queues}
}

// Impairment is the part of the shape that delays and loses frames.
func (s Shape) Impairment() Impairment {
	return Impairment{Delay: s.Delay, Jitter: s.Jitter, Loss: s.Loss}
}

// IsZero reports whether the shape leaves frames alone.
func (s Shape) IsZero() bool { return s.Police == Policer{} && !s.NeedsQdisc() }

// Equal reports whether both do the same.
func (s Shape) Equal(o Shape) bool {
	return s.Police == o.Police && s.Rate == o.Rate && s.Queue == o.Queue && s.Impairment() == o.Impairment() &&
		len(s.Classes) == len(o.Classes) && (len(s.Classes) == 0 || reflect.DeepEqual(s.Classes, o.Classes)) &&
		slices.Equal(s.Queues, o.Queues)
}

// Unclassified is the shape without classes and queues: its scheduler has one class.
func (s Shape) Unclassified() Shape {
	s.Classes, s.Queues = nil, nil
	return s
}

// NeedsQdisc reports whether frames have to wait for this.
func (s Shape) NeedsQdisc() bool { return s.NeedsHTB() || s.NeedsNetem() }

// NeedsNetem reports whether the kernel must have sch_netem to do this.
func (s Shape) NeedsNetem() bool { return s.Impairment() != Impairment{} }

// NeedsHTB reports whether the kernel must have sch_htb to do this.
func (s Shape) NeedsHTB() bool { return !s.Scheduler().IsZero() }

// NeedsFastPath reports whether frames are to be classified or policed.
func (s Shape) NeedsFastPath() bool {
	return s.Police != Policer{} || len(s.Classes) > 0 || len(s.Queues) > 0
}

// IsZero reports whether there is nothing to schedule.
func (s Scheduler) IsZero() bool {
	return s.Rate == 0 && s.Queue == 0 && len(s.Classes) == 0 && len(s.Queues) == 0
}

// Default gives the index of the default class; -1 where there are no classes.
func (s Scheduler) Default() int {
	for i := range s.Classes {
		if len(s.Classes[i].Match) == 0 {
			return i
		}
	}
	return -1
}

// Check refuses what is out of range or contradicts itself. Package topology tells users more, with the line.
func (s Shape) Check() error {
	err := errors.Join(
		s.Rate.Check(), unit.CheckDelay("delay", s.Delay), unit.CheckDelay("jitter", s.Jitter),
		unit.CheckLoss(s.Loss),
		unit.CheckFrames(s.Queue), s.Police.check(),
	)
	switch {
	case err != nil:
		return err
	case len(s.Queues) > 0:
		return s.Scheduler().checkQueues()
	case len(s.Classes) > 0:
		return s.Scheduler().checkClasses()
	}
	return nil
}

func (p Policer) check() error {
	err := errors.Join(unit.CheckPolicedRate(p.Rate), unit.CheckBurst(p.Burst))
	if err == nil && p.Rate == 0 && p.Burst != 0 {
		err = errors.New("a burst of a policer without a rate")
	}
	if err != nil {
		return fmt.Errorf("police: %w", err)
	}
	return nil
}

func (s Scheduler) checkClasses() error {
	if s.Rate == 0 {
		return errors.New("classes divide a rate, and there is none")
	}
	if len(s.Classes) > MaxClasses {
		return fmt.Errorf("%d classes: at most %d", len(s.Classes), MaxClasses)
	}
	var reserved unit.Rate
	defaults, rules := 0, 0
	for _, c := range s.Classes {
		if err := c.check(s.Rate); err != nil {
			return fmt.Errorf("class %s: %w", c.Name, err)
		}
		reserved += c.Reserve
		rules += len(c.Match)
		if len(c.Match) == 0 {
			defaults++
		}
	}
	switch {
	case defaults != 1:
		return fmt.Errorf("%d classes match nothing: there is one default class", defaults)
	case rules > MaxRules:
		return fmt.Errorf("%d rules: at most %d", rules, MaxRules)
	case reserved > s.Rate:
		return fmt.Errorf("the classes reserve %s, which is more than the rate, %s", reserved, s.Rate)
	}
	return nil
}

func (c Class) check(rate unit.Rate) error {
	switch {
	case c.Share < 1 || c.Share > MaxShare:
		return fmt.Errorf("share %d is out of range: 1 to %d", c.Share, MaxShare)
	case c.Priority < 1 || c.Priority > LastPriority:
		return fmt.Errorf("priority %d is out of range: 1 to %d", c.Priority, LastPriority)
	case c.Limit != 0 && c.Reserve > c.Limit:
		return fmt.Errorf("the class reserves %s and is limited to %s", c.Reserve, c.Limit)
	case c.Reserve > rate:
		return fmt.Errorf("the class reserves %s of %s", c.Reserve, rate)
	}
	for _, m := range c.Match {
		if m.DSCP != nil && (*m.DSCP < 0 || *m.DSCP > 63) {
			return fmt.Errorf("DSCP %d is out of range: 0 to 63", *m.DSCP)
		}
		if m.Protocol < 0 || m.Protocol > 255 {
			return fmt.Errorf("protocol %d is out of range: 1 to 255", m.Protocol)
		}
	}
	return errors.Join(c.Reserve.Check(), c.Limit.Check(), unit.CheckFrames(c.Queue))
}
