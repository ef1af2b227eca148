package mirror

import (
	"net/netip"
	"testing"

	"github.com/pergola-net/pergola/lab/testkit"
)

// What was written before something failed is known to be there, and is taken back when it is not wanted any more.
func TestLabelsThatWereWrittenInPartAreTakenBack(t *testing.T) {
	testkit.Root(t)
	out, err := openFIB(t).NewRouter(1)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{out: out}
	prefix, none := netip.MustParsePrefix("198.51.100.0/24"), netip.Prefix{}
	if err := n.setLabels(Labels{Space: 5, FTNs: map[netip.Prefix]uint32{prefix: 7, none: 8}}); err == nil {
		t.Error("what is no prefix is no error")
	}
	if have := out.Unrouted([]netip.Prefix{prefix}); len(have) != 1 || have[0] != prefix {
		t.Errorf("prefixes with labels: %v", have)
	}
	if err := n.setLabels(Labels{Space: 5}); err != nil {
		t.Error(err)
	}
	if have := out.Unrouted([]netip.Prefix{prefix}); len(have) != 0 {
		t.Errorf("these have labels still: %v", have)
	}
	if err := out.Close(); err != nil {
		t.Error(err)
	}
}
