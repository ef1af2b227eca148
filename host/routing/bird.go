package routing

import (
	"errors"
	"fmt"
	"strings"

	"github.com/pergola-net/pergola/model/slice"
)

const (
	birdDir  = "/etc/bird"
	birdConf = birdDir + "/bird.conf"
)

// errISIS is what an IS-IS router on BIRD gets.
var errISIS = errors.New("run IS-IS on BIRD: BIRD has no IS-IS; use daemon frr")

// renderBIRD writes bird.conf. BIRD stays in the foreground and logs to its standard error.
func renderBIRD(v view) (Rendered, error) {
	files := v.node.Routing.Config
	if len(files) == 0 {
		if v.node.Routing.Speaks(slice.ISIS) {
			return Rendered{}, errISIS
		}
		files = map[string][]byte{"bird.conf": birdConfig(v)}
	}
	if _, ok := files["bird.conf"]; !ok {
		return Rendered{}, errors.New("use the given configuration: BIRD needs a file bird.conf")
	}
	all, err := filesIn(birdDir, files)
	if err != nil {
		return Rendered{}, err
	}
	return Rendered{
		Files:   all,
		Command: []string{"/bin/sh", "-c", "mkdir -p /run/bird && exec bird -f -c " + birdConf},
		Reload: [][]string{
			// birdc reports a refused configuration in words alone: bird itself has an exit status for it.
			{"bird", "-p", "-c", birdConf},
			{"birdc", "configure"},
		},
	}, nil
}

// birdConfig writes bird.conf.
func birdConfig(v view) []byte {
	r := v.node.Routing
	t := &text{step: "\t"}
	t.line("log stderr all;")
	t.line("router id %s;", r.RouterID)
	t.line("")
	t.line("protocol device {}")
	t.line("")
	t.block("protocol direct {", "}", func() {
		t.line("ipv4;")
		t.line("ipv6;")
	})
	for _, ipv6 := range []bool{false, true} {
		if !v.speaks(ipv6) {
			continue
		}
		birdKernel(t, ipv6)
		birdStatic(t, r.Static, ipv6)
		if r.Speaks(slice.OSPF) {
			birdOSPF(t, v, ipv6)
		}
		if r.Speaks(slice.RIP) {
			birdRIP(t, v, ipv6)
		}
		if r.Speaks(slice.BGP) && r.BGP != nil {
			birdBGP(t, v, ipv6)
		}
	}
	return t.buf.Bytes()
}

// family names an address family as BIRD does: the channel, and the suffix of protocol names.
func family(ipv6 bool) (channel, suffix string) {
	if ipv6 {
		return "ipv6", "6"
	}
	return "ipv4", "4"
}

// birdProtocol writes one protocol.
func birdProtocol(t *text, head string, body func()) { t.block("\nprotocol "+head+" {", "}", body) }

// birdKernel installs what the protocols find. Interface routes are the kernel's own already, and what BGP merely
// originates leads nowhere.
func birdKernel(t *text, ipv6 bool) {
	channel, suffix := family(ipv6)
	birdProtocol(t, "kernel kernel"+suffix, func() {
		// A route that the kernel refused, as while a link comes up, is tried again at the next scan: not in
		// BIRD's 60 s.
		t.line("scan time 10;")
		t.line("merge paths on limit %d;", frrPaths)
		t.block(channel+" {", "};", func() {
			t.line(`export where source != RTS_DEVICE && proto != "originated%s";`, suffix)
		})
	})
}

// birdStatic writes the static routes of a family.
func birdStatic(t *text, routes []slice.Route, ipv6 bool) {
	channel, suffix := family(ipv6)
	lines := []string{}
	for _, r := range routes {
		if r.To.Addr().Is6() != ipv6 {
			continue
		}
		hop := fmt.Sprintf("via %q", r.Interface)
		switch {
		case r.Blackhole:
			hop = "blackhole"
		case r.Via.IsValid() && r.Interface != "":
			hop = fmt.Sprintf("via %s dev %q", r.Via, r.Interface)
		case r.Via.IsValid():
			hop = "via " + r.Via.String()
		}
		lines = append(lines, fmt.Sprintf("route %s %s;", r.To.Masked(), hop))
	}
	if len(lines) == 0 {
		return
	}
	birdProtocol(t, "static static"+suffix, func() {
		t.line("%s;", channel)
		for _, l := range lines {
			t.line("%s", l)
		}
	})
}

// birdSet writes prefixes as a set.
func birdSet[T fmt.Stringer](all []T) string {
	words := make([]string, len(all))
	for i, p := range all {
		words[i] = p.String()
	}
	return "[ " + strings.Join(words, ", ") + " ]"
}
