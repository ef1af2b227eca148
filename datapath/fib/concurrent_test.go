package fib

import (
	"net/netip"
	"sync"
	"testing"
)

// For the race detector, and for what routers share.
func TestManyRoutersAtOnce(t *testing.T) {
	p := newPlain()
	f := p.open(t)
	var all sync.WaitGroup
	for number := range 8 {
		all.Go(func() {
			for range 3 {
				r, err := f.NewRouter(uint32(number % 2))
				if err != nil {
					t.Error(err)
					return
				}
				if err := busy(r, 1+number); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	empty(t, p, f)
}

func busy(r *Router, port int) error {
	gateway := netip.AddrFrom4([4]byte{10, 0, 0, byte(port)})
	route := Route{Kind: Unicast, Paths: []Path{{Port: port, Gateway: gateway}, {Port: port}}}
	for _, err := range []error{
		r.SetLeg(port, Leg{Up: true}), r.SetAddress(gateway.Next()), r.SetNeighbour(port, gateway,
			Neighbour{MAC: [6]byte{2}}), r.Enable(true, true),
	} {
		if err != nil {
			return err
		}
	}
	for i := range 2000 {
		prefix := netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(i % 7), byte(i % 31), byte(i), byte(port)}),
			8+i%25)
		if err := r.SetRoute(prefix, route); err != nil {
			return err
		}
		if i%3 == 0 {
			if err := r.DeleteRoute(prefix); err != nil {
				return err
			}
		}
		r.Lookup(prefix.Addr())
		r.fib.Usage()
	}
	return r.Close()
}
