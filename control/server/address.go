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

// The ports that members speak at, unless --listen names another one: then etcd has the two after it.
const (
	apiPort        = 7470
	etcdClientPort = 1 // after the API's
	etcdPeerPort   = 2
)

// What --listen may say beside an address.
const (
	ListenNone = "none" // nobody but this machine
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
		return netip.AddrPort{}, fmt.Errorf("%s %q: write ADDRESS or ADDRESS:PORT, such as 192.0.2.1 or [2001:db8::1]:%d", flag, text, apiPort)
	}
	return a, nil
}

// after is the address n ports further.
func after(a netip.AddrPort, n uint16) string {
	return netip.AddrPortFrom(a.Addr(), a.Port()+n).String()
}

// addresses finds where to listen, and where others reach that.
func addresses(listen, advertise string) (at, called netip.AddrPort, err error) {
	if listen == ListenAuto || listen == "" {
		first, err := firstGlobal("")
		if err != nil {
			return at, called, fmt.Errorf("find an address to listen at: %w: name one (--listen ADDRESS), or --listen %s for this machine alone", err, ListenNone)
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
			return at, called, fmt.Errorf("find the address that others reach this machine at: %w: name it (--advertise ADDRESS)", err)
		}
		called = netip.AddrPortFrom(first, at.Port())
	}
	return at, called, nil
}

// firstGlobal gives the first global address of an interface, or of this machine: then that of the default route, if there is one.
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

// routed asks the kernel for the address that it would send from to the world. Nothing is sent.
func routed() (netip.Addr, bool) {
	c, err := net.Dial("udp", net.JoinHostPort("192.0.2.1", strconv.Itoa(apiPort))) //nolint:noctx // it connects to nobody
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

// tunnelEnd is where the tunnels of this machine end: the address that others call, or that of the first interface that is to carry them.
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

// assigned reports whether an address that was listened at is one of this machine still.
func assigned(listen string) bool {
	at, err := netip.ParseAddrPort(listen)
	if err != nil || at.Addr().IsUnspecified() || at.Addr().IsLoopback() {
		return err == nil
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return true // nobody knows: listening will tell
	}
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Unmap() == at.Addr().Unmap() {
			return true
		}
	}
	return false
}
