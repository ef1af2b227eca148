package message

import "fmt"

// AckDesired is the flag of a ID that is to be acknowledged (RFC 2961).
const AckDesired = 1

const maxEpoch = 1<<24 - 1

// ID numbers a message. A number means something together with the sender and its epoch.
type ID struct {
	Flags uint8
	Epoch uint32 // of 24 bits
	ID    uint32
}

func readID(r *reader) Object {
	flags, epoch := readEpoch(r)
	return ID{flags, epoch, r.u32()}
}
func readEpoch(r *reader) (uint8, uint32) {
	word := r.u32()
	return uint8(word >> 24), word & maxEpoch
}
func writeEpoch(w *writer, flags uint8, epoch uint32) {
	if epoch > maxEpoch {
		w.fail("epoch %d is above %d", epoch, maxEpoch)
	}
	w.u32(uint32(flags)<<24 | epoch)
}
func (ID) kind() Kind { return Kind{classMessageID, 1} }
func (m ID) write(w *writer) {
	writeEpoch(w, m.Flags, m.Epoch)
	w.u32(m.ID)
}

// IDAck acknowledges a message; with Nack set it says that the number is not known.
type IDAck struct {
	Nack  bool
	Flags uint8
	Epoch uint32
	ID    uint32
}

func readIDAck(nack bool) func(*reader) Object {
	return func(r *reader) Object {
		flags, epoch := readEpoch(r)
		return IDAck{nack, flags, epoch, r.u32()}
	}
}
func (m IDAck) kind() Kind {
	if m.Nack {
		return Kind{classMessageIDAck, 2}
	}
	return Kind{classMessageIDAck, 1}
}
func (m IDAck) write(w *writer) {
	writeEpoch(w, m.Flags, m.Epoch)
	w.u32(m.ID)
}
func (m IDAck) String() string {
	if m.Nack {
		return fmt.Sprintf("NACK %d/%d", m.Epoch, m.ID)
	}
	return fmt.Sprintf("ACK %d/%d", m.Epoch, m.ID)
}

// IDList is the states that a Srefresh refreshes.
type IDList struct {
	Flags uint8
	Epoch uint32
	IDs   []uint32
}

func readIDList(r *reader) Object {
	flags, epoch := readEpoch(r)
	l := IDList{Flags: flags, Epoch: epoch}
	for r.more() {
		l.IDs = append(l.IDs, r.u32())
	}
	return l
}
func (IDList) kind() Kind { return Kind{classMessageIDList, 1} }
func (l IDList) write(w *writer) {
	writeEpoch(w, l.Flags, l.Epoch)
	for _, id := range l.IDs {
		w.u32(id)
	}
}
