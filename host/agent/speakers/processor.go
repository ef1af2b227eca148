package speakers

import (
	"fmt"
	"time"

	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/host/agent/labels"
	"github.com/pergola-net/pergola/host/speaker"
	"github.com/pergola-net/pergola/model/unit"
	"github.com/pergola-net/pergola/signalling/rsvp"
	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

const (
	// reservableCore is the part of a core that frames with reservations may take: less than 0.8 of what the kernel
	// lets real-time threads have, 0.95 (sched_rt_runtime_us). Up to there next to none of them is lost
	// (docs/decisions/036-early-demultiplexing.md).
	reservableCore = 0.75
	// assumedCost is the processor time of a frame until enough of them were measured, and of each that is left to
	// programs of tc, whose time nobody measures.
	assumedCost = time.Microsecond
	// leastMeasured is how many frames are enough: one in 16 is measured.
	leastMeasured = 1 << 14
	// minPoliced is the length of the shortest frames (RFC 2212, m): how many there can be follows from it.
	minPoliced = 64
)

// processor admits LSPs by what their frames can take of this host's processor, where line cards do them before all
// else (datapath/bpf/early.h). All may come by one card, which one core polls, so they have one core.
type processor struct {
	on   bool
	cost time.Duration // of a frame
	seen datapath.ReservedWork
	held map[tunnelKey]map[labels.Key]share
	sum  uint64 // bytes a second, of what is reserved
}

// share is what the LSP of a label has: bytes a second that are reserved, and up to which it was admitted.
type share struct {
	reserved, admitted uint64
	shared             bool // with others of the session
}

// tunnelKey is a session of a network, LSPs of which can share what they have reserved. The zero value is none.
type tunnelKey struct {
	slice uint16
	message.Session
}

// reservedWork are the figures of a data path.
type reservedWork interface {
	BestEffort() (share float64, err error)
	ReservedWork() (datapath.ReservedWork, error)
}

func newProcessor() processor {
	return processor{cost: assumedCost, held: map[tunnelKey]map[labels.Key]share{}}
}

// look reads whether reserved frames go first, and what one takes.
func (p *processor) look(path reservedWork) error {
	best, err := path.BestEffort()
	if err != nil {
		return err
	}
	if p.on = best > 0; !p.on {
		return nil
	}
	now, err := path.ReservedWork()
	if err != nil {
		return err
	}
	was := p.seen
	if now.Sent < was.Sent || now.Left < was.Left || now.Time < was.Time { // it begins anew when the share changes
		was = datapath.ReservedWork{}
	}
	sent, left := now.Sent-was.Sent, now.Left-was.Left
	if sent+left >= leastMeasured {
		p.cost = max(1, (now.Time-was.Time+time.Duration(left)*assumedCost)/time.Duration(sent+left))
		was = now
	}
	p.seen = was
	return nil
}

// cores is what frames of so many bytes a second take, if they are as short as can be.
func (p *processor) cores(bandwidth uint64) float64 {
	return float64(bandwidth) / minPoliced * p.cost.Seconds()
}

// hold has a label of a session have processor time for a bandwidth, in the place of what it had for another session;
// of none, or without a bandwidth, it has none. The label of an LSP that is new is refused where there is not enough.
// One that is there is not: it goes on, as one does that is to be replaced by a larger one which is refused (RFC 3209,
// section 2.5), and others have to do with less. undo takes the change back.
func (p *processor) hold(k labels.Key, before, now tunnelKey, want share, there bool) (undo func(), err error) {
	old, had := p.held[before][k]
	undo = func() {
		p.release(now, k)
		if had {
			p.put(before, k, old)
		}
	}
	p.release(before, k)
	if now == (tunnelKey{}) || want.reserved == 0 {
		return undo, nil
	}
	enough := want.reserved <= p.admitted(now, want.shared) || had && before == now && want.reserved <= old.admitted
	p.put(now, k, want)
	switch {
	case !p.on || enough || p.cores(p.sum) <= reservableCore:
		want.admitted = want.reserved
	case !there:
		undo()
		return nil, fmt.Errorf("%w: %s in frames of %d bytes that take %s each are %.2f of the core that "+
			"polls a network card, and less is free", speaker.ErrNoTime, unit.Rate(want.reserved*8),
			minPoliced, p.cost, p.cores(want.reserved))
	case had && before == now:
		want.admitted = old.admitted
	default: // admitted by an earlier server
		want.admitted = want.reserved
	}
	p.put(now, k, want)
	return undo, nil
}

// admitted is up to which bandwidth an LSP that shares what is reserved was admitted with the others.
func (p *processor) admitted(of tunnelKey, shared bool) (most uint64) {
	if !shared {
		return 0
	}
	for _, s := range p.held[of] {
		if s.shared {
			most = max(most, s.admitted)
		}
	}
	return most
}

func (p *processor) put(of tunnelKey, k labels.Key, s share) {
	before := reservedBy(p.held[of])
	if p.held[of] == nil {
		p.held[of] = map[labels.Key]share{}
	}
	p.held[of][k] = s
	p.sum += reservedBy(p.held[of]) - before
}

func (p *processor) release(of tunnelKey, k labels.Key) {
	all, there := p.held[of]
	if !there {
		return
	}
	before := reservedBy(all)
	delete(all, k)
	p.sum += reservedBy(all) - before
	if len(all) == 0 {
		delete(p.held, of)
	}
}

// reservedBy is what the LSPs of a session have reserved.
func reservedBy(all map[labels.Key]share) (sum uint64) {
	var most uint64
	for _, s := range all {
		if s.shared {
			most = max(most, s.reserved)
		} else {
			sum += s.reserved
		}
	}
	return sum + most
}

// comesByCard tells whether packets with a label come from routers of other hosts.
func (r *Router) comesByCard(e rsvp.Entry) bool {
	if !e.HasIn {
		return false
	}
	if e.From != 0 {
		return r.Interfaces[e.From].Afar
	}
	for _, is := range r.Interfaces {
		if is.Afar {
			return true
		}
	}
	return false
}
