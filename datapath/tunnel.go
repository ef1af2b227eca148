package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/model/constants"
)

// TunnelKind is an encapsulation.
type TunnelKind uint8

// The kinds.
const (
	EGRE  = TunnelKind(objectTunnelKindTUNNEL_EGRE)  // Ethernet over GRE with a key: RFC 2784, RFC 2890
	VXLAN = TunnelKind(objectTunnelKindTUNNEL_VXLAN) // RFC 7348
)

// String is the kind's name in messages.
func (k TunnelKind) String() string {
	switch k {
	case EGRE:
		return "egre"
	case VXLAN:
		return "vxlan"
	default:
		return fmt.Sprintf("tunnel kind %d", uint8(k))
	}
}

// Tunnel leads from a port to another machine. Kind, key and addresses are its name: outer packets that say so, and
// no others, are its own.
type Tunnel struct {
	Kind  TunnelKind
	Key   uint32     // GRE key, or VNI
	Local netip.Addr // of this machine
	Peer  netip.Addr // of the other one, of the same family
	TTL   uint8      // of outer packets; 0: 64; below 255
	DSCP  bool       // outer packets have the inner packet's DSCP; else 0

	// StormControl is how many frames to groups, broadcast and multicast, go into it in a second; 0: as many as
	// come.
	StormControl int

	// CountsMet says that the TTL of outer packets is 255, less the packet programs that the frame has met, and
	// that this is believed of what comes. Both ends are to say so.
	CountsMet bool
}

// Numbers of protocols.
const (
	defaultTTL    = 64
	countingTTL   = 255 // COUNTING_TTL in bpf/outer.h
	greKeyPresent = 0x2000
	maxVNI        = 1<<24 - 1

	ip4Length, ip6Length = 20, 40
)

// check says what makes it no tunnel.
func (t Tunnel) check() error {
	switch {
	case t.Kind != EGRE && t.Kind != VXLAN:
		return fmt.Errorf("there is no %v", t.Kind)
	case t.Kind == VXLAN && t.Key > maxVNI:
		return fmt.Errorf("VNI %d is above %d", t.Key, maxVNI)
	case !t.Local.IsValid() || !t.Peer.IsValid() || t.Local.Unmap().Is4() != t.Peer.Unmap().Is4():
		return fmt.Errorf("%v and %v are no two addresses of one family", t.Local, t.Peer)
	case t.TTL == countingTTL || t.TTL != 0 && t.CountsMet:
		return errors.New("a TTL that counts packet programs")
	case t.StormControl < 0 || t.StormControl > int(time.Second):
		return fmt.Errorf("%d frames a second is no bound", t.StormControl)
	case t.Local.Zone() != "" || t.Peer.Zone() != "":
		return fmt.Errorf("%v or %v is link-local", t.Local, t.Peer)
	}
	for _, a := range []netip.Addr{t.Local, t.Peer} {
		if a.IsUnspecified() || a.IsMulticast() {
			return fmt.Errorf("%v is no machine's address", a)
		}
	}
	return nil
}

func (t Tunnel) name() objectTunnel {
	return objectTunnel{Kind: objectTunnelKind(t.Kind), Key: t.Key, Local: t.Local.As16(), Peer: t.Peer.As16()}
}

func (t Tunnel) end() objectEnd {
	return objectEnd{Kind: objectTunnelKind(t.Kind), Local: t.Local.As16()}
}

// encapsulation is the outer header as it is on the wire, but for what each frame decides.
func (t Tunnel) encapsulation() objectEncapsulation {
	h, v6 := t.network()
	if t.Kind == VXLAN {
		h = binary.BigEndian.AppendUint16(h, 0) // the flow decides
		h = binary.BigEndian.AppendUint16(h, constants.VXLANPort)
		h = append(h, 0, 0, 0, 0)
		h = append(h, 1<<3, 0, 0, 0) // the key is valid
		h = binary.BigEndian.AppendUint32(h, t.Key<<8)
	} else {
		h = binary.BigEndian.AppendUint16(h, greKeyPresent)
		h = binary.BigEndian.AppendUint16(h, unix.ETH_P_TEB)
		h = binary.BigEndian.AppendUint32(h, t.Key)
	}
	e := objectEncapsulation{Kind: uint8(t.Kind), Key: t.Key, Length: uint8(len(h)), V6: flag(v6),
		Dscp: flag(t.DSCP), Storm: uint32(t.StormControl)}
	copy(e.Header[:], h)
	return e
}

func (t Tunnel) network() (header []byte, v6 bool) {
	protocol, ttl := byte(unix.IPPROTO_GRE), t.TTL
	if t.Kind == VXLAN {
		protocol = unix.IPPROTO_UDP
	}
	if t.CountsMet {
		ttl = countingTTL
	} else if ttl == 0 {
		ttl = defaultTTL
	}
	local, peer := t.Local.Unmap(), t.Peer.Unmap()
	if local.Is4() {
		const dontFragment = 0x40
		header = []byte{4<<4 | ip4Length/4, 0, 0, 0, 0, 0, dontFragment, 0, ttl, protocol, 0, 0}
	} else {
		header = []byte{6 << 4, 0, 0, 0, 0, 0, protocol, ttl}
	}
	return append(append(header, local.AsSlice()...), peer.AsSlice()...), local.Is6()
}

// tunnelOf reads a tunnel back out of what frames are encapsulated with.
func tunnelOf(e objectEncapsulation) Tunnel {
	t := Tunnel{Kind: TunnelKind(e.Kind), Key: e.Key, DSCP: e.Dscp != 0, StormControl: int(e.Storm)}
	if e.V6 != 0 {
		t.TTL = e.Header[7]
		t.Local, t.Peer = netip.AddrFrom16([16]byte(e.Header[8:])), netip.AddrFrom16([16]byte(e.Header[24:]))
	} else {
		t.TTL = e.Header[8]
		t.Local, t.Peer = netip.AddrFrom4([4]byte(e.Header[12:])), netip.AddrFrom4([4]byte(e.Header[16:]))
	}
	if t.TTL == countingTTL {
		t.TTL, t.CountsMet = 0, true
	}
	return t
}

// TunnelTakenError says that a tunnel of this kind, key, and these addresses begins at another port.
type TunnelTakenError struct{ Port int }

func (e *TunnelTakenError) Error() string { return fmt.Sprintf("the tunnel is port %d's", e.Port) }

// SetTunnel makes a tunnel begin at a port, whose record is External: frames to the port go into the tunnel, and what
// comes out of it enters the port's link. It replaces an older tunnel of the port; a frame that goes into it at that
// very moment may be lost.
func (d *DataPath) SetTunnel(port int, t Tunnel) error {
	if err := d.setTunnel(port, t); err != nil {
		return fmt.Errorf("make a tunnel begin at port %d: %w", port, err)
	}
	return nil
}

func (d *DataPath) setTunnel(port int, t Tunnel) error {
	if err := t.check(); err != nil {
		return err
	}
	if err := d.need(t.needs()); err != nil {
		return err
	}
	d.tunnelling.Lock()
	defer d.tunnelling.Unlock()
	record, ok, err := d.Port(port)
	if err != nil {
		return err
	}
	if !ok || !record.External {
		return errors.New("it has no External record")
	}
	var owner uint32
	err = d.maps.Tunnels.Lookup(t.name(), &owner)
	if err == nil && int(owner) != port {
		return &TunnelTakenError{int(owner)}
	}
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	old, err := d.encapsulation(port)
	if err != nil {
		return err
	}
	// What comes is taken before the other side can know of it; a port of whom nothing more is known loses its
	// names at the next Open.
	err = errors.Join(
		d.maps.Ends.Put(t.end(), uint32(1)),
		d.maps.Tunnels.Put(t.name(), uint32(port)),
		d.meterTunnel(port, t),
		d.maps.Encapsulations.Put(uint32(port), t.encapsulation()),
	)
	if err != nil || old.Kind == 0 || tunnelOf(old).name() == t.name() {
		return err
	}
	return d.removeName(tunnelOf(old))
}

// meterTunnel gives storm control its meter, with a full bucket.
func (d *DataPath) meterTunnel(port int, t Tunnel) error {
	return d.setMeter(uint32(port), meter{frames: uint64(t.StormControl), depth: time.Second}.record())
}

// meterTunnels does so for all tunnels.
func (d *DataPath) meterTunnels() error {
	all, err := d.Tunnels()
	if err != nil {
		return err
	}
	for port, t := range all {
		if err := d.meterTunnel(port, t); err != nil {
			return err
		}
	}
	return nil
}

// DeleteTunnel ends a port's tunnel. It is no error if there is none.
func (d *DataPath) DeleteTunnel(port int) error {
	if port <= 0 || port >= MaxPorts {
		return nil
	}
	d.tunnelling.Lock()
	defer d.tunnelling.Unlock()
	old, err := d.encapsulation(port)
	if err == nil && old.Kind != 0 {
		err = errors.Join(d.removeName(tunnelOf(old)),
			d.maps.Encapsulations.Put(uint32(port), objectEncapsulation{}))
	}
	if err != nil {
		return fmt.Errorf("end the tunnel of port %d: %w", port, err)
	}
	return nil
}

func (d *DataPath) encapsulation(port int) (e objectEncapsulation, err error) {
	return e, d.maps.Encapsulations.Lookup(uint32(port), &e)
}

// removeName makes what comes of a tunnel unknown; and, if it was the last of its kind at its address, the machine's
// own again.
func (d *DataPath) removeName(t Tunnel) error {
	if err := ignoreNotExist(d.maps.Tunnels.Delete(t.name())); err != nil {
		return err
	}
	if used, err := d.isEnd(t.end()); used || err != nil {
		return err
	}
	return ignoreNotExist(d.maps.Ends.Delete(t.end()))
}

// isEnd looks for a tunnel of this kind that ends at this address. Mostly all do: then the first that it meets is one.
func (d *DataPath) isEnd(e objectEnd) (bool, error) {
	var (
		name  objectTunnel
		port  uint32
		names = d.maps.Tunnels.Iterate()
	)
	for names.Next(&name, &port) {
		if name.Kind == e.Kind && name.Local == e.Local {
			return true, nil
		}
	}
	if err := names.Err(); err != nil {
		return false, fmt.Errorf("read tunnels: %w", err)
	}
	return false, nil
}

func ignoreNotExist(err error) error {
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	return err
}

// names reads which port each tunnel is at.
func (d *DataPath) names() (map[objectTunnel]int, error) {
	var (
		name  objectTunnel
		port  uint32
		all   = map[objectTunnel]int{}
		names = d.maps.Tunnels.Iterate()
	)
	for names.Next(&name, &port) {
		all[name] = int(port)
	}
	if err := names.Err(); err != nil {
		return nil, fmt.Errorf("read tunnels: %w", err)
	}
	return all, nil
}

// Tunnels reads all tunnels, by port.
func (d *DataPath) Tunnels() (map[int]Tunnel, error) {
	d.tunnelling.Lock()
	defer d.tunnelling.Unlock()
	names, err := d.names()
	if err != nil {
		return nil, err
	}
	all := make(map[int]Tunnel, len(names))
	for name, port := range names {
		e, err := d.encapsulation(port)
		if err != nil {
			return nil, fmt.Errorf("read tunnel of port %d: %w", port, err)
		}
		if e.Kind != 0 && tunnelOf(e).name() == name {
			all[port] = tunnelOf(e)
		}
	}
	return all, nil
}

// forgetStrays removes what a process that was killed while it changed a tunnel left: names that lead to ports with
// another tunnel, and addresses where none ends, whose packets are the machine's.
func (d *DataPath) forgetStrays() error {
	good, err := d.Tunnels()
	if err != nil {
		return err
	}
	names, err := d.names()
	if err != nil {
		return err
	}
	for name, port := range names {
		if t, ok := good[port]; !ok || t.name() != name {
			if err := ignoreNotExist(d.maps.Tunnels.Delete(name)); err != nil {
				return fmt.Errorf("remove a name that leads to port %d: %w", port, err)
			}
		}
	}
	return d.forgetStrayEnds(good)
}

func (d *DataPath) forgetStrayEnds(good map[int]Tunnel) error {
	used := map[objectEnd]bool{}
	for _, t := range good {
		used[t.end()] = true
	}
	var (
		end   objectEnd
		value uint32
		stray []objectEnd
		ends  = d.maps.Ends.Iterate()
	)
	for ends.Next(&end, &value) {
		if !used[end] {
			stray = append(stray, end)
		}
	}
	if err := ends.Err(); err != nil {
		return fmt.Errorf("read where tunnels end: %w", err)
	}
	for _, end := range stray {
		if err := ignoreNotExist(d.maps.Ends.Delete(end)); err != nil {
			return fmt.Errorf("remove an address where no tunnel ends: %w", err)
		}
	}
	return nil
}

func flag(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}
