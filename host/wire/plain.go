package wire

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/kernel/rtnl"
)

// forwarder directs the frames that enter at devices of the substrate, each as its record says. *datapath.DataPath is
// one, and a plain.
type forwarder interface {
	Add(ifindex int, p datapath.Port) error
	Attach(ifindex int) error
	Set(ifindex int, p datapath.Port) error
	Forget(ifindex int) error
	Port(ifindex int) (p datapath.Port, ok bool, err error)
	Ports() (map[int]datapath.Port, error)

	SetRules(ifindex int, rules []datapath.Rule) error
	Rules(ifindex int) ([]datapath.Rule, error)
	SetNote(kind datapath.NoteKind, index int, value uint32) error
	Note(kind datapath.NoteKind, index int) (uint32, error)
	Notes(kind datapath.NoteKind) (map[int]uint32, error)
	Tunnels() (map[int]datapath.Tunnel, error)
	Counters() (map[int]datapath.Counters, error)
}

// plain is the forwarder of a host network without eBPF, which the kernel lets only root load. Each device has one
// filter of its own at its ingress, which matches every frame (tc-u32(8)), and hands it to the device that the record
// names (tc-mirred(8)). A frame thus crosses a link as it is, of whatever protocol; there is no walk, and nothing is
// classified or policed.
//
// Nothing is kept elsewhere: the filter is the record. Its key, which looks at no bit of a frame, has the MTU for its
// value; its class has the mode and the process of NoteProcess; and its action names the peer. The other notes are
// about programs of eBPF: there are none.
type plain struct{ nl *conn }

// plainRecord is what is kept of a device.
type plainRecord struct {
	mtu  int
	mode datapath.Mode
	peer int
	pid  uint32
}

const (
	plainIngress = 0xfffffff2 // the ingress of clsact: TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS)
	plainHandle  = 0x80000001 // of u32: the first key of the first hash table

	// A class has a mark, so that it is never 0, then the mode, and then the process: numbers of processes have 22
	// bits at most (PID_MAX_LIMIT).
	plainMark     = 1 << 31
	plainModeBits = 24
	plainPIDs     = 1<<plainModeBits - 1

	u32Terminal    = 1 // TC_U32_TERMINAL
	egressRedirect = 1 // TCA_EGRESS_REDIR
	stolen         = 4 // TC_ACT_STOLEN
)

// u32Selector is struct tc_u32_sel with one key, struct tc_u32_key.
type u32Selector struct {
	Flags, OffShift, Keys, _ uint8
	OffMask, Off             uint16
	OffOff, HOff             int16
	HMask                    uint32

	Mask, Value  uint32
	At, AtOffset int32
}

// mirred is struct tc_mirred, of 28 bytes (linux/tc_act/tc_mirred.h).
type mirred struct {
	Index, Capab      uint32
	Action            int32
	References, Bound int32
	How               int32
	Ifindex           uint32
}

// Add implements forwarder.
func (f *plain) Add(ifindex int, p datapath.Port) error {
	if err := f.Attach(ifindex); err != nil {
		return err
	}
	return f.write(ifindex, p, 0)
}

// Attach implements forwarder.
func (f *plain) Attach(ifindex int) error {
	err := f.nl.do(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_EXCL,
		tcHeader(ifindex, tcClsact&0xffff0000, tcClsact), rtnl.String(nl.TCA_KIND, "clsact"))
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("attach clsact to device %d: %w", ifindex, err)
	}
	return nil
}

// Set implements forwarder.
func (f *plain) Set(ifindex int, p datapath.Port) error {
	now, there, err := f.read(ifindex)
	if err != nil {
		return err
	}
	if there && now.mtu != p.MTU { // a key is not changed: the kernel keeps that of the filter before
		if err := errors.Join(f.Forget(ifindex), f.Attach(ifindex)); err != nil {
			return err
		}
	}
	return f.write(ifindex, p, now.pid)
}

// errNeedsEBPF is the error of what only programs of eBPF do.
var errNeedsEBPF = errors.New("it takes programs of eBPF, which only root may load")

// write makes the filter, or changes it: in one step, so that a frame meets what was or what is to be.
func (f *plain) write(ifindex int, p datapath.Port, pid uint32) error {
	if p.Classified || p.Queues != 0 || p.Reserves || p.Plain != 0 || p.Police != (datapath.Policer{}) ||
		p.External || p.Mode == datapath.Tunnelled {
		return fmt.Errorf("classify, police or tunnel frames of device %d: %w", ifindex, errNeedsEBPF)
	}
	selector := u32Selector{Flags: u32Terminal, Keys: 1, Value: uint32(p.MTU)}
	options := rtnl.Nest(nl.TCA_OPTIONS,
		rtnl.U32(nl.TCA_U32_CLASSID, plainMark|uint32(p.Mode)<<plainModeBits|pid&plainPIDs),
		rtnl.Struct(nl.TCA_U32_SEL, selector))
	if joined(p) {
		redirect := mirred{Action: stolen, How: egressRedirect, Ifindex: uint32(p.Peer)}
		options = options.With(rtnl.Nest(nl.TCA_U32_ACT, rtnl.Nest(nl.TCA_ACT_TAB,
			rtnl.String(nl.TCA_ACT_KIND, "mirred"),
			rtnl.Nest(nl.TCA_ACT_OPTIONS, rtnl.Struct(nl.TCA_MIRRED_PARMS, redirect)))))
	}
	err := f.nl.do(unix.RTM_NEWTFILTER, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, plainFilter(ifindex),
		rtnl.String(nl.TCA_KIND, "u32"), options)
	if errors.Is(err, unix.ENOENT) {
		return &MissingModuleError{"cls_u32 or act_mirred", "a link without root's rights"}
	}
	if err != nil {
		return fmt.Errorf("direct frames of device %d: %w", ifindex, err)
	}
	return nil
}

func plainFilter(ifindex int) *nl.TcMsg {
	header := tcHeader(ifindex, plainHandle, plainIngress)
	header.Info = filterPriority<<16 | uint32(nl.Swap16(unix.ETH_P_ALL))
	return header
}

// Forget implements forwarder. The record of a device that is gone went with it.
func (f *plain) Forget(ifindex int) error {
	err := f.nl.do(unix.RTM_DELQDISC, 0, tcHeader(ifindex, tcClsact&0xffff0000, tcClsact))
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) {
		return nil // EINVAL: it has none
	}
	if err != nil {
		return fmt.Errorf("detach clsact from device %d: %w", ifindex, err)
	}
	return nil
}

// Port implements forwarder.
func (f *plain) Port(ifindex int) (p datapath.Port, ok bool, err error) {
	r, ok, err := f.read(ifindex)
	return r.port(), ok, err
}

func (r plainRecord) port() datapath.Port {
	return datapath.Port{Mode: r.mode, Peer: r.peer, MTU: r.mtu}
}

// Ports implements forwarder.
func (f *plain) Ports() (map[int]datapath.Port, error) {
	all, err := f.records()
	if err != nil {
		return nil, err
	}
	ports := make(map[int]datapath.Port, len(all))
	for index, r := range all {
		ports[index] = r.port()
	}
	return ports, nil
}

// records reads the records of all devices: the kernel lists the filters of one device at a time.
func (f *plain) records() (map[int]plainRecord, error) {
	devices, err := f.nl.devices()
	if err != nil {
		return nil, err
	}
	all := map[int]plainRecord{}
	for _, d := range devices {
		if d.kind != "veth" {
			continue
		}
		r, ok, err := f.read(d.index)
		if err != nil {
			return nil, err
		}
		if ok {
			all[d.index] = r
		}
	}
	return all, nil
}

// read reads the record of one device. ok is false where there is none.
func (f *plain) read(ifindex int) (r plainRecord, ok bool, err error) {
	filters, err := f.nl.dump(unix.RTM_GETTFILTER, unix.RTM_NEWTFILTER, tcHeader(ifindex, 0, plainIngress))
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EINVAL) { // EINVAL: it has no clsact
		return r, false, nil
	}
	if err != nil {
		return r, false, fmt.Errorf("read where frames of device %d go: %w", ifindex, err)
	}
	for _, message := range filters {
		header := nl.DeserializeTcMsg(message)
		if header.Handle != plainHandle {
			continue
		}
		attrs := rtnl.Attributes(message[header.Len():])
		for attrs.Next() {
			if attrs.Kind == nl.TCA_OPTIONS {
				r, ok = parsePlain(attrs.Value)
			}
		}
	}
	return r, ok, nil
}

// parsePlain reads the options of a filter. ok is false for one that is not of ours.
func parsePlain(options []byte) (r plainRecord, ok bool) {
	attrs := rtnl.Attributes(options)
	for attrs.Next() {
		switch attrs.Kind {
		case nl.TCA_U32_CLASSID:
			class := attrs.U32()
			ok = class&plainMark != 0
			r.mode, r.pid = datapath.Mode(class&^plainMark>>plainModeBits), class&plainPIDs
		case nl.TCA_U32_SEL:
			const value = 20 // the offset of u32Selector.Value
			if len(attrs.Value) >= value+4 {
				r.mtu = int(binary.NativeEndian.Uint32(attrs.Value[value:]))
			}
		case nl.TCA_U32_ACT:
			attrs.Inside(nl.TCA_ACT_TAB, func(action *rtnl.Attrs) {
				action.Inside(nl.TCA_ACT_OPTIONS, func(options *rtnl.Attrs) {
					options.Inside(nl.TCA_MIRRED_PARMS, func(parms *rtnl.Attrs) {
						r.peer = redirectsTo(parms.Value)
					})
				})
			})
		}
	}
	return r, ok && r.mtu != 0
}

// redirectsTo reads the device out of a struct tc_mirred; 0: there is none, or none any more.
func redirectsTo(parms []byte) int {
	const ifindex = 24 // the offset of mirred.Ifindex
	if len(parms) < ifindex+4 {
		return 0
	}
	return int(binary.NativeEndian.Uint32(parms[ifindex:]))
}

// SetRules implements forwarder.
func (f *plain) SetRules(_ int, rules []datapath.Rule) error {
	if len(rules) > 0 {
		return fmt.Errorf("classify frames: %w", errNeedsEBPF)
	}
	return nil
}

// Rules implements forwarder.
func (f *plain) Rules(int) ([]datapath.Rule, error) { return nil, nil }

// SetNote implements forwarder.
func (f *plain) SetNote(kind datapath.NoteKind, index int, value uint32) error {
	if kind != datapath.NoteProcess {
		return nil
	}
	r, ok, err := f.read(index)
	if err != nil || !ok {
		return err
	}
	return f.write(index, r.port(), value)
}

// Note implements forwarder.
func (f *plain) Note(kind datapath.NoteKind, index int) (uint32, error) {
	if kind != datapath.NoteProcess {
		return 0, nil
	}
	r, _, err := f.read(index)
	return r.pid, err
}

// Notes implements forwarder.
func (f *plain) Notes(kind datapath.NoteKind) (map[int]uint32, error) {
	notes := map[int]uint32{}
	if kind != datapath.NoteProcess {
		return notes, nil
	}
	all, err := f.records()
	for index, r := range all {
		if r.pid != 0 {
			notes[index] = r.pid
		}
	}
	return notes, err
}

// Tunnels implements forwarder.
func (f *plain) Tunnels() (map[int]datapath.Tunnel, error) { return nil, nil }

// Counters implements forwarder: all frames pass the devices, which count them.
func (f *plain) Counters() (map[int]datapath.Counters, error) { return nil, nil }
