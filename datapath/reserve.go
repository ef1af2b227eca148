package datapath

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
)

// Reservation is what an LSP has of the links on its way: a token bucket where it begins (bpf/reserve.h).
type Reservation struct {
	Rate  uint64 // bytes a second, with Ethernet headers and labels; at least MinPolicedRate
	Burst uint64 // bytes; not 0. The last frame of a burst may exceed it
	// Drop says that what exceeds it is dropped. Else it goes on as best effort, with traffic class 0.
	Drop bool
}

// ReservedClass is the traffic class of labels on frames that are within a reservation.
const ReservedClass = 5

// Reserved is a reservation, and what was measured by it since it was set first.
type Reserved struct {
	Reservation
	Frames, Bytes             uint64 // within it
	ExcessFrames, ExcessBytes uint64 // in excess of it
	// Time is the processor time of the walks of both, from the bucket to their end. One frame in 16 is measured,
	// so that it is an estimate.
	Time time.Duration
}

// Reserved reads the reservation of an FTN; the zero value: there is none.
func (d *DataPath) Reserved(space, ftn uint32) (Reserved, error) {
	var r objectReservation
	err := d.maps.Reservations.Lookup(reservationKey(space, ftn), &r)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return Reserved{}, nil
	}
	if err != nil {
		return Reserved{}, fmt.Errorf("read the reservation of FTN %d: %w", ftn, err)
	}
	return Reserved{
		Reservation: Reservation{Rate: r.Meter.Rate, Burst: r.Meter.Burst, Drop: r.Excess == excessDropped},
		Frames:      r.Frames, Bytes: r.Bytes, ExcessFrames: r.ExcessFrames, ExcessBytes: r.ExcessBytes,
		Time: time.Duration(r.Time),
	}, nil
}

const excessDropped = 1 // bpf/reserve.h

func (r Reservation) record() (o objectReservation, err error) {
	if r.Drop {
		o.Excess = excessDropped
	}
	o.Meter, err = Policer{Rate: r.Rate, Burst: r.Burst}.record()
	return o, err
}

// setReservation writes that of an FTN, or deletes it. What was counted stays, but for frames that come in the moment
// of a change. A bucket that stays what it is keeps its tokens, and another one begins full.
func (d *DataPath) setReservation(space, ftn uint32, n NHLFE) error {
	if !n.Reserved {
		return d.deleteReservation(space, ftn)
	}
	was, err := d.Reserved(space, ftn)
	if err != nil || was.Reservation == n.Reservation {
		return err
	}
	r, err := n.Reservation.record()
	if err != nil {
		return err
	}
	r.Frames, r.Bytes, r.ExcessFrames, r.ExcessBytes = was.Frames, was.Bytes, was.ExcessFrames, was.ExcessBytes
	r.Time = uint64(was.Time)
	return d.maps.Reservations.Put(reservationKey(space, ftn), r)
}

func (d *DataPath) deleteReservation(space, ftn uint32) error {
	err := d.maps.Reservations.Delete(reservationKey(space, ftn))
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	return err
}

func reservationKey(space, ftn uint32) uint64 { return uint64(space)<<32 | uint64(ftnBit|ftn) }
