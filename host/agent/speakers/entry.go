package speakers

import (
	"fmt"

	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/host/agent/labels"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/signalling/rsvp"
	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// Labels that are given by RSVP-TE. A speaker gives those of one half, and the speaker after it those of the other, so
// that what the first has installed leads on until the neighbours know the new labels.
const (
	firstLabel = slice.LastStatic + 1
	middle     = (firstLabel + datapath.LastLabel) / 2
)

// bounds are the labels of a half.
func bounds(upper bool) (first, last message.Label) {
	if upper {
		return middle + 1, datapath.LastLabel
	}
	return firstLabel, middle
}

// isUpper tells of which half an entry is.
func isUpper(k labels.Key) bool { return !k.FTN && k.Number > middle }

// ftnOf is the number by which routes name the first labels of an LSP. All that are set up for it, one after the other,
// have it, so that frames change from one to the next at once.
func ftnOf(id uint32) uint32 { return slice.LastStaticFTN + id }

// entry gives what is written for an entry of the router's tables. none: nothing is, for packets come without a label
// and are looked at as any others.
func (r *Router) entry(e rsvp.Entry) (k labels.Key, is datapath.NHLFE, none bool, err error) {
	is = datapath.NHLFE{Uniform: true, KeepClass: true, TTL: 255}
	if l := r.lsp(e.Key); l != nil && l.TTL == slice.Pipe {
		is.Uniform = false
	}
	does := e.Operation()
	k = labels.Key{Space: r.Space, Number: uint32(e.In)}
	switch does {
	case rsvp.Nothing:
		return k, is, true, nil
	case rsvp.Push:
		k = labels.Key{Space: r.Space, Number: ftnOf(uint32(e.Key.Session.Tunnel)), FTN: true}
	case rsvp.Swap, rsvp.Pop, rsvp.Deliver:
	case rsvp.Plain: // the egress is the next router, and of another make: it wants no label
		return k, is, false, fmt.Errorf("%s: the egress wants packets without a label", e.Key)
	}
	if e.HasIn {
		from, ok := r.Interfaces[e.From]
		if !ok {
			return k, is, false, fmt.Errorf("%s: no interface %d to come by", e.Key, e.From)
		}
		is.In = from.Port
	}
	if does == rsvp.Deliver {
		is.Pop, is.TTL = true, 0
		return k, is, false, nil
	}
	to, ok := r.Interfaces[e.Interface]
	if !ok {
		return k, is, false, fmt.Errorf("%s: no interface %d to leave by", e.Key, e.Interface)
	}
	is.Port = to.Port
	if is.MAC, ok = to.Neighbours[e.Next]; !ok {
		return k, is, false, fmt.Errorf("%s: no router with %s at %s", e.Key, e.Next, to.Name)
	}
	if does != rsvp.Pop {
		is.Push = []datapath.Label{{Label: uint32(e.Out)}}
	}
	return k, is, false, nil
}

// lsp finds the network's LSP of a key; nil: it is none of them.
func (r *Router) lsp(k rsvp.Key) *slice.LSP {
	for i := range r.Network.LSPs {
		l := &r.Network.LSPs[i]
		if l.Signal != nil && l.ID == uint32(k.Session.Tunnel) {
			if session, ok := sessionOf(r.Network, l); ok && session == k.Session {
				return l
			}
		}
	}
	return nil
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
