package datapath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/rtnl"
)

// A line card is attached by a BPF link, which is pinned under one of these prefixes and the ifindex: that of a port in
// the substrate's namespace, or that of a network card in the machine's.
const (
	portPin = "xdp-"
	nicPin  = "nic-"
)

// pinOf is where the BPF link of a device is pinned: beside the directories of ABIs, because it stays when they change.
func (d *DataPath) pinOf(prefix string, ifindex int) string {
	return filepath.Join(d.dir, prefix+strconv.Itoa(ifindex))
}

// TakenError says that a device has another program of XDP, and there can be one only.
type TakenError struct {
	Program uint32 // its id, as `bpftool prog` shows it; 0: could not be found out
}

func (e *TakenError) Error() string {
	return fmt.Sprintf("it is taken by XDP program %d (bpftool prog show id %d)", e.Program, e.Program)
}

// attachXDP attaches a program by a BPF link, which is pinned. If one of ours is attached already, p takes its place.
func (d *DataPath) attachXDP(ifindex int, native bool, prefix string, p *ebpf.Program) error {
	mode := link.XDPGenericMode
	if native {
		mode = link.XDPDriverMode
	}
	pin := d.pinOf(prefix, ifindex)
	l, err := link.AttachXDP(link.XDPOptions{Program: p, Interface: ifindex, Flags: mode})
	if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST) { // also by a BPF link of ours
		return replaceOurs(pin, ifindex, p)
	}
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }()
	if err = l.Pin(pin); errors.Is(err, os.ErrExist) {
		// A device has one link: what is pinned is that of an earlier device of this number, which is gone.
		err = errors.Join(d.detachXDP(ifindex, prefix), l.Pin(pin))
	}
	if err != nil {
		return fmt.Errorf("pin the BPF link: %w", err)
	}
	return nil
}

// replaceOurs puts p in the place of the device's program, if that is ours: by the pinned BPF link. Else the error is a
// *TakenError.
func replaceOurs(pin string, ifindex int, p *ebpf.Program) error {
	id, err := xdpProgram(ifindex)
	if err != nil {
		return &TakenError{}
	}
	l, err := link.LoadPinnedLink(pin, nil)
	if errors.Is(err, os.ErrNotExist) {
		return &TakenError{id}
	}
	if err != nil {
		return fmt.Errorf("open the pinned BPF link: %w", err)
	}
	defer func() { _ = l.Close() }()
	info, err := l.Info()
	if err != nil {
		return fmt.Errorf("read the pinned BPF link: %w", err)
	}
	if xdp := info.XDP(); xdp == nil || int(xdp.Ifindex) != ifindex || uint32(info.Program) != id {
		return &TakenError{id}
	}
	return l.Update(p)
}

// detachXDP takes the program away at once. If the last close of the BPF link were to do it, the kernel would, in the
// background, and the device would seem taken for a while.
func (d *DataPath) detachXDP(ifindex int, prefix string) error {
	l, err := link.LoadPinnedLink(d.pinOf(prefix, ifindex), nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(l.Detach(), l.Unpin(), l.Close())
}

// replaceXDP puts programs in the place of older ones, and forgets BPF links whose device is gone.
func (d *DataPath) replaceXDP() error {
	for prefix, p := range map[string]*ebpf.Program{portPin: d.programs.Linecard,
		nicPin: d.programs.UnderlayLinecard} {
		pins, err := filepath.Glob(filepath.Join(d.dir, prefix+"*"))
		if err != nil {
			return err
		}
		for _, pin := range pins {
			if err := updateLink(pin, p); err != nil {
				return fmt.Errorf("%s: %w", filepath.Base(pin), err)
			}
		}
	}
	return nil
}

func updateLink(pin string, p *ebpf.Program) error {
	l, err := link.LoadPinnedLink(pin, nil)
	if err != nil {
		return err
	}
	err = l.Update(p)
	if errors.Is(err, unix.ENOLINK) {
		err = l.Unpin()
	}
	return errors.Join(err, l.Close())
}

// xdpProgram asks which program a device of the thread's namespace has; 0 is none.
func xdpProgram(ifindex int) (program uint32, err error) {
	const programID = 4 // IFLA_XDP_PROG_ID
	c, err := rtnl.Open(unix.NETLINK_ROUTE)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	data, err := c.Get(unix.RTM_GETLINK, rtnl.Encode(unix.IfInfomsg{Index: int32(ifindex)}))
	if err != nil {
		return 0, fmt.Errorf("read device %d: %w", ifindex, err)
	}
	a := rtnl.Message{Data: data}.Attributes(unix.SizeofIfInfomsg)
	for a.Next() {
		if a.Kind == unix.IFLA_XDP {
			a.Inside(programID, func(a *rtnl.Attrs) { program = a.U32() })
		}
	}
	if err := a.Err(); err != nil {
		return 0, fmt.Errorf("read device %d: %w", ifindex, err)
	}
	return program, nil
}
