package sliver

import (
	"net/netip"
	"strings"
	"testing"
)

const routesFile = `Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT
eth1 00000000 016433C6 0003 0 0 0 00000000 0 0 0
eth1 006433C6 00000000 0001 0 0 0 00FFFFFF 0 0 0
eth2 00000000 017100CB 0003 0 0 100 00000000 0 0 0
eth2 807100CB 00000000 0001 0 0 0 80FFFFFF 0 0 0
* 000200C0 00000000 0201 0 0 0 00FFFFFF 0 0 0
`

// The bytes of addresses in the file are those of a little-endian machine.
func TestRoutesAreThoseOfTheLongestPrefix(t *testing.T) {
	if addr4(1) != netip.MustParseAddr("1.0.0.0") {
		t.Skip("the file is of a little-endian machine")
	}
	all, err := readRoutes(strings.NewReader(routesFile))
	if err != nil {
		t.Fatal(err)
	}
	for to, want := range map[string]string{
		"198.51.100.7":  "eth1 198.51.100.7",
		"203.0.113.200": "eth2 203.0.113.200",
		"203.0.113.7":   "eth1 198.51.100.1", // of two default routes, the one with the lower metric
		"192.0.2.1":     "nowhere",           // RTF_REJECT
	} {
		got := "nowhere"
		if device, hop, ok := all.to(netip.MustParseAddr(to)); ok {
			got = device + " " + hop.String()
		}
		if got != want {
			t.Errorf("%s goes by %s, want %s", to, got, want)
		}
	}
	if _, _, ok := (routes{}).to(netip.MustParseAddr("192.0.2.1")); ok {
		t.Error("an empty table has a route")
	}
}

const neighborsFile = `IP address       HW type     Flags       HW address            Mask     Device
198.51.100.1     0x1         0x2         02:00:00:00:00:01     *        eth1
198.51.100.2     0x1         0x0         00:00:00:00:00:00     *        eth1
198.51.100.3     0x20        0x2         80:00:02:08:fe:80:00:00:00:00:00:00:f4:52:14:03:00:7b:cb:a1 * ib0
`

func TestNeighborsAreThoseThatAreResolved(t *testing.T) {
	all, err := readNeighbors(strings.NewReader(neighborsFile))
	if err != nil {
		t.Fatal(err)
	}
	mac, ok := all[neighbor{"eth1", netip.MustParseAddr("198.51.100.1")}]
	if len(all) != 1 || !ok || mac[5] != 1 {
		t.Errorf("neighbors: %v", all)
	}
}

func TestFilesOfTheKernelThatMakeNoSenseAreErrors(t *testing.T) {
	for _, text := range []string{"x\neth1 0\n", "x\neth1 x 0 1 0 0 0 0 0 0 0\n",
		"x\neth1 1 0 1 0 0 0 999999999 0 0 0\n"} {
		if all, err := readRoutes(strings.NewReader(text)); err == nil {
			t.Errorf("%q is read as %v", text, all)
		}
	}
	for _, text := range []string{"x\n192.0.2.1\n", "x\nx 0x1 0x2 02:00:00:00:00:01 * eth1\n",
		"x\n192.0.2.1 0x1 y 02:00:00:00:00:01 * eth1\n"} {
		if all, err := readNeighbors(strings.NewReader(text)); err == nil {
			t.Errorf("%q is read as %v", text, all)
		}
	}
}
