package client

import (
	"fmt"
	"net"
	"net/netip"
	"time"
)

// look is how often the client looks whether this machine's address has changed.
const look = time.Second

// follow moves the client when the address changes from which this machine sends to a gateway.
func (c *Client) follow() {
	defer c.loops.Done()
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for {
		select {
		case <-c.closed:
			return
		case <-ticker.C:
		}
		c.mu.Lock()
		local := c.options.Local
		now := localOf(c.conn).Addr()
		way, err := c.way()
		c.mu.Unlock()
		// An error means that there is no way to any gateway now.
		if !local.Addr().IsValid() && err == nil && way != now {
			_ = c.Move(local) // if it fails, the next turn tries again
		}
	}
}

// way gives the address from which this machine sends to a gateway, and makes that gateway the one that is used: the
// first one to which the way leads through an interface that is up and has a carrier, or else the first one to which
// there is a way; c.mu is held.
func (c *Client) way() (netip.Addr, error) {
	var fallback netip.Addr
	var failed error
	running := addresses()
	for range c.options.Gateways {
		a, err := source(c.keeper.Gateway())
		switch {
		case err != nil:
			failed = err
		case running[a]:
			return a, nil
		case !fallback.IsValid():
			fallback = a
		}
		c.keeper.NextGateway()
	}
	if fallback.IsValid() {
		return fallback, nil
	}
	return netip.Addr{}, failed
}

// source gives the address from which this machine sends to another one.
func source(to netip.AddrPort) (netip.Addr, error) {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		return netip.Addr{}, fmt.Errorf("find the way to gateway %s: %w", to, err)
	}
	a := conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
	return a, conn.Close()
}

// addresses gives the addresses of interfaces that are up and have a carrier: the kernel may still have routes through
// others.
func addresses() map[netip.Addr]bool {
	running := make(map[netip.Addr]bool)
	interfaces, err := net.Interfaces()
	if err != nil {
		return running
	}
	for _, i := range interfaces {
		if i.Flags&net.FlagUp == 0 || i.Flags&net.FlagRunning == 0 {
			continue
		}
		list, err := i.Addrs()
		if err != nil {
			continue // the interface has just gone
		}
		for _, one := range list {
			if p, err := netip.ParsePrefix(one.String()); err == nil {
				running[p.Addr().Unmap()] = true
			}
		}
	}
	return running
}
