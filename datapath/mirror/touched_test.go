package mirror

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

func neighbourMessage(kind uint16, link byte, addr netip.Addr, mac byte) message {
	b := make([]byte, unix.SizeofNdMsg)
	b[0], b[4], b[8] = unix.AF_INET, link, unix.NUD_REACHABLE
	b = append(b, attribute(unix.NDA_DST, addr.AsSlice())...)
	return netlinkMessage(kind, 0, append(b, attribute(unix.NDA_LLADDR, []byte{2, 0, 0, 0, 0, mac})...))
}

// What an event has told of a neighbour or an address, an older word of the dump does not undo.
func TestAnEventOvertakesTheDump(t *testing.T) {
	told := newMemory()
	v := newView(told, map[int]int{1: 101})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	moved, gone, calm := netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.3"), netip.MustParseAddr("10.0.0.4")
	for range 2 { // from nothing, and from what was known
		v.begin()
		must(v.tell(addressMessage(unix.RTM_DELADDR, 1, gone), partAddresses))
		must(v.confirm(addressMessage(unix.RTM_NEWADDR, 1, gone)))
		must(v.sweep(partAddresses))
		must(v.tell(neighbourMessage(unix.RTM_NEWNEIGH, 1, moved, 9), partNeighbours))
		must(v.tell(neighbourMessage(unix.RTM_DELNEIGH, 1, gone, 1), partNeighbours))
		for i, addr := range []netip.Addr{moved, gone, calm} {
			must(v.confirm(neighbourMessage(unix.RTM_NEWNEIGH, 1, addr, byte(i))))
		}
		must(v.sweep(partNeighbours))
		must(v.end())
		if n := told.neighbours; len(n) != 2 || n[neighbourKey{101, moved}].MAC[5] != 9 || n[neighbourKey{101, calm}].MAC[5] != 2 {
			t.Errorf("neighbours %v", n)
		}
		if len(told.addresses) != 0 {
			t.Errorf("addresses %v", told.addresses)
		}
		must(v.tell(neighbourMessage(unix.RTM_NEWNEIGH, 1, gone, 1), parts))
	}
}
