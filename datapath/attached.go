package datapath

import (
	"errors"
	"fmt"
	"os"

	"github.com/pergola-net/pergola/kernel/netns"
)

// attached remembers where programs of the underlay, and of the handover, are, so that others can take their place when
// the host comes to need more of them. A process that begins with pinned programs does not know: the programs that it
// finds attached stay until they are attached anew.
type attached map[attachment]*os.File // the device's namespace

type attachment struct {
	ifindex int
	program string
}

// attachUnderlay attaches a program of the underlay to a device of the thread's namespace.
func (d *DataPath) attachUnderlay(ifindex int, program string) error {
	d.programming.Lock()
	defer d.programming.Unlock()
	if err := attachIngress(ifindex, program, *d.byName()[program]); err != nil {
		return err
	}
	ns, err := netns.Here()
	if err != nil {
		return err
	}
	if d.underlay == nil {
		d.underlay = attached{}
	}
	a := attachment{ifindex, program}
	err = d.underlay.drop(ifindex, program)
	d.underlay[a] = ns
	return err
}

// drop forgets what was attached to a device.
func (all attached) drop(ifindex int, programs ...string) (err error) {
	for _, program := range programs {
		a := attachment{ifindex, program}
		if ns := all[a]; ns != nil {
			err = errors.Join(err, ns.Close())
			delete(all, a)
		}
	}
	return err
}

// replaceUnderlay puts programs in the place of those that were attached. Devices that are gone are forgotten.
func (d *DataPath) replaceUnderlay() error {
	for a, ns := range d.underlay {
		found := false
		err := netns.In(ns, func() (err error) {
			found, err = replaceIngress(a.ifindex, a.program, *d.byName()[a.program])
			return err
		})
		if err == nil && !found {
			err = d.underlay.drop(a.ifindex, a.program)
		}
		if err != nil {
			return fmt.Errorf("replace a program of the underlay: %w", err)
		}
	}
	return nil
}

// close lets go of the namespaces.
func (all attached) close() (err error) {
	for a := range all {
		err = errors.Join(err, all.drop(a.ifindex, a.program))
	}
	return err
}
