package traffic

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/pergola-net/pergola/kernel/netns"
)

// Relay joins two devices of a namespace by a program that does nothing but hand frames on: it shows what a program
// at that place can reach.
type Relay struct {
	obj    objectObjects
	detach []func() error
}

// NewRelay makes one. What comes by a NIC is taken from the driver, else where frames enter the stack.
func NewRelay(ns *os.File, one, other int, nic bool) (*Relay, error) {
	r := &Relay{}
	err := r.load(one, other)
	for _, device := range []int{one, other} {
		if err == nil {
			err = r.attach(ns, device, nic)
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a relay: %w", err), r.Close())
	}
	return r, nil
}

func (r *Relay) load(one, other int) error {
	spec, err := loadObject()
	if err != nil {
		return err
	}
	for name, value := range map[string]int{"one": one, "other": other} {
		if err := spec.Variables[name].Set(uint32(value)); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	return spec.LoadAndAssign(&r.obj, nil)
}

func (r *Relay) attach(ns *os.File, device int, nic bool) error {
	if !nic {
		detach, err := attachTC(ns, device, r.obj.RelayTc)
		if err == nil {
			r.detach = append(r.detach, detach)
		}
		return err
	}
	return netns.In(ns, func() error {
		l, err := link.AttachXDP(link.XDPOptions{Program: r.obj.RelayXdp, Interface: device,
			Flags: link.XDPDriverMode})
		if err == nil {
			r.detach = append(r.detach, l.Close)
		}
		return err
	})
}

// Close takes the relay from its devices.
func (r *Relay) Close() error {
	var errs []error
	for _, detach := range r.detach {
		errs = append(errs, detach())
	}
	return errors.Join(append(errs, r.obj.Close())...)
}

// attachTC attaches a program where a device's frames enter the stack.
func attachTC(ns *os.File, device int, p *ebpf.Program) (detach func() error, err error) {
	err = netns.In(ns, func() error {
		l, err := link.AttachTCX(link.TCXOptions{Program: p, Interface: device, Attach: ebpf.AttachTCXIngress})
		if err == nil {
			detach = l.Close
			return nil
		}
		// Before Linux 6.6.
		detach, err = attachClsact(ns, device, p)
		return err
	})
	return detach, err
}
