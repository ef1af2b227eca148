package datapath

import (
	"errors"
	"fmt"
	"os"
	"reflect"

	"github.com/cilium/ebpf"

	"github.com/pergola-net/pergola/datapath/node"
)

// needs is a set: what the host needs of the programs. Where it needs less, the verifier has less to check, and the
// programs are smaller.
type needs uint16

const (
	needTunnels      needs = 1 << iota // frames go into tunnels
	needQueues                         // links are shaped
	needPolicers                       // links are policed
	needStormControl                   // tunnels take so many frames to groups
	needIPv6Underlay                   // tunnels have IPv6 outside
	needPrograms                       // nodes have packet programs
	needUDP                            // UDP ports lead to packet programs
	needCard                           // what leaves the machine waits at the uplink
	needMet                            // tunnels count the packet programs that frames have met
	needMPLS                           // routers have labels
	needEarly                          // best effort waits for what is reserved

	allNeeds needs = 1<<iota - 1
)

// switches are the constants of bpf/needs.h.
var switches = []struct {
	need           needs
	name, constant string
}{
	{needTunnels, "tunnels", objectVarWithTunnels},
	{needQueues, "queues", objectVarWithQueues},
	{needPolicers, "policers", objectVarWithPolicers},
	{needStormControl, "storm", objectVarWithStormControl},
	{needIPv6Underlay, "ipv6", objectVarWithIpv6Underlay},
	{needPrograms, "programs", objectVarWithPrograms},
	{needUDP, "udp", objectVarWithUdp},
	{needCard, "card", objectVarWithCard},
	{needMet, "met", objectVarWithMet},
	{needMPLS, "mpls", objectVarWithMpls},
	{needEarly, "early", objectVarWithEarly},
}

// String lists the set as the pins of programs do: +tunnels+queues.
func (n needs) String() (text string) {
	for _, s := range switches {
		if n&s.need != 0 {
			text += "+" + s.name
		}
	}
	return text
}

// with names the pins of the programs that are loaded for such a host.
func (v version) with(n needs) version {
	v.programs += n.String()
	return v
}

// findNeeds reads them out of the maps.
func (d *DataPath) findNeeds() (n needs, err error) {
	tunnels, err := d.Tunnels()
	if err != nil {
		return n, err
	}
	ports, err := d.Ports()
	if err != nil {
		return n, err
	}
	var u objectUplink
	if err := d.maps.Uplinks.Lookup(uint32(0), &u); err != nil {
		return n, fmt.Errorf("read uplink: %w", err)
	}
	if u.Inside != 0 {
		n |= needTunnels
	}
	if u.Queued != 0 {
		n |= needCard
	}
	share, err := d.BestEffort()
	if err != nil {
		return n, err
	}
	if share > 0 {
		n |= needEarly
	}
	programs, err := node.Any(d.nodesDir())
	if err != nil {
		return n, err
	}
	if programs {
		n |= needPrograms
	}
	switch err := d.maps.UdpOwners.NextKey(nil, &objectUdpName{}); {
	case err == nil:
		n |= needUDP
	case !errors.Is(err, ebpf.ErrKeyNotExist):
		return n, fmt.Errorf("read where UDP ports lead: %w", err)
	}
	switch err := d.maps.Labels.NextKey(nil, &objectLabelKey{}); {
	case err == nil:
		n |= needMPLS
	case !errors.Is(err, ebpf.ErrKeyNotExist):
		return n, fmt.Errorf("read labels: %w", err)
	}
	for _, t := range tunnels {
		n |= t.needs()
	}
	for _, p := range ports {
		n |= p.needs()
	}
	return n, nil
}

func (t Tunnel) needs() needs {
	n := needTunnels
	if t.StormControl > 0 {
		n |= needStormControl
	}
	if t.Local.Unmap().Is6() {
		n |= needIPv6Underlay
	}
	if t.CountsMet {
		n |= needMet
	}
	return n
}

func (p Port) needs() (n needs) {
	switch p.Mode {
	case Tunnelled:
		n |= needTunnels
	case Queue:
		n |= needQueues
	case None, Kernel, Peer:
	}
	if p.Police != (Policer{}) {
		n |= needPolicers
	}
	return n
}

// need is called before a record is written that needs so much of the programs. It loads other programs if these have
// less. Those take the place of the older ones while frames flow, as at an upgrade.
func (d *DataPath) need(n needs) error {
	d.programming.Lock()
	defer d.programming.Unlock()
	if d.needs|n == d.needs {
		return nil
	}
	n |= d.needs
	old := d.programs
	programs, err := d.loadPrograms(n)
	if err != nil {
		return err
	}
	d.programs = programs
	if err := d.putInPlace(d.version.with(n)); err != nil {
		d.programs = old
		return errors.Join(err, programs.Close())
	}
	d.needs = n
	return old.Close()
}

// loadPrograms loads the programs for such a host, with the maps that are open.
func (d *DataPath) loadPrograms(n needs) (programs objectPrograms, err error) {
	spec := d.spec.Copy()
	for _, s := range switches {
		if err := spec.Variables[s.constant].Set(flag(n&s.need != 0)); err != nil {
			return programs, fmt.Errorf("set %s: %w", s.constant, err)
		}
	}
	err = spec.LoadAndAssign(&programs, &ebpf.CollectionOptions{MapReplacements: d.mapsByName()})
	if err != nil {
		return programs, fmt.Errorf("load programs: %w", err)
	}
	return programs, nil
}

// mapsByName lists the open maps.
func (d *DataPath) mapsByName() map[string]*ebpf.Map {
	all := map[string]*ebpf.Map{}
	fields := reflect.ValueOf(d.maps)
	for i := range fields.NumField() {
		if m, ok := fields.Field(i).Interface().(*ebpf.Map); ok {
			all[fields.Type().Field(i).Tag.Get("ebpf")] = m
		}
	}
	return all
}

// putInPlace attaches the programs where older ones are attached, and pins them. Pinned programs say that nothing is
// left to do: killed before, the next Open starts over.
func (d *DataPath) putInPlace(v version) error {
	if err := d.replacePrograms(); err != nil {
		return err
	}
	for name, p := range d.byName() {
		if err := (*p).Pin(v.programPin(d.dir, name)); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("pin program %s: %w", name, err)
		}
	}
	return v.removeOthers(d.dir)
}
