package eligible

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/rtnl"
)

// Of linux/rtnetlink.h and linux/pkt_sched.h: struct tcmsg, and handles, whose upper half is the qdisc.
const (
	tcHeader  = 20
	tcRoot    = 0xffffffff
	tcIngress = 0xfffffff1 // clsact too
	tcMajor   = 0xffff0000
)

// qdisc is a queueing discipline.
type qdisc struct {
	device         int
	handle, parent uint32
	kind           string
}

func lookAtQdiscs(v *visit) (Verdict, error) {
	var verdict Verdict
	err := v.route(rtnl.Request(unix.RTM_GETQDISC, unix.NLM_F_DUMP, make([]byte, tcHeader)),
		func(data []byte) error {
			q, err := parseQdisc(data)
			if err == nil && q.matters() {
				verdict.both("qdisc %s on %s", q.kind, v.node.nameOf(q.device))
			}
			return err
		})
	return verdict, err
}

// matters reports whether somebody put the qdisc there: those that the kernel gives an interface by itself have no
// handle, and filters cannot be attached to them. Of a tree the root speaks for all.
func (q qdisc) matters() bool {
	byHand := q.handle&tcMajor != 0 && q.kind != "noqueue"
	top := q.parent == tcRoot || q.parent == tcIngress || q.parent&tcMajor == 0
	return byHand && top
}

func parseQdisc(data []byte) (qdisc, error) {
	if len(data) < tcHeader {
		return qdisc{}, fmt.Errorf("read qdisc: %w", unix.EBADMSG)
	}
	q := qdisc{
		device: int(int32(byteOrder.Uint32(data[4:]))),
		handle: byteOrder.Uint32(data[8:]),
		parent: byteOrder.Uint32(data[12:]),
	}
	err := attributes(data, tcHeader, func(a *rtnl.Attrs) {
		if a.Kind == unix.TCA_KIND {
			q.kind = a.Text()
		}
	})
	return q, err
}
