package path

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os/exec"

	"github.com/pergola-net/pergola/bench/traffic"
)

// repeat gives a generator one destination.
func repeat(a netip.Addr) []netip.Addr { return []netip.Addr{a} }

// addTables adds routers with few and with many routes.
func (b *bench) addTables(ctx context.Context, makers ...nicMaker) error {
	networks := []Network{Fast, Plain}
	for _, routes := range []int{Few, Many} {
		table := newTable(routes)
		for i, m := range makers {
			b.Progress(fmt.Sprintf("building a router with %d routes (%s)", routes, networks[i]), 0, 0)
			c, err := m.nics(ctx, 1)
			if err != nil {
				return err
			}
			b.undo.Push(c.Close)
			if err := c.ready(ctx); err != nil {
				return err
			}
			if err := c.install(ctx, table); err != nil {
				return err
			}
			p, err := nicProbe(Key{Measure: NIC, Network: networks[i], Routers: 1, Routes: routes}, c,
				destinations(table))
			if err != nil {
				return err
			}
			if err := b.addProbe(ctx, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// newTable makes different prefixes, of lengths as they are in the Internet's table (about; of 100 routes 60 are a
// /24) but anywhere in the unicast space: the Internet's lie closer together, so for caches this is worse.
func newTable(routes int) []netip.Prefix {
	shares := []struct{ bits, percent int }{{24, 60}, {22, 12}, {23, 10}, {21, 5}, {20, 5}, {19, 3}, {16, 2},
		{18, 2}, {17, 1}}
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same table each time
	known := make(map[netip.Prefix]bool, routes)
	table := make([]netip.Prefix, 0, routes)
	for len(table) < routes {
		bits, at := 0, random.IntN(100)
		for _, s := range shares {
			if at -= s.percent; at < 0 {
				bits = s.bits
				break
			}
		}
		p := netip.PrefixFrom(fromUint32(random.Uint32()), bits).Masked()
		if known[p] || !routable(p) {
			continue
		}
		known[p] = true
		table = append(table, p)
	}
	return table
}

// routable: unicast, and nothing that the chain itself or a kernel has other ideas of.
func routable(p netip.Prefix) bool {
	first := p.Addr().As4()[0]
	return first >= 1 && first < 224 && first != 127 && first != 169 && first != 198
}

// destinations are spread over a table: each is an address in some route. There are as many for a small table as for
// a large one, so that the generator has the same work.
func destinations(table []netip.Prefix) []netip.Addr {
	random := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // the same each time
	all := make([]netip.Addr, traffic.MaxDestinations)
	for i := range all {
		p := table[random.IntN(len(table))]
		b := p.Addr().As4()
		host := random.Uint32() & (1<<(32-p.Bits()) - 1)
		all[i] = fromUint32(binary.BigEndian.Uint32(b[:]) | host)
	}
	return all
}

func fromUint32(n uint32) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], n)
	return netip.AddrFrom4(b)
}

// install gives the first router a table that leads to the right host.
func (c *Chain) install(ctx context.Context, table []netip.Prefix) error {
	var batch, complaint bytes.Buffer
	for _, p := range table {
		fmt.Fprintf(&batch, "route add %s via %s\n", p, address(1, 1))
	}
	cmd := exec.CommandContext(ctx, "ip", "-batch", "-")
	cmd.Stdin, cmd.Stderr = &batch, &complaint
	err := in(c.First, cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return fmt.Errorf("add %d routes: %w: %s", len(table), err, bytes.TrimSpace(complaint.Bytes()))
	}
	if c.settle == nil {
		return nil
	}
	return errors.Join(c.settle(ctx), ctx.Err())
}
