package server

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// The ports of members, unless --listen names another one: etcd has the two after the API's.
const (
	apiPort        = 7470
	etcdClientPort = 1 // after the API's
	etcdPeerPort   = 2
)

// Values of --listen beside addresses.
const (
	ListenNone = "none" // this machine only
	ListenAuto = "auto" // the first global address of this machine
)

func newMachineID() string { return strings.ToLower(rand.Text()) }

// parseAddress reads ADDRESS, ADDRESS:PORT or [ADDRESS]:PORT.
func parseAddress(flag, text string) (netip.AddrPort, error) {
	if a, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
		return netip.AddrPortFrom(a, apiPort), nil
	}
	a, err := netip.ParseAddrPort(text)
	if err != nil || a.Port() == 0 || a.Port() > 65535-etcdPeerPort {
		return netip.AddrPort{}, fmt.Errorf(
			"%s %q: write ADDRESS or ADDRESS:PORT, such as 192.0.2.1 or [2001:db8::1]:%d", flag,
			text, apiPort)
	}
	return a, nil
}

// portAfter is the address with its port increased by n.
func portAfter(a netip.AddrPort, n uint16) string {
	return netip.AddrPortFrom(a.Addr(), a.Port()+n).String()
}

// addresses gives the address to listen at, and the one that others use for it.
func addresses(listen, advertise string) (at, called netip.AddrPort, err error) {
	if listen == ListenAuto || listen == "" {
		first, err := firstGlobal("")
		if err != nil {
			return at, called, fmt.Errorf("find an address to listen at: %w: "+
				"name one (--listen ADDRESS), or --listen %s for this machine alone", err, ListenNone)
		}
		at = netip.AddrPortFrom(first, apiPort)
	} else if at, err = parseAddress("--listen", listen); err != nil {
		return at, called, err
	}
	called = at
	switch {
	case advertise != "":
		if called, err = parseAddress("--advertise", advertise); err != nil {
			return at, called, err
		}
	case at.Addr().IsUnspecified():
		first, err := firstGlobal("")
		if err != nil {
			return at, called, fmt.Errorf("find the address that others reach this machine at: %w: "+
				"name it (--advertise ADDRESS)", err)
		}
		called = netip.AddrPortFrom(first, at.Port())
	}
	return at, called, nil
}

// firstGlobal gives the first global address of an interface, or of this machine: that of the default route, if there
// is one.
func firstGlobal(name string) (netip.Addr, error) {
	if name == "" {
		if a, ok := routed(); ok {
			return a, nil
		}
	}
	all, err := net.Interfaces()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("list interfaces: %w", err)
	}
	for _, i := range all {
		if name != "" && i.Name != name || i.Flags&net.FlagUp == 0 || i.Flags&net.FlagLoopback != 0 {
			continue
		}
		assigned, err := i.Addrs()
		if err != nil {
			return netip.Addr{}, fmt.Errorf("list addresses of %s: %w", i.Name, err)
		}
		for _, a := range assigned {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().IsGlobalUnicast() {
				return p.Addr().Unmap(), nil
			}
		}
	}
	if name != "" {
		return netip.Addr{}, fmt.Errorf("interface %s is not up, or has no global address", name)
	}
	return netip.Addr{}, errors.New("this machine has no global address")
}

// routed asks the kernel for the source address of packets to the internet. Nothing is sent.
func routed() (netip.Addr, bool) {
	to := net.JoinHostPort("192.0.2.1", strconv.Itoa(apiPort))
	c, err := net.Dial("udp", to) //nolint:noctx // UDP: nothing is sent
	if err != nil {
		return netip.Addr{}, false
	}
	defer c.Close()
	local, ok := c.LocalAddr().(*net.UDPAddr)
	if !ok {
		return netip.Addr{}, false
	}
	a, ok := netip.AddrFromSlice(local.IP)
	a = a.Unmap()
	return a, ok && a.IsGlobalUnicast()
}

// tunnelEnd is where the tunnels of this machine end: at the address that others use, or at that of the first underlay
// interface.
func tunnelEnd(called netip.Addr, underlay []string) (netip.Addr, error) {
	if len(underlay) == 0 {
		return called, nil
	}
	for _, name := range underlay {
		i, err := net.InterfaceByName(name)
		if err != nil {
			return netip.Addr{}, fmt.Errorf("use %s for tunnels: %w", name, err)
		}
		assigned, err := i.Addrs()
		if err != nil {
			return netip.Addr{}, fmt.Errorf("use %s for tunnels: %w", name, err)
		}
		for _, a := range assigned {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Unmap() == called {
				return called, nil
			}
		}
	}
	return firstGlobal(underlay[0])
}

// assigned reports whether an address to listen at is still one of this machine.
func assigned(listen string) bool {
	at, err := netip.ParseAddrPort(listen)
	if err != nil || at.Addr().IsUnspecified() || at.Addr().IsLoopback() {
		return err == nil
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return true // unknown: to listen will fail if it is not
	}
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Unmap() == at.Addr().Unmap() {
			return true
		}
	}
	return false
}
