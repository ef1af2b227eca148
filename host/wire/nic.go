package wire

import (
	"errors"
	"slices"

	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/kernel/netns"
)

// attachNIC attaches the programs of an interface of the machine. There is no line card where there cannot be one, or
// is to be none. The thread is in the machine's namespace.
func (s *HostNetwork) attachNIC(nic device, noXDP bool) error {
	attach := s.data.AttachUnderlay
	if nic.rawIP {
		attach = s.data.AttachUnderlayOfPackets
	}
	if err := attach(nic.index); err != nil {
		return err
	}
	err := errSwitchedOff
	if !noXDP {
		err = checkXDP(nic)
	}
	if err != nil {
		err = errors.Join(err, s.data.DetachNICLineCard(nic.index))
	} else {
		const native = true // the generic one breaks TSO of what the machine itself receives
		if nic.kind == "veth" {
			err = s.data.SendBack(nic.index)
		}
		if err == nil {
			err = s.data.AttachNICLineCard(nic.index, native)
		}
	}
	s.underlay.why[nic.name] = whyNoXDP(err)
	return nil
}

func (s *HostNetwork) detachNIC(index int) error {
	return errors.Join(s.data.DenyXDPToNIC(index), s.data.DetachNICLineCard(index), s.data.DetachUnderlay(index))
}

// updateRedirect lets line cards of other interfaces send by this one as long as its driver transmits what they
// redirect: else it is lost. Whether it does changes with a setting, a program, or what is at the other end of a veth
// pair.
func (s *HostNetwork) updateRedirect(nic device) error {
	var able features
	err := errSwitchedOff
	if !s.underlay.noXDP && nic.ether {
		err = netns.In(s.host, func() (err error) {
			able, err = readXDPFeatures(nic.index)
			return err
		})
	}
	transmits := err == nil && able.has(featureTransmit)
	s.underlay.transmits[nic.name] = transmits
	if !transmits {
		return s.data.DenyXDPToNIC(nic.index)
	}
	return netns.In(s.host, func() error {
		return s.data.AllowXDPToNIC(nic.index, able.has(featureTransmitFragments))
	})
}

// xdp gives the XDP mode of now: another process may have taken the program away.
func (u *underlay) xdp(d device) string {
	switch why := u.why[d.name]; {
	case why != "":
		return why
	case d.xdp == 0:
		return "none: it was taken away"
	case u.ordinary[d.name] != nil:
		return xdpNative + "; no real-time thread polls it: " + u.ordinary[d.name].Error()
	case len(u.nics) > 1 && !u.transmits[d.name]:
		return xdpNative + "; what comes in by other interfaces leaves it by tc"
	}
	return xdpNative
}

// noteNICs notes at which of the machine's interfaces there may be programs of ours.
func (s *HostNetwork) noteNICs(indexes []int) error {
	for _, index := range indexes {
		if err := s.data.SetNote(datapath.NoteNIC, index, 1); err != nil {
			return err
		}
	}
	return nil
}

// leaveNICs takes the programs away at all interfaces but these.
func (s *HostNetwork) leaveNICs(but []int) error {
	noted, err := s.data.Notes(datapath.NoteNIC)
	if err != nil {
		return err
	}
	for index := range noted {
		if slices.Contains(but, index) {
			continue
		}
		if err := netns.In(s.host, func() error { return s.detachNIC(index) }); err != nil {
			return err
		}
		if err := s.data.SetNote(datapath.NoteNIC, index, 0); err != nil {
			return err
		}
	}
	return nil
}
