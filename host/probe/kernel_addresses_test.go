package probe

import (
	"net/netip"
	"testing"

	"github.com/pergola-net/pergola/model/slice"
)

func TestOfANodeWithManyAddressesTheFirstOnesAreTold(t *testing.T) {
	many := Interface{Name: "lo", Addresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8")}}
	for i := range 2 * mostAddresses {
		at := netip.AddrFrom4([4]byte{198, 51, byte(i / 256), byte(i)})
		many.Addresses = append(many.Addresses, netip.PrefixFrom(at, 32))
	}
	got := reachable(&slice.Node{Name: "a"}, []Interface{many})
	if len(got) != mostAddresses || got[0] != many.Addresses[1].Addr() {
		t.Errorf("%d addresses are told, from %v on", len(got), got[0])
	}
}
