package message

// MaxLabel is the highest MPLS label.
const MaxLabel = 1<<20 - 1

// Reserved labels (RFC 3032, section 2.1).
const (
	IPv4ExplicitNull Label = 0
	IPv6ExplicitNull Label = 2
	ImplicitNull     Label = 3 // never on the wire: the sender of a packet takes its label off
)

// Label is the label that the sender of a Resv expects packets with.
type Label uint32

func readLabel(r *reader) Object {
	l := r.u32()
	if l > MaxLabel {
		r.fail("label %d is above %d", l, MaxLabel)
	}
	return Label(l)
}
func (Label) kind() Kind { return Kind{classLabel, 1} }
func (l Label) write(w *writer) {
	if l > MaxLabel {
		w.fail("label %d is above %d", l, MaxLabel)
	}
	w.u32(uint32(l))
}

// RecoveryLabel is the label that a neighbour which restarts had given before (RFC 3473).
type RecoveryLabel uint32

func readRecoveryLabel(r *reader) Object { return RecoveryLabel(readLabel(r).(Label)) }
func (RecoveryLabel) kind() Kind         { return Kind{classRecoveryLabel, 1} }
func (l RecoveryLabel) write(w *writer)  { Label(l).write(w) }

// SuggestedLabel is the label by which the sender of a Path would send packets (RFC 3473, section 2.5): after its
// restart, the one that it goes on sending by.
type SuggestedLabel uint32

func readSuggestedLabel(r *reader) Object { return SuggestedLabel(readLabel(r).(Label)) }
func (SuggestedLabel) kind() Kind         { return Kind{classSuggestedLabel, 1} }
func (l SuggestedLabel) write(w *writer)  { Label(l).write(w) }

// LabelRequest asks for a label for packets of a protocol.
type LabelRequest struct{ EtherType uint16 }

func readLabelRequest(r *reader) Object {
	r.skip(2)
	return LabelRequest{r.u16()}
}
func (LabelRequest) kind() Kind { return Kind{classLabelRequest, 1} }
func (l LabelRequest) write(w *writer) {
	w.u16(0)
	w.u16(l.EtherType)
}
