package wire

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/kernel/rtnl"
)

// attachNIC attaches the programs of an interface of the machine. There is no line card where there cannot be one, or
// is to be none. The thread is in the machine's namespace.
func (s *Substrate) attachNIC(nic device, noXDP bool) error {
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
		err = errors.Join(err, s.data.DetachLineCard(nic.index))
	} else {
		const native = true // the generic one breaks TSO of what the machine itself receives
		if nic.kind == "veth" {
			err = s.data.SendBack(nic.index)
		}
		if err == nil {
			err = s.data.AttachLineCard(nic.index, native)
		}
	}
	s.underlay.why[nic.name] = whyNoXDP(err)
	return nil
}

func (s *Substrate) detachNIC(index int) error {
	return errors.Join(s.data.RefuseFrames(index), s.data.DetachLineCard(index), s.data.DetachUnderlay(index))
}

// updateRedirect lets line cards of other interfaces send by this one as long as its driver transmits what they
// redirect: else it is lost. Whether it does changes with a setting, a program, or what is at the other end of a veth
// pair.
func (s *Substrate) updateRedirect(nic device) error {
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
		return s.data.RefuseFrames(nic.index)
	}
	return netns.In(s.host, func() error {
		return s.data.TakeFrames(nic.index, able.has(featureTransmitFragments))
	})
}

// xdp gives the XDP mode of now: another process may have taken the program away.
func (u *underlay) xdp(d device) string {
	switch why := u.why[d.name]; {
	case why != "":
		return why
	case d.xdp == 0:
		return "none: it was taken away"
	case len(u.nics) > 1 && !u.transmits[d.name]:
		return xdpNative + "; what comes in by other interfaces leaves it by tc"
	}
	return xdpNative
}

// indexes reads which of the machine's interfaces may have programs of ours.
func (m mark) indexes() (all []int) {
	for _, text := range strings.Split(m.nics, ",") {
		if index, err := strconv.Atoi(text); err == nil {
			all = append(all, index)
		}
	}
	return all
}

// markNICs notes which those are.
func (s *Substrate) markNICs(uplink *device, indexes []int) error {
	m, err := uplink.mark.withNICs(indexes)
	if err != nil {
		return err
	}
	return s.remark(uplink, m)
}

// withNICs leaves room for what has to be written into the mark later.
func (m mark) withNICs(indexes []int) (mark, error) {
	slices.Sort(indexes)
	var words []string
	for _, index := range slices.Compact(indexes) {
		words = append(words, strconv.Itoa(index))
	}
	m.nics = strings.Join(words, ",")
	longest := m
	longest.raised = true
	if len(longest.String()) > maxAlias {
		return m, fmt.Errorf("%d interfaces are too many", len(words))
	}
	return m, nil
}

// remark writes another mark.
func (s *Substrate) remark(d *device, m mark) error {
	if m == d.mark {
		return nil
	}
	if err := s.nl.change(d.index, rtnl.String(unix.IFLA_IFALIAS, m.String())); err != nil {
		return fmt.Errorf("mark device %s: %w", d.name, err)
	}
	d.mark = m
	return nil
}
