package datapath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// AttachXDP makes the line card look at every frame that comes in at the device, before the kernel makes an sk_buff of it. Frames that it
// does not send on itself go to the program of Attach: the device must have both. The device is a port of mode Peer that is External.
//
// native is the driver's XDP, without which little is won. The device must leave VLAN tags in the frames (rx-vlan-offload off): XDP programs
// do not see those that it takes out.
func (d *DataPath) AttachXDP(ifindex int, native bool) error {
	flags := link.XDPGenericMode
	if native {
		flags = link.XDPDriverMode
	}
	l, err := link.AttachXDP(link.XDPOptions{Program: d.programs.Linecard, Interface: ifindex, Flags: flags})
	if err != nil {
		return fmt.Errorf("attach %s to device %d: %w", objectProgLinecard, ifindex, err)
	}
	defer func() { _ = l.Close() }()
	if err = l.Pin(d.linkPin(ifindex)); errors.Is(err, os.ErrExist) {
		// A device has one link: what is pinned is that of an earlier device of this number, which is gone.
		err = errors.Join(d.DetachXDP(ifindex), l.Pin(d.linkPin(ifindex)))
	}
	if err != nil {
		return fmt.Errorf("pin %s of device %d: %w", objectProgLinecard, ifindex, err)
	}
	return nil
}

// DetachXDP undoes AttachXDP. It is no error if there is nothing to undo.
func (d *DataPath) DetachXDP(ifindex int) error {
	if err := os.Remove(d.linkPin(ifindex)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("detach %s from device %d: %w", objectProgLinecard, ifindex, err)
	}
	return nil
}

// TakeXDP says that the port's device takes frames that the line card sends it: external devices whose driver does, and ports whose
// other end, in the node, has GRO or a program of XDP. Elsewhere they would be lost. The entry goes with the device. ifindex is the device's in the
// thread's namespace.
func (d *DataPath) TakeXDP(port, ifindex int) error {
	if err := d.maps.Devices.Put(uint32(port), uint32(ifindex)); err != nil {
		return fmt.Errorf("let XDP send to device %d: %w", ifindex, err)
	}
	return nil
}

// RefuseXDP undoes TakeXDP. It is no error if there is nothing to undo.
func (d *DataPath) RefuseXDP(port int) error {
	if err := d.maps.Devices.Delete(uint32(port)); err != nil {
		return fmt.Errorf("keep XDP from sending to port %d: %w", port, err)
	}
	return nil
}

const linkPrefix = "xdp-"

// linkPin is where the link is pinned that keeps the program attached: beside the directories of ABIs, because it stays when they change.
func (d *DataPath) linkPin(ifindex int) string {
	return filepath.Join(d.dir, linkPrefix+strconv.Itoa(ifindex))
}

// replaceXDP puts the line card in the place of an older one, and forgets links whose device is gone.
func (d *DataPath) replaceXDP() error {
	pins, err := filepath.Glob(filepath.Join(d.dir, linkPrefix+"*"))
	if err != nil {
		return err
	}
	for _, pin := range pins {
		l, err := link.LoadPinnedLink(pin, nil)
		if err != nil {
			return err
		}
		err = l.Update(d.programs.Linecard)
		if errors.Is(err, unix.ENOLINK) {
			err = l.Unpin()
		}
		if err := errors.Join(err, l.Close()); err != nil {
			return fmt.Errorf("device %s: %w", strings.TrimPrefix(filepath.Base(pin), linkPrefix), err)
		}
	}
	return nil
}
