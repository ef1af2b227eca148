package datapath

import (
	"fmt"
	"math/bits"
)

// Policer bounds what enters a link at a port: what exceeds it is dropped at once (bpf/police.h). The zero value bounds
// nothing. Its terms are those of RFC 2697, with an excess burst size of 0.
type Policer struct {
	Rate  uint64 // bytes a second, with Ethernet headers: the committed information rate; at least MinPolicedRate
	Burst uint64 // bytes: the committed burst size; not 0. The last frame of a burst may exceed it

	// Single says that walks leave super-frames to routers' kernels, which cut them: for links so slow that a
	// super-frame would be a burst of its own.
	Single bool
}

// MinPolicedRate is the least rate of a Policer, in bytes a second. For less, a frame's cost would not fit a bucket.
const MinPolicedRate = 125

// record is the policer's meter, with a full bucket.
func (p Policer) record() (m objectMeter, err error) {
	m = objectMeter{PerByte: cost(p.Rate), Rate: p.Rate, Burst: p.Burst}
	high, low := bits.Mul64(m.PerByte, p.Burst)
	if p.Rate < MinPolicedRate || p.Burst == 0 || high >= 1<<meterScale {
		return m, fmt.Errorf("%d bytes a second and %d at once are out of range", p.Rate, p.Burst)
	}
	m.Depth = high<<(64-meterScale) | low>>meterScale
	return m, nil
}

// setPolicer writes the meter of a port before its record says that there is one. A policer that stays what it is keeps
// its tokens; another one begins with a full bucket.
func (d *DataPath) setPolicer(ifindex int, p Policer) error {
	if p == (Policer{}) {
		return nil
	}
	m, err := p.record()
	if err != nil {
		return err
	}
	old, _, err := d.Port(ifindex)
	if err != nil || old.Police.Rate == p.Rate && old.Police.Burst == p.Burst {
		return err
	}
	return d.setMeter(firstPolicer+uint32(ifindex), m)
}

// policer reads what the policer of a port with this record is.
func (d *DataPath) policer(ifindex int, r objectPort) (p Policer, err error) {
	if r.Policed == 0 {
		return p, nil
	}
	var m objectMeter
	if err := d.maps.Meters.Lookup(firstPolicer+uint32(ifindex), &m); err != nil {
		return p, fmt.Errorf("read policer of port %d: %w", ifindex, err)
	}
	return Policer{Rate: m.Rate, Burst: m.Burst, Single: r.Single != 0}, nil
}
