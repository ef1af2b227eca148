package outside

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/model/unit"
)

const (
	leastBurst = 4 * 1514 // bytes
	superFrame = 64 << 10 // bytes: as the kernel hands over what a process writes to TCP
	waits      = 50       // milliseconds of what waits, beside a super-frame
)

// burst is the bytes that pass at once: those of 20 milliseconds. Super-frames that are longer are cut.
func burst(rate unit.Rate) uint32 { return uint32(max(rate.BytesPerSecond()/50, leastBurst)) }

// shape makes both ends of a pair send no faster than the node's rate. The sliver's end smooths what the sliver sends;
// as the sliver can change it, the table drops what is beyond the rate nevertheless (policers).
func (d device) shape(pid int) error {
	if err := setRate(d.name(), d.node.Rate); err != nil {
		return err
	}
	return in(pid, func() error { return setRate(Inner, d.node.Rate) })
}

// setRate gives a device a token bucket, in place of what it has; 0: none.
func setRate(name string, rate unit.Rate) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find device %s: %w", name, err)
	}
	root := netlink.QdiscAttrs{
		LinkIndex: l.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT,
	}
	if rate == 0 {
		err = netlink.QdiscDel(&netlink.Tbf{QdiscAttrs: root})
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) { // it has none
			err = nil
		}
	} else {
		bytes := rate.BytesPerSecond()
		err = netlink.QdiscReplace(&netlink.Tbf{
			QdiscAttrs: root, Rate: bytes, Buffer: netlink.Xmittime(bytes, burst(rate)),
			Limit: burst(rate) + superFrame + uint32(bytes*waits/1000),
		})
	}
	if err != nil {
		return fmt.Errorf("shape device %s to %s: %w", name, rate, err)
	}
	return nil
}
