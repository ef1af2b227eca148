package wire

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/safchain/ethtool"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath"
)

// attachNIC attaches the programs of an interface of the machine. It does without a line card where there cannot be one. The thread is in the
// machine's namespace.
func (s *Substrate) attachNIC(nic device) error {
	attach := s.data.AttachUnderlay
	if nic.bare {
		attach = s.data.AttachUnderlayOfPackets
	}
	if err := attach(nic.index); err != nil {
		return err
	}
	err := fitForXDP(nic)
	if err != nil {
		err = errors.Join(err, s.data.DetachLineCard(nic.index))
	} else {
		const native = true // the generic one breaks TSO of what the machine itself receives
		err = s.data.AttachLineCard(nic.index, native)
	}
	s.underlay.why[nic.name] = whyNoXDP(err)
	return nil
}

func (s *Substrate) detachNIC(index int) error {
	return errors.Join(s.data.DetachLineCard(index), s.data.DetachUnderlay(index))
}

// errChecksums is of a veth pair as containers have it: its peer leaves checksums to the receiver, and what XDP sends on would stay without them.
var errChecksums = errors.New("a veth pair whose other end may leave checksums to be filled in (once `ethtool -K <interface> tx off` is said at both ends, it can have one)")

// errNotIP is of lo, PPP, and what nobody has tried.
var errNotIP = errors.New("it carries neither Ethernet frames nor IP packets as they are, so it cannot carry tunnels")

// errNoEthernet is of WireGuard, tun and the like, which carry tunnels all the same.
var errNoEthernet = errors.New("no Ethernet interface")

// fitForXDP asks whether frames come in at the interface as they come from a wire.
func fitForXDP(nic device) error {
	switch {
	case nic.bare:
		return errNoEthernet
	case !nic.ether:
		return errNotIP
	}
	if nic.kind != "veth" {
		return nil
	}
	e, err := ethtool.NewEthtool()
	if err != nil {
		return err
	}
	defer e.Close()
	features, err := e.Features(nic.name)
	if err != nil {
		return fmt.Errorf("ask for offloads: %w", err)
	}
	if features["tx-checksum-ip-generic"] { // of this end; who prepares a pair for this does it at both
		return errChecksums
	}
	return nil
}

// whyNoXDP says why there is no line card; "" if there is one.
func whyNoXDP(err error) string {
	var taken *datapath.TakenError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &taken):
		return "none: " + taken.Error()
	case errors.Is(err, unix.EOPNOTSUPP):
		return "none: the driver has none of its own"
	}
	return "none: " + err.Error()
}

// xdp says what there is now: a program may have gone by another's doing.
func (u *underlay) xdp(d device) string {
	switch why := u.why[d.name]; {
	case why != "":
		return why
	case d.xdp == 0:
		return "none: it was taken away"
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
	slices.Sort(indexes)
	var words []string
	for _, index := range slices.Compact(indexes) {
		words = append(words, strconv.Itoa(index))
	}
	m := uplink.mark
	m.nics = strings.Join(words, ",")
	if len(m.String()) > maxAlias {
		return fmt.Errorf("%d interfaces are too many", len(words))
	}
	return s.remark(uplink, m)
}

// remark writes another mark.
func (s *Substrate) remark(d *device, m mark) error {
	if m == d.mark {
		return nil
	}
	if err := s.nl.change(d.index, attrString(unix.IFLA_IFALIAS, m.String())); err != nil {
		return fmt.Errorf("mark device %s: %w", d.name, err)
	}
	d.mark = m
	return nil
}
