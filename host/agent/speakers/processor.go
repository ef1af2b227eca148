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
	// assumedCost is the processor time of a frame until enough of them were measured.
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
	seen datapath.First
	held map[tunnelKey]map[labels.Key]uint64 // bytes a second
	sum  uint64
}

// tunnelKey is a session of a network, the LSPs of which share what they have reserved.
type tunnelKey struct {
	slice uint16
	message.Session
}

// firstWork are the figures of a data path.
type firstWork interface {
	BestEffort() (share float64, err error)
	First() (datapath.First, error)
}

func newProcessor() processor {
	return processor{cost: assumedCost, held: map[tunnelKey]map[labels.Key]uint64{}}
}

// look reads whether reserved frames go first, and what one takes.
func (p *processor) look(path firstWork) error {
	share, err := path.BestEffort()
	if err != nil {
		return err
	}
	if p.on = share > 0; !p.on {
		return nil
	}
	now, err := path.First()
	if err != nil {
		return err
	}
	if now.Frames < p.seen.Frames { // it begins anew when the share changes
		p.seen = datapath.First{}
	}
	if frames := now.Frames - p.seen.Frames; frames >= leastMeasured {
		p.cost = (now.Time - p.seen.Time) / time.Duration(frames)
		p.seen = now
	}
	return nil
}

// cores is what frames of so many bytes a second take, if they are as short as can be.
func (p *processor) cores(bandwidth uint64) float64 {
	return float64(bandwidth) / minPoliced * p.cost.Seconds()
}

// admit holds processor time for a label of an LSP that comes in by a card. A label that holds some is not refused: it
// goes on with what it has, as LSPs that share a reservation do when a larger one, which is to take their place, is
// refused (RFC 3209, section 2.5).
func (p *processor) admit(of tunnelKey, k labels.Key, bandwidth uint64) error {
	before := most(p.held[of])
	was, held := p.held[of][k]
	p.put(of, k, bandwidth)
	after := most(p.held[of])
	takes := p.cores(p.sum)
	if !p.on || after <= before || takes <= reservableCore {
		return nil
	}
	if held {
		p.put(of, k, was)
		return nil
	}
	p.release(of, k)
	return fmt.Errorf("%w: %s reserved, in frames of %d bytes that take %s each, is %.2f of the core that polls a "+
		"network card, where %.2f can be reserved", speaker.ErrNoTime, unit.Rate((p.sum+after-before)*8),
		minPoliced, p.cost, takes, reservableCore)
}

// hold is admit for a label that was held for another session, or for none, before. The zero tunnelKey is none.
func (p *processor) hold(k labels.Key, before, now tunnelKey, bandwidth uint64) error {
	if before != now {
		p.release(before, k)
	}
	if now == (tunnelKey{}) || bandwidth == 0 {
		p.release(now, k)
		return nil
	}
	return p.admit(now, k, bandwidth)
}

func (p *processor) put(of tunnelKey, k labels.Key, bandwidth uint64) {
	before := most(p.held[of])
	if p.held[of] == nil {
		p.held[of] = map[labels.Key]uint64{}
	}
	p.held[of][k] = bandwidth
	p.sum += most(p.held[of]) - before
}

func (p *processor) release(of tunnelKey, k labels.Key) {
	all, there := p.held[of]
	if !there {
		return
	}
	before := most(all)
	delete(all, k)
	p.sum += most(all) - before
	if len(all) == 0 {
		delete(p.held, of)
	}
}

// most is what the labels of a session hold together: its LSPs share it.
func most(all map[labels.Key]uint64) (bandwidth uint64) {
	for _, b := range all {
		bandwidth = max(bandwidth, b)
	}
	return bandwidth
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
