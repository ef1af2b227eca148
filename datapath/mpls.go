package datapath

import (
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/cilium/ebpf"
)

// Labels of MPLS (bpf/label_table.h, bpf/mpls.h). Each router that switches labels has a label space, a number that
// fib.Router knows.

// The bounds of labels. Below FirstLabel they are special (RFC 3032, 2.1).
const (
	FirstLabel = 16
	LastLabel  = 1<<20 - 1

	MaxLabels = 4 // that are taken off a frame, and that stand on it in their place
	maxPushes = 3

	maxFTN = 1<<20 - 1
	ftnBit = 1 << 20
)

// NHLFE is a next hop label forwarding entry (RFC 3031, 3.10): what becomes of a frame with some label.
type NHLFE struct {
	// Pop takes the label off, and the router looks again at what is below: the ultimate hop. Else the label gives
	// place to those of Push, and the frame leaves by Port, to MAC; without Push, this is the penultimate hop.
	Pop  bool
	Port int // ifindex of the router's port
	MAC  [6]byte
	Push []Label // the lowest first

	In int // ifindex of the router's port by which frames must come; 0: any

	// Uniform is the model of TTL (RFC 3443): headers hand it on. Else the model is the pipe, and labels that are
	// put on others, or on IP, have TTL; 0: 255.
	Uniform bool
	TTL     uint8
	// Reserved says that the LSP has a reservation, so that frames of class ReservedClass are within it. Of an FTN,
	// Reservation then says which, and frames have their class by it.
	Reserved    bool
	Reservation Reservation
	// Bypass says that the FTN goes by a bypass, of a link that has failed: frames within the reservation wait with
	// all others there.
	Bypass bool

	// KeepClass gives labels the traffic class of what they replace or stand on, of IP its precedence, in place of
	// their own.
	KeepClass bool
}

// Label is what is pushed.
type Label struct {
	Label uint32 `json:"label"`
	Class uint8  `json:"class,omitempty"` // traffic class, up to 7 (RFC 5462)
}

// SetLabel says what a router of the label space does with frames that carry the label. Frames see the old entry or the
// new one.
func (d *DataPath) SetLabel(space, label uint32, n NHLFE) error {
	if label < FirstLabel || label > LastLabel {
		return fmt.Errorf("set label %d: not within %d and %d", label, FirstLabel, LastLabel)
	}
	if err := d.setNHLFE(space, label, n); err != nil {
		return fmt.Errorf("set label %d: %w", label, err)
	}
	return nil
}

// SetFTN says what a router of the label space does with frames that a route gives this FTN (fib.Router.SetFTN): Push
// has labels; Pop and In are not set.
func (d *DataPath) SetFTN(space, ftn uint32, n NHLFE) error {
	if ftn == 0 || ftn > maxFTN || n.Pop || len(n.Push) == 0 || n.In != 0 {
		return fmt.Errorf("set FTN %d: not within 1 and %d, without labels, or for frames of one port only",
			ftn, maxFTN)
	}
	if n.Reserved {
		if _, err := n.Reservation.record(); err != nil {
			return fmt.Errorf("set the reservation of FTN %d: %w", ftn, err)
		}
		n.KeepClass = true // that of the reservation
	}
	// A frame of an LSP that has a reservation finds it.
	steps := []func() error{
		func() error { return d.setReservation(space, ftn, n) },
		func() error { return d.setNHLFE(space, ftnBit|ftn, n) },
	}
	if !n.Reserved {
		slices.Reverse(steps)
	}
	err := steps[0]()
	if err == nil {
		err = steps[1]()
	}
	if err != nil {
		return fmt.Errorf("set FTN %d: %w", ftn, errors.Join(err, d.forgetUnused(space, ftn)))
	}
	return nil
}

// forgetUnused deletes the reservation of an FTN that is not there.
func (d *DataPath) forgetUnused(space, ftn uint32) error {
	var is objectNhlfe
	err := d.maps.Labels.Lookup(objectLabelKey{Space: space, Label: ftnBit | ftn}, &is)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return d.deleteReservation(space, ftn)
	}
	return err
}

// DeleteLabel forgets a label. It is no error if it is not there.
func (d *DataPath) DeleteLabel(space, label uint32) error {
	if err := d.deleteNHLFE(space, label); err != nil {
		return fmt.Errorf("delete label %d: %w", label, err)
	}
	return nil
}

// DeleteFTN forgets an FTN. It is no error if it is not there.
func (d *DataPath) DeleteFTN(space, ftn uint32) error {
	if err := errors.Join(d.deleteNHLFE(space, ftnBit|ftn), d.deleteReservation(space, ftn)); err != nil {
		return fmt.Errorf("delete FTN %d: %w", ftn, err)
	}
	return nil
}

// LabelEntry is what is set of a label space for a label, or for an FTN.
type LabelEntry struct {
	Space  uint32
	Number uint32
	FTN    bool
	NHLFE
}

// AllLabels yields what is set, of all label spaces, in no order, and as the last an error, if there was one.
func (d *DataPath) AllLabels() iter.Seq2[LabelEntry, error] {
	return func(yield func(LabelEntry, error) bool) {
		var (
			key    objectLabelKey
			record objectNhlfe
		)
		at := d.maps.Labels.Iterate()
		for at.Next(&key, &record) {
			e := LabelEntry{key.Space, key.Label &^ ftnBit, key.Label&ftnBit != 0, record.entry()}
			if e.FTN && e.Reserved {
				is, err := d.Reserved(e.Space, e.Number)
				if err != nil {
					yield(LabelEntry{}, err)
					return
				}
				e.Reservation = is.Reservation
			}
			if !yield(e, nil) {
				return
			}
		}
		if err := at.Err(); err != nil {
			yield(LabelEntry{}, fmt.Errorf("read labels: %w", err))
		}
	}
}

func (d *DataPath) setNHLFE(space, number uint32, n NHLFE) error {
	record, err := n.record()
	if err != nil {
		return err
	}
	if space == 0 {
		return errors.New("there is no label space 0")
	}
	if err := d.need(needMPLS); err != nil {
		return err
	}
	key := objectLabelKey{Space: space, Label: number}
	d.labelShortcuts.mu.Lock()
	defer d.labelShortcuts.mu.Unlock()
	if err := d.maps.Labels.Put(key, record); err != nil {
		return err
	}
	d.labelShortcuts.put(key, record)
	return nil
}

func (d *DataPath) deleteNHLFE(space, number uint32) error {
	key := objectLabelKey{Space: space, Label: number}
	d.labelShortcuts.mu.Lock()
	defer d.labelShortcuts.mu.Unlock()
	d.labelShortcuts.drop(key)
	err := d.maps.Labels.Delete(key)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	return err
}

func (n NHLFE) record() (r objectNhlfe, err error) {
	if n.In < 0 || n.In >= MaxPorts {
		return r, fmt.Errorf("frames come by port %d: want one below %d, or 0 for any", n.In, MaxPorts)
	}
	r.In = uint32(n.In)
	if n.Uniform {
		r.Flags |= labelUniform
	}
	if n.Pop {
		if n.Port != 0 || len(n.Push) != 0 {
			return r, errors.New("a label that only comes off has no port, and no labels in its place")
		}
		r.Operation = labelPop
		return r, nil
	}
	if n.Port <= 0 || n.Port >= MaxPorts || len(n.Push) > maxPushes {
		return r, fmt.Errorf("port %d and %d labels: want a port below %d and at most %d labels", n.Port,
			len(n.Push), MaxPorts, maxPushes)
	}
	r.Operation, r.Port = labelSwitch, uint32(n.Port)
	r.Mac = n.MAC
	r.Ttl, r.Pushes = n.TTL, uint8(len(n.Push))
	if r.Ttl == 0 {
		r.Ttl = 255
	}
	if n.KeepClass {
		r.Flags |= labelKeepClass
	}
	if n.Reserved {
		r.Flags |= labelReserved
	}
	if n.Bypass {
		r.Flags |= labelBypass
	}
	for i, l := range n.Push {
		special := l.Label < FirstLabel && l.Label != explicitNull4 && l.Label != explicitNull6
		if special || l.Label > LastLabel || l.Class > 7 || l.Class == ReservedClass {
			return r, fmt.Errorf("label %d of class %d is not one to push", l.Label, l.Class)
		}
		r.Push[i] = l.Label<<12 | uint32(l.Class)<<9
	}
	return r, nil
}

// The labels that say nothing but which family is behind them.
const (
	explicitNull4 = 0
	explicitNull6 = 2
)

// Values of enums in bpf/label_table.h.
const (
	labelPop    = 1
	labelSwitch = 2

	labelUniform   = 1
	labelKeepClass = 2
	labelReserved  = 4
	labelBypass    = 8
)

func (r objectNhlfe) entry() NHLFE {
	n := NHLFE{
		Pop: r.Operation == labelPop, Port: int(r.Port), In: int(r.In),
		MAC: r.Mac, TTL: r.Ttl,
		Uniform:   r.Flags&labelUniform != 0,
		KeepClass: r.Flags&labelKeepClass != 0,
		Reserved:  r.Flags&labelReserved != 0,
		Bypass:    r.Flags&labelBypass != 0,
	}
	for _, entry := range r.Push[:min(int(r.Pushes), maxPushes)] {
		n.Push = append(n.Push, Label{Label: entry >> 12, Class: uint8(entry >> 9 & 7)})
	}
	return n
}
