package message

// HelloObject has the instances of a pair of neighbours: a changed one tells of a restart (RFC 3209, section 5). Hellos
// between node identifiers (RFC 4558) have the same object.
type HelloObject struct {
	Ack         bool
	Source      uint32
	Destination uint32 // 0: not yet heard
}

func readHello(ack bool) func(*reader) Object {
	return func(r *reader) Object {
		h := HelloObject{ack, r.u32(), r.u32()}
		if h.Source == 0 {
			r.fail("source instance 0")
		}
		return h
	}
}
func (h HelloObject) kind() Kind {
	if h.Ack {
		return Kind{classHello, 2}
	}
	return Kind{classHello, 1}
}
func (h HelloObject) write(w *writer) {
	if h.Source == 0 {
		w.fail("source instance 0")
	}
	w.u32(h.Source)
	w.u32(h.Destination)
}

// RestartCap is how long a node takes to restart, and then to recover its state, in milliseconds (RFC 3473).
type RestartCap struct{ Restart, Recovery uint32 }

func readRestartCap(r *reader) Object { return RestartCap{r.u32(), r.u32()} }
func (RestartCap) kind() Kind         { return Kind{classRestartCap, 1} }
func (c RestartCap) write(w *writer) {
	w.u32(c.Restart)
	w.u32(c.Recovery)
}

// Capability is what a node can do for a neighbour that restarts (RFC 5063).
type Capability uint32

// The bits of a Capability.
const (
	RecoveryPathSrefresh Capability = 1 // S
	RecoveryPathTransmit Capability = 2 // T
	RecoveryPathDesired  Capability = 4 // R
)

func readCapability(r *reader) Object { return Capability(r.u32()) & 7 }
func (Capability) kind() Kind         { return Kind{classCapability, 1} }
func (c Capability) write(w *writer)  { w.u32(uint32(c & 7)) }
