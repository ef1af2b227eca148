package speakers

import (
	"fmt"

	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/host/agent/labels"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/unit"
	"github.com/pergola-net/pergola/signalling/rsvp"
	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// Labels that are given by RSVP-TE.
const (
	firstLabel = slice.LastStatic + 1
	lastLabel  = datapath.LastLabel
)

// ftnOf is the number by which routes name the first labels of an LSP. All that are set up for it, one after the other,
// have it, so that frames change from one to the next at once.
func ftnOf(id uint32) uint32 { return slice.LastStaticFTN + id }

// key names what is written for an entry of the router's tables. false: nothing is, for packets come without a label
// and are looked at as any others.
func (r *Router) key(e rsvp.Entry) (k labels.Key, ok bool) {
	switch e.Operation() {
	case rsvp.Push, rsvp.Plain:
		if isBypass(e.Key) { // no route leads to it
			return k, false
		}
		return labels.Key{Space: r.Space, Number: ftnOf(uint32(e.Key.Session.Tunnel)), FTN: true}, true
	case rsvp.Nothing:
		return k, false
	case rsvp.Swap, rsvp.Pop, rsvp.Deliver:
	}
	return labels.Key{Space: r.Space, Number: uint32(e.In)}, true
}

// entry gives what is written for an entry that has a key.
func (r *Router) entry(e rsvp.Entry) (is datapath.NHLFE, err error) {
	is = datapath.NHLFE{Uniform: true, KeepClass: true, TTL: 255}
	if l := r.lsp(e.Key); l != nil && l.TTL == slice.Pipe {
		is.Uniform = false
	}
	does := e.Operation()
	if does == rsvp.Plain && e.Bypass == 0 { // the egress is the next router, and of another make
		return is, fmt.Errorf("%s: the egress wants packets without a label", e.Key)
	}
	if e.HasIn && e.From != 0 {
		from, ok := r.Interfaces[e.From]
		if !ok {
			return is, fmt.Errorf("%s: no interface %d to come by", e.Key, e.From)
		}
		is.In = from.Port
	}
	if does == rsvp.Deliver {
		is.Pop, is.TTL = true, 0
		return is, nil
	}
	to, ok := r.Interfaces[e.Interface]
	if !ok {
		return is, fmt.Errorf("%s: no interface %d to leave by", e.Key, e.Interface)
	}
	is.Port = to.Port
	if is.MAC, ok = to.Neighbours[e.Next]; !ok {
		return is, fmt.Errorf("%s: no router with %s at %s", e.Key, e.Next, to.Name)
	}
	is.Reserved = e.Bandwidth != 0
	if is.Reserved && (does == rsvp.Push || does == rsvp.Plain) {
		is.Reservation = r.reservation(e, to)
	}
	if does == rsvp.Push || does == rsvp.Swap {
		is.Push = []datapath.Label{{Label: uint32(e.Out)}}
	}
	if is.Bypass = e.Bypass != 0; is.Bypass {
		is.Push = append(is.Push, datapath.Label{Label: uint32(e.Bypass)})
	}
	return is, nil
}

// reservation is what packets are measured by where an LSP begins that leaves by the interface.
func (r *Router) reservation(e rsvp.Entry, by Interface) (is datapath.Reservation) {
	frame := slice.DefaultMTU + frameHeader
	if n := r.Network.Node(r.Name); n != nil && n.Interface(by.Name) != nil {
		frame = n.Interface(by.Name).MTU + frameHeader
	}
	is.Rate = max(e.Bandwidth, datapath.MinPolicedRate)
	is.Burst = uint64(slice.DefaultBurst(unit.Rate(is.Rate*8), frame))
	if l := r.lsp(e.Key); l != nil {
		is.Drop = l.Excess == slice.Drop
	}
	return is
}

// frameHeader is what a frame is longer than the MTU, in bytes.
const frameHeader = 14

// adopted reads an entry that an earlier speaker has installed. false: it does not fit to the router, as it is now. Of
// which LSP it is, is known where the LSP begins; elsewhere the neighbours say it.
func (r *Router) adopted(k labels.Key, is datapath.NHLFE) (e rsvp.Entry, ok bool) {
	if k.FTN {
		l := r.Tunnels[k.Number-slice.LastStaticFTN]
		if l == nil || l.Ingress() != r.Name {
			return e, false
		}
		session, known := sessionOf(r.Network, l)
		if !known {
			return e, false
		}
		e.Key = rsvp.Key{Session: session, Sender: r.ID, LSP: lspID(l.Signal.Number, 0)}
		e.Shared = true // without a bandwidth, which would count against the LSP's own way
	} else {
		e.HasIn, e.In = true, message.Label(k.Number)
		if e.From = r.indexOf(is.In); e.From == 0 && is.In != 0 {
			return e, false
		}
	}
	if is.Pop {
		return e, e.HasIn
	}
	e.HasOut, e.Out, e.Interface = true, message.ImplicitNull, r.indexOf(is.Port)
	if len(is.Push) > 0 {
		e.Out = message.Label(is.Push[0].Label)
	}
	if len(is.Push) > 1 {
		e.Bypass = message.Label(is.Push[1].Label)
	}
	for a, mac := range r.Interfaces[e.Interface].Neighbours {
		if mac == is.MAC {
			e.Next = a
		}
	}
	return e, len(is.Push) <= 2 && e.Next.IsValid()
}

// indexOf gives the ifindex in the router of the interface with a port; 0: there is none.
func (r *Router) indexOf(port int) int {
	for index, is := range r.Interfaces {
		if is.Port == port {
			return index
		}
	}
	return 0
}

// lsp finds the network's LSP of a key; nil: it is none of them.
func (r *Router) lsp(k rsvp.Key) *slice.LSP {
	l := r.Tunnels[uint32(k.Session.Tunnel)]
	if l == nil {
		return nil
	}
	if session, ok := sessionOf(r.Network, l); !ok || session != k.Session {
		return nil
	}
	return l
}

// sessionOf gives the session of an LSP: its tunnel from the ingress to the egress.
func sessionOf(s *slice.Slice, l *slice.LSP) (session message.Session, ok bool) {
	from, to := s.Node(l.Ingress()), s.Node(l.Egress())
	if from == nil || to == nil {
		return session, false
	}
	ingress, has := from.Address(false)
	egress, have := to.Address(false)
	return message.Session{End: egress, Tunnel: uint16(l.ID), Extended: ingress}, has && have
}
