package datapath

import (
	"errors"
	"fmt"
	"slices"
)

// SetUplink says which device leads out of the substrate: its end of the veth pair whose other end is in the
// machine's namespace. The pair carries the longest super-frame: its MTU is 65535 at both ends.
func (d *DataPath) SetUplink(index int) error {
	if err := d.need(needTunnels); err != nil {
		return fmt.Errorf("set uplink: %w", err)
	}
	return d.changeUplink(func(u *objectUplink) {
		u.Inside = uint32(index)
		if index == 0 {
			u.Queued = 0
		}
	})
}

// FirstCardClass is the class at the uplink of packets that are no slice's, major and minor number. The class of a
// slice is this and the slice's ID.
const FirstCardClass = 1<<16 | 0x10

// QueueUplink says whether packets that leave the substrate pass the uplink's qdisc, where slices have classes; line
// cards then leave them to tc. It is off where there is no uplink.
func (d *DataPath) QueueUplink(on bool) error {
	if on {
		if err := d.need(needCard); err != nil {
			return fmt.Errorf("queue at the uplink: %w", err)
		}
	}
	return d.changeUplink(func(u *objectUplink) { u.Queued = uint32(flag(on && u.Inside != 0)) })
}

// IsUplinkQueued says what QueueUplink was told last.
func (d *DataPath) IsUplinkQueued() (bool, error) {
	var u objectUplink
	if err := d.maps.Uplinks.Lookup(uint32(0), &u); err != nil {
		return false, fmt.Errorf("read uplink: %w", err)
	}
	return u.Queued != 0, nil
}

// AttachUplink makes outer packets that come into the substrate by the uplink be decapsulated. The thread must be in
// the substrate's namespace.
func (d *DataPath) AttachUplink(index int) error {
	return d.attachUnderlay(index, objectProgUplinkIngress)
}

// AttachUnderlay makes outer packets of tunnels that come in by a network card go to the substrate. All else passes
// as it is, to other programs at the card and to the kernel. The thread must be in the machine's namespace;
// AttachEgress comes first.
func (d *DataPath) AttachUnderlay(nic int) error {
	return d.attachUnderlay(nic, objectProgUnderlayIngress)
}

// AttachUnderlayOfPackets is AttachUnderlay for an interface whose packets come without an Ethernet header.
func (d *DataPath) AttachUnderlayOfPackets(nic int) error {
	return d.attachUnderlay(nic, objectProgUnderlayPackets)
}

// DetachUnderlay undoes AttachUnderlay. It is no error if there is nothing to undo.
func (d *DataPath) DetachUnderlay(nic int) error {
	d.programming.Lock()
	defer d.programming.Unlock()
	return errors.Join(d.underlay.drop(nic, objectProgUnderlayIngress, objectProgUnderlayPackets),
		detachIngress(nic))
}

// AttachEgress makes outer packets that leave the substrate be routed: at the uplink's other end, in the machine's
// namespace, where the thread must be. The device must have net.ipv4.conf.*.forwarding and its IPv6 sibling on, for
// the kernel to look routes up for what comes in there; nothing of it reaches the kernel's own forwarding.
func (d *DataPath) AttachEgress(index int) error {
	if err := d.changeUplink(func(u *objectUplink) { u.Outside = uint32(index) }); err != nil {
		return err
	}
	return d.attachUnderlay(index, objectProgUnderlayEgress)
}

// BindUnderlay makes packets of tunnels leave by these interfaces alone: such as the machine's routes lead elsewhere
// are dropped. The thread must be in the machine's namespace. A data path that is made anew is not bound, but has no
// uplink either.
func (d *DataPath) BindUnderlay(nics []int) error {
	for _, nic := range nics {
		if err := d.maps.Exits.Put(uint32(nic), uint32(nic)); err != nil {
			return fmt.Errorf("let packets of tunnels leave by interface %d: %w", nic, err)
		}
	}
	if err := d.changeUplink(func(u *objectUplink) { u.Bound = 1 }); err != nil {
		return err
	}
	return d.closeExits(nics)
}

// FreeUnderlay undoes BindUnderlay: packets of tunnels go wherever the machine's routes lead.
func (d *DataPath) FreeUnderlay() error {
	if err := d.changeUplink(func(u *objectUplink) { u.Bound = 0 }); err != nil {
		return err
	}
	return d.closeExits(nil)
}

// IsUnderlayBound says which of the two was called last.
func (d *DataPath) IsUnderlayBound() (bool, error) {
	var u objectUplink
	if err := d.maps.Uplinks.Lookup(uint32(0), &u); err != nil {
		return false, fmt.Errorf("read uplink: %w", err)
	}
	return u.Bound != 0, nil
}

// closeExits removes the interfaces but these.
func (d *DataPath) closeExits(but []int) error {
	var (
		nic, index uint32
		stale      []uint32
		all        = d.maps.Exits.Iterate()
	)
	for all.Next(&nic, &index) {
		if !slices.Contains(but, int(nic)) {
			stale = append(stale, nic)
		}
	}
	if err := all.Err(); err != nil {
		return fmt.Errorf("read by which interfaces packets of tunnels leave: %w", err)
	}
	for _, nic := range stale {
		if err := ignoreNotExist(d.maps.Exits.Delete(nic)); err != nil {
			return fmt.Errorf("keep packets of tunnels from interface %d: %w", nic, err)
		}
	}
	return nil
}

func (d *DataPath) changeUplink(change func(*objectUplink)) error {
	d.tunnelling.Lock()
	defer d.tunnelling.Unlock()
	var u objectUplink
	if err := d.maps.Uplinks.Lookup(uint32(0), &u); err != nil {
		return fmt.Errorf("read uplink: %w", err)
	}
	change(&u)
	if err := d.maps.Uplinks.Put(uint32(0), u); err != nil {
		return fmt.Errorf("write uplink: %w", err)
	}
	return nil
}

// Names of what Underlay counts beside drops.
const (
	Received   = "received"
	Sent       = "sent"
	ByLineCard = "by the line card"
)

// Underlay counts outer packets since the maps were made: those that were decapsulated (Received), those of them that
// the line card dealt with alone (ByLineCard), those that were made (Sent), and those that were dropped where no port
// was known yet, or any more, by reason. What never was is absent.
func (d *DataPath) Underlay() (map[string]uint64, error) {
	reasons, err := Reasons()
	if err != nil {
		return nil, err
	}
	var perCPU []objectUnderlay
	if err := d.maps.Underlays.Lookup(uint32(0), &perCPU); err != nil {
		return nil, fmt.Errorf("read counters of the underlay: %w", err)
	}
	all := map[string]uint64{}
	count := func(what string, n uint64) {
		if n > 0 {
			all[what] += n
		}
	}
	for _, c := range perCPU {
		count(Received, c.Received.Frames)
		count(Sent, c.Sent.Frames)
		count(ByLineCard, c.ByCard)
		for reason, n := range c.Dropped {
			count(reasons[reason], n)
		}
	}
	return all, nil
}

// AttachNICLineCard makes the line card of tunnels (tunnelcard.c) look at every frame that comes in at a network card,
// before the kernel makes an sk_buff of it. What it does not send on itself goes to the program of AttachUnderlay: the
// card must have both. The thread must be in the machine's namespace. A card that has a program of XDP already is left
// alone: the error is a *TakenError.
func (d *DataPath) AttachNICLineCard(nic int, native bool) error {
	d.programming.RLock()
	defer d.programming.RUnlock()
	if err := d.attachXDP(nic, native, nicPin, d.programs.UnderlayLinecard); err != nil {
		return fmt.Errorf("attach %s to network card %d: %w", objectProgUnderlayLinecard, nic, err)
	}
	return nil
}

// DetachNICLineCard undoes AttachNICLineCard. It is no error if there is nothing to undo.
func (d *DataPath) DetachNICLineCard(nic int) error {
	if err := d.detachXDP(nic, nicPin); err != nil {
		return fmt.Errorf("detach %s from network card %d: %w", objectProgUnderlayLinecard, nic, err)
	}
	return nil
}

// IN_PARTS and BACK in tunnelcard.c.
const (
	inPartsBit = 1 << 31
	backBit    = 1 << 30
)

// AllowXDPToNIC lets line cards of other network cards send frames by this one, whose driver must take them
// (ndo_xdp_xmit); and, with inParts, frames that lie in several buffers. Elsewhere they would be lost. The card has its
// entry until DenyXDPToNIC, or until it goes. The thread must be in the machine's namespace.
func (d *DataPath) AllowXDPToNIC(nic int, inParts bool) error {
	index := uint32(nic)
	err := d.maps.Nics.Put(index, index)
	if err == nil && inParts {
		err = d.maps.Nics.Put(index|inPartsBit, index)
	} else if err == nil {
		err = ignoreNotExist(d.maps.Nics.Delete(index | inPartsBit))
	}
	if err != nil {
		return fmt.Errorf("let line cards send to network card %d: %w", nic, err)
	}
	return nil
}

// DenyXDPToNIC undoes AllowXDPToNIC. It is no error if there is nothing to undo.
func (d *DataPath) DenyXDPToNIC(nic int) error {
	index := uint32(nic)
	err := errors.Join(ignoreNotExist(d.maps.Nics.Delete(index)),
		ignoreNotExist(d.maps.Nics.Delete(index|inPartsBit)))
	if err != nil {
		return fmt.Errorf("keep line cards from sending to network card %d: %w", nic, err)
	}
	return nil
}

// SendBack lets the line card of a network card send by this one as it does by others, and not by XDP_TX. That is for
// veth: the kernel puts what XDP_TX sends before the other end, but wakes that only if it has a program of XDP of its
// own (veth_xdp_flush), and not if it polls because GRO is on. Frames then wait until something else wakes it. What
// lies in several buffers is sent by XDP_TX all the same: Linux before 6.3 loses it elsewhere. The card has its entry
// until it goes. The thread must be in the machine's namespace.
func (d *DataPath) SendBack(nic int) error {
	if err := d.maps.Nics.Put(uint32(nic)|backBit, uint32(nic)); err != nil {
		return fmt.Errorf("let the line card of network card %d send back: %w", nic, err)
	}
	return nil
}
