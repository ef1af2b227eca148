package rsvp

import (
	"net/netip"
	"slices"
	"time"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// sent is the MESSAGE_ID by which state was last sent to a neighbour (RFC 2961); id 0: by none.
type sent struct {
	id      uint32
	acked   bool
	members int // LSPs in the message
	tries   int
	retry   time.Duration
}

// heard is the MESSAGE_ID by which state came from a neighbour.
type heard struct {
	from  place
	epoch uint32
	id    uint32
}

// numbered is the LSPs that a MESSAGE_ID stands for: of a Path one. It is forgotten with the first of them.
type numbered struct {
	resv bool
	lsps []*lsp
}

// Retransmission of what is not acknowledged (RFC 2961, section 6).
const (
	firstRetry = 500 * time.Millisecond
	maxTries   = 3
	summaryMax = 200       // states in one Srefresh, and answers in one Ack: a raw socket does not fragment,
	acksMax    = 100       // so that what does not fit into a packet is lost each time that it is sent
	epochMask  = 1<<24 - 1 // an epoch has 24 bits
	// refreshSteps is how many times of refreshes by number there are in the mean period.
	refreshSteps = 100
)

// number gives a message for a neighbour that takes it a MESSAGE_ID; 0: none.
func (r *Router) number(l *link, m *message.Message) uint32 {
	if !r.config.Reduce || !l.reduces {
		return 0
	}
	if r.nextID++; r.nextID == 0 {
		r.nextID++
	}
	m.Objects = append([]message.Object{message.ID{Flags: message.AckDesired, Epoch: r.epoch, ID: r.nextID}},
		m.Objects...)
	return r.nextID
}

// note keeps what a number stands for, in the place of the number before.
func (r *Router) note(resv bool, id uint32, group ...*lsp) {
	n := numbered{resv: resv, lsps: make([]*lsp, 0, len(group))}
	for _, s := range group {
		state := s.sentState(resv)
		delete(r.sentIDs, state.id)
		*state = sent{id: id, members: len(group), retry: r.now + firstRetry}
		n.lsps = append(n.lsps, s)
	}
	if id != 0 {
		r.sentIDs[id] = n
	}
}

func (s *lsp) sentState(resv bool) *sent {
	if resv {
		return &s.resv.sent
	}
	return &s.sent
}

// receiveAcks takes the acknowledgements of a message. What the neighbour does not know is sent to it in full.
func (r *Router) receiveAcks(in *link, m message.Message) {
	for _, o := range m.Objects {
		a, ok := o.(message.IDAck)
		if !ok || a.Epoch != r.epoch {
			continue
		}
		n := r.sentIDs[a.ID]
		var again []*lsp
		for _, s := range n.lsps {
			if !s.known || n.resv && (s.resv == nil || s.in != in) || !n.resv && s.out != in {
				continue
			}
			switch {
			case !a.Nack:
				s.sentState(n.resv).acked = true
				r.schedule(s)
			case n.resv:
				again = append(again, s)
			default:
				r.sendPath(s)
			}
		}
		r.sendResvs(again)
	}
}

// acknowledge answers the MESSAGE_ID of a message from a neighbour, and tells by which number its state is known.
func (r *Router) acknowledge(in *link, hop netip.Addr, m message.Message) heard {
	id, ok := message.Of[message.ID](m)
	if !ok || !r.config.Reduce {
		return heard{}
	}
	if id.Flags&message.AckDesired != 0 {
		r.sendAcks(in, hop, message.IDAck{Epoch: id.Epoch, ID: id.ID})
	}
	return heard{place{in.Index, hop}, id.Epoch, id.ID}
}

func (r *Router) sendAcks(in *link, to netip.Addr, acks ...message.Object) {
	for part := range slices.Chunk(acks, acksMax) {
		r.send(in, to, in.Prefix.Addr(), to, message.Message{Type: message.Ack, TTL: 1, Objects: part})
	}
}

// before tells whether a message was sent before another one from the same neighbour, and came later.
func (h heard) before(o heard) bool {
	return h.id != 0 && h.from == o.from && h.epoch == o.epoch && int32(h.id-o.id) < 0
}

// remember notes by which number state came: h in the place of old.
func (r *Router) remember(old *heard, h heard, resv bool, s *lsp) {
	if *old == h {
		return
	}
	r.forget(*old)
	*old = h
	if h.id != 0 {
		n := r.heardIDs[h]
		r.heardIDs[h] = numbered{resv, append(n.lsps, s)}
	}
}

func (r *Router) forget(h heard) { delete(r.heardIDs, h) }

// receiveSummary refreshes the states that a Srefresh lists.
func (r *Router) receiveSummary(in *link, from netip.Addr, m message.Message) {
	if !r.config.Reduce || !in.Prefix.Contains(from) {
		r.Counters.Foreign++
		return
	}
	r.acknowledge(in, from, m)
	var unknown []message.Object
	for _, o := range m.Objects {
		list, ok := o.(message.IDList)
		if !ok {
			continue
		}
		for _, id := range list.IDs {
			if !r.refreshed(heard{place{in.Index, from}, list.Epoch, id}) {
				unknown = append(unknown, message.IDAck{Nack: true, Epoch: list.Epoch, ID: id})
			}
		}
	}
	r.sendAcks(in, from, unknown...)
}

// refreshed lets the states of a number live on; false: at least one is not here.
func (r *Router) refreshed(h heard) bool {
	n, ok := r.heardIDs[h]
	for _, s := range n.lsps {
		switch {
		case s.known && !n.resv && s.heard == h:
			s.expires, s.spared = r.now+lifetime(s.path.period), false
			r.schedule(s)
		case s.known && n.resv && s.resv != nil && s.resv.heard == h:
			s.resv.expires, s.resv.spared = r.now+lifetime(s.resv.period), false
			r.schedule(s)
		default:
			ok = false
		}
	}
	return ok
}

// summaries collects what is refreshed by number in one tick.
type summaries map[place][]uint32

// refreshPath refreshes what was sent downstream: by its number, if that was acknowledged.
func (r *Router) refreshPath(s *lsp, all summaries) {
	if !s.sent.acked || r.unsettled(s) { // only a Path is answered by a Resv
		r.sendPath(s)
		return
	}
	s.refresh = r.gathered()
	p := place{s.out.Index, s.next}
	all[p] = append(all[p], s.sent.id)
}

// refreshResvs refreshes what was sent upstream.
func (r *Router) refreshResvs(due []*lsp, all summaries) {
	var full []*lsp
	listed := map[uint32]bool{} // numbers that stand for several LSPs
	for _, s := range due {
		if s.resv == nil {
			continue
		}
		if !r.summarized(s) {
			full = append(full, s)
			continue
		}
		s.resv.refresh = r.gathered()
		if s.resv.sent.members > 1 {
			if listed[s.resv.sent.id] {
				continue
			}
			listed[s.resv.sent.id] = true
		}
		p := place{s.in.Index, s.path.hop.Addr}
		all[p] = append(all[p], s.resv.sent.id)
	}
	r.sendResvs(full)
}

// summarized tells whether the number of a reservation stands for all that a full Resv would say.
func (r *Router) summarized(s *lsp) bool {
	if !s.resv.sent.acked {
		return false
	}
	if s.resv.style != message.SharedExplicit {
		return true
	}
	group := r.sharing(s)
	return len(group) == s.resv.sent.members && !slices.ContainsFunc(group, func(g *lsp) bool {
		return g.resv.sent.id != s.resv.sent.id
	})
}

func (r *Router) sendSummaries(all summaries) {
	for _, p := range sortedPlaces(all) {
		if r.awaits(p) {
			continue
		}
		l := r.interfaces[p.index]
		for ids := range slices.Chunk(all[p], summaryMax) {
			r.send(l, p.addr, l.Prefix.Addr(), p.addr, message.Message{Type: message.Srefresh, TTL: 1,
				Objects: []message.Object{message.IDList{Epoch: r.epoch, IDs: ids}}})
		}
	}
}

// gathered is the time of the next refresh by number. It is one of few, so that a message lists many.
func (r *Router) gathered() time.Duration {
	step, at := r.config.Refresh/refreshSteps, r.now+r.jittered()
	return at + step - at%step
}

// due is when a message is to be sent again because it is not acknowledged.
func (s *sent) due() time.Duration {
	if s.id == 0 || s.acked || s.tries >= maxTries {
		return never
	}
	return s.retry
}

func (s *sent) overdue(now time.Duration) bool { return s.due() <= now }

// again notes a retransmission after tries earlier ones.
func (s *sent) again(now time.Duration, tries int) {
	s.tries, s.retry = tries+1, now+firstRetry<<(tries+1)
}
