// Package names reads addresses as people write them.
package names

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/pergola-net/pergola/i3/wire"
)

// Resolve gives the address of a server: an IP address or a name, with a port or without (wire.Port). Of a name's
// addresses it is the first of IPv4, or else the first.
func Resolve(ctx context.Context, text string) (netip.AddrPort, error) {
	host, port, err := split(text)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("read server %q: %w", text, err)
	}
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("find server %q: %w", text, err)
	}
	best := addresses[0].Unmap()
	for _, a := range addresses {
		if a = a.Unmap(); a.Is4() {
			best = a
			break
		}
	}
	return netip.AddrPortFrom(best, port), nil
}

// split separates host and port. An IPv6 address without a port needs no brackets.
func split(text string) (host string, port uint16, err error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return a.String(), wire.Port, nil
	}
	host, number, err := net.SplitHostPort(text)
	if err != nil {
		if text == "" {
			return "", 0, err
		}
		return text, wire.Port, nil // a name: LookupNetIP says whether it is one
	}
	n, err := strconv.ParseUint(number, 10, 16)
	if err != nil || n == 0 {
		return "", 0, fmt.Errorf("%q is no port", number)
	}
	return host, uint16(n), nil
}

// ResolveAll resolves several.
func ResolveAll(ctx context.Context, texts []string) (addresses []netip.AddrPort, err error) {
	for _, text := range texts {
		a, err := Resolve(ctx, text)
		if err != nil {
			return nil, err
		}
		addresses = append(addresses, a)
	}
	return addresses, nil
}
