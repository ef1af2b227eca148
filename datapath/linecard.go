package datapath

import "fmt"

// AttachPortLineCard makes the line card of ports (linecard.c) look at every frame that comes in at the device, before
// the kernel makes an sk_buff of it. Frames that it does not send on itself go to the program of Attach: the device
// must have both. The device is a port of mode Peer that is External.
//
// native is the driver's XDP, without which little is won. The device must leave VLAN tags in the frames
// (rx-vlan-offload off): XDP programs do not see those that it takes out.
func (d *DataPath) AttachPortLineCard(ifindex int, native bool) error {
	d.programming.RLock()
	defer d.programming.RUnlock()
	if err := d.attachXDP(ifindex, native, portPin, d.programs.Linecard); err != nil {
		return fmt.Errorf("attach %s to device %d: %w", objectProgLinecard, ifindex, err)
	}
	return nil
}

// DetachPortLineCard undoes AttachPortLineCard. It is no error if there is nothing to undo.
func (d *DataPath) DetachPortLineCard(ifindex int) error {
	if err := d.detachXDP(ifindex, portPin); err != nil {
		return fmt.Errorf("detach %s from device %d: %w", objectProgLinecard, ifindex, err)
	}
	return nil
}

// AllowXDPToPort lets line cards send frames to the port's device, which must take them: external devices whose driver
// does, and ports whose other end, in the node, has GRO or a program of XDP. Elsewhere they would be lost. Of a port
// where a tunnel begins, it is the far end of the proxy port's pair, whose near end has GRO: what comes out of the
// tunnel goes there. The entry goes with the device. ifindex is the device's in the thread's namespace.
func (d *DataPath) AllowXDPToPort(port, ifindex int) error {
	if err := d.maps.Devices.Put(uint32(port), uint32(ifindex)); err != nil {
		return fmt.Errorf("let XDP send to device %d: %w", ifindex, err)
	}
	return nil
}

// DenyXDPToPort undoes AllowXDPToPort. It is no error if there is nothing to undo.
func (d *DataPath) DenyXDPToPort(port int) error {
	if err := d.maps.Devices.Delete(uint32(port)); err != nil {
		return fmt.Errorf("keep XDP from sending to port %d: %w", port, err)
	}
	return nil
}
