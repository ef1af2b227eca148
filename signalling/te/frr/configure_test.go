package frr_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/pergola-net/pergola/signalling/te"
	"github.com/pergola-net/pergola/signalling/te/frr"
)

func TestLinkTellsWhatIsNew(t *testing.T) {
	first := te.Link{Bandwidth: 125_000_000, Reservable: 100_000_000, TEMetric: 20, Groups: 5}
	for p := range first.Unreserved {
		first.Unreserved[p] = 100_000_000
	}
	less := first
	less.Unreserved[6], less.Unreserved[7] = 16_777_217, 0
	plain := first
	plain.TEMetric, plain.Groups = 0, 0
	smaller := less
	smaller.Bandwidth = 50_000_000
	const zeros = "max-rsv-bw 0|unrsv-bw 0 0|unrsv-bw 1 0|unrsv-bw 2 0|unrsv-bw 3 0|unrsv-bw 4 0|unrsv-bw 5 0|" +
		"unrsv-bw 6 0|unrsv-bw 7 0|"
	for name, c := range map[string]struct {
		told *te.Link
		is   te.Link
		want string
	}{
		"for the first time": {nil, first, "enable|" + zeros + "max-bw 1.25e+08|max-rsv-bw 1e+08|" +
			"unrsv-bw 0 1e+08|unrsv-bw 1 1e+08|unrsv-bw 2 1e+08|unrsv-bw 3 1e+08|unrsv-bw 4 1e+08|" +
			"unrsv-bw 5 1e+08|unrsv-bw 6 1e+08|unrsv-bw 7 1e+08|metric 20|admin-grp 0x5"},
		"nothing":                      {&first, first, ""},
		"what is reserved, never less": {&first, less, "unrsv-bw 6 1.6777216e+07|unrsv-bw 7 0"},
		"what is released":             {&less, first, "unrsv-bw 6 1e+08|unrsv-bw 7 1e+08"},
		"metric and groups":            {&first, plain, "no metric|no admin-grp"},
		"a smaller link": {&less, smaller, zeros + "max-bw 5e+07|max-rsv-bw 5e+07|unrsv-bw 0 5e+07|" +
			"unrsv-bw 1 5e+07|unrsv-bw 2 5e+07|unrsv-bw 3 5e+07|unrsv-bw 4 5e+07|unrsv-bw 5 5e+07|" +
			"unrsv-bw 6 1.6777216e+07"},
		"without bandwidth, from the first time": {nil, te.Link{}, "no enable"},
		"without bandwidth any more":             {&first, te.Link{}, "no enable"},
		"without bandwidth, as before":           {&te.Link{}, te.Link{}, ""},
		"with bandwidth again": {&te.Link{}, smaller, "enable|" + zeros + "max-bw 5e+07|max-rsv-bw 5e+07|" +
			"unrsv-bw 0 5e+07|unrsv-bw 1 5e+07|unrsv-bw 2 5e+07|unrsv-bw 3 5e+07|unrsv-bw 4 5e+07|" +
			"unrsv-bw 5 5e+07|unrsv-bw 6 1.6777216e+07|metric 20|admin-grp 0x5"},
	} {
		lines := frr.Link("eth1", c.told, c.is)
		want := []string(nil)
		if c.want != "" {
			want = slices.Concat([]string{"interface eth1", "link-params"}, strings.Split(c.want, "|"),
				[]string{"exit-link-params", "exit"})
		}
		if !slices.Equal(lines, want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(lines, "|"), strings.Join(want, "|"))
		}
	}
}

func TestProtocolsAreToldToFlood(t *testing.T) {
	a := netip.MustParseAddr("192.0.2.1")
	if got, want := strings.Join(frr.OSPF(a), "|"),
		"router ospf|capability opaque|mpls-te on|mpls-te router-address 192.0.2.1|exit"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := strings.Join(frr.ISIS("TE", a), "|"),
		"router isis TE|mpls-te on|mpls-te router-address 192.0.2.1|exit"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
