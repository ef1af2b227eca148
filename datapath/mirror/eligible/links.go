package eligible

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/rtnl"
)

// extMask asks for links without their statistics (RTEXT_FILTER_SKIP_STATS): they are most of the answer.
const extMask = 1 << 3

// takers are kinds of devices that see the frames of the device below them before its IP stack does (rx_handler),
// although that is not enslaved to them.
var takers = map[string]bool{"macvlan": true, "macvtap": true, "ipvlan": true, "ipvtap": true, "macsec": true}

// link is a network device.
type link struct {
	index, master, lower int
	name, kind           string
	elsewhere            bool // lower is an index of another namespace
	xdp                  bool
}

func lookAtLinks(v *visit) (Verdict, error) {
	header := make([]byte, unix.SizeofIfInfomsg)
	ask := rtnl.Request(unix.RTM_GETLINK, unix.NLM_F_DUMP, header, rtnl.U32(unix.IFLA_EXT_MASK, extMask))
	var links []link
	err := v.route(ask, func(data []byte) error {
		l, err := parseLink(data)
		links = append(links, l)
		return err
	})
	if err != nil {
		return Verdict{}, err
	}
	v.node.name(links)
	return judgeLinks(links), nil
}

func judgeLinks(links []link) Verdict {
	byIndex := map[int]link{}
	for _, l := range links {
		byIndex[l.index] = l
	}
	var verdict Verdict
	for _, l := range links {
		if m, ok := byIndex[l.master]; ok {
			verdict.both("%s belongs to %s %s", l.name, m.kind, m.name)
		} else if l.master != 0 {
			verdict.both("%s belongs to another interface", l.name)
		}
		if l.kind == "vrf" {
			verdict.both("%s is a VRF", l.name)
		}
		if l.xdp {
			verdict.both("XDP program on %s", l.name)
		}
		if below, ok := byIndex[l.lower]; ok && takers[l.kind] && !l.elsewhere {
			verdict.both("%s %s takes frames of %s", l.kind, l.name, below.name)
		}
	}
	return verdict
}

func parseLink(data []byte) (link, error) {
	if len(data) < unix.SizeofIfInfomsg {
		return link{}, fmt.Errorf("read link: %w", unix.EBADMSG)
	}
	l := link{index: int(int32(byteOrder.Uint32(data[4:])))}
	err := attributes(data, unix.SizeofIfInfomsg, func(a *rtnl.Attrs) {
		switch a.Kind {
		case unix.IFLA_IFNAME:
			l.name = a.Text()
		case unix.IFLA_MASTER:
			l.master = int(a.U32())
		case unix.IFLA_LINK:
			l.lower = int(a.U32())
		case unix.IFLA_LINK_NETNSID:
			l.elsewhere = true
		case unix.IFLA_LINKINFO:
			a.Inside(unix.IFLA_INFO_KIND, func(a *rtnl.Attrs) { l.kind = a.Text() })
		case unix.IFLA_XDP:
			a.Inside(unix.IFLA_XDP_ATTACHED, func(a *rtnl.Attrs) { l.xdp = a.U8() != 0 })
		}
	})
	return l, err
}
