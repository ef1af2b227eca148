package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/kernel/rtnl"
)

// device is what we read of a network device.
type device struct {
	index  int
	name   string
	kind   string // veth, bridge, ...; empty for lo
	up     bool
	passes bool // frames pass: the operational state is up (RFC 2863)
	loop   bool // lo
	ether  bool // an Ethernet interface
	rawIP  bool // carries IP packets without a link-layer header: WireGuard, tun, ipip
	mtu    int
	master int // ifindex of its bridge, or 0
	peer   int // ifindex of a veth's other end, in the namespace peerNS
	peerNS int // of a veth's other end: the namespace, by its number in this one (ip-netns(8)); sameNS: this one
	group  uint32
	qdisc  string // kind of the root qdisc
	mark   mark
	was    *earlier // what a mark of an earlier version says besides; nil: it is one of today
	marked bool     // complete, and ours
	rx, tx datapath.Traffic
	xdp    uint32 // id of the program of XDP; 0: there is none

	segments uint32 // that a super-frame which leaves may stand for; it is cut otherwise

	isolated bool // in its bridge: what came in there goes out by no other isolated device
}

// sameNS is no number of a namespace: the kernel says none for the one that it is asked in, and for one that ends
// (NETNSA_NSID_NOT_ASSIGNED).
const sameNS = -1

// isIsolated reports whether what represents the device in a bridge is to be isolated: see Tunnel.
func (d device) isIsolated() bool { return d.mark.role == roleTunnel }

// ofOurKind is false for what the kernel puts into every namespace by itself: lo, and fallback devices of tunnels
// (gre0, sit0, ...) once their modules are loaded. They cannot be deleted.
func (d device) ofOurKind() bool { return d.kind == "veth" || d.kind == "bridge" }

// queues reports whether somebody gave the device a qdisc. The kernel gives those of our kinds none: noop until they
// are up for the first time, then noqueue.
func (d device) queues() bool { return d.qdisc != "" && d.qdisc != "noop" && d.qdisc != "noqueue" }

// Bits of IFLA_EXT_MASK (linux/rtnetlink.h).
const skipStats = 1 << 3

// devices reads all devices of the namespace, without statistics.
func (c *conn) devices() ([]device, error) { return c.dumpDevices(skipStats) }

func (c *conn) dumpDevices(mask uint32) ([]device, error) {
	all, err := c.dump(unix.RTM_GETLINK, unix.RTM_NEWLINK, nl.NewIfInfomsg(unix.AF_UNSPEC),
		rtnl.U32(unix.IFLA_EXT_MASK, mask))
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	devices := make([]device, 0, len(all))
	for _, message := range all {
		d, err := parseDevice(message)
		if err != nil {
			return nil, fmt.Errorf("list devices: %w", err)
		}
		devices = append(devices, d)
	}
	return devices, nil
}

// device reads one by its name.
func (c *conn) device(name string) (device, error) {
	d, err := c.readDevice(0, rtnl.String(unix.IFLA_IFNAME, name))
	if err != nil {
		return device{}, fmt.Errorf("find device %s: %w", name, err)
	}
	return d, nil
}

// deviceAt reads one by its index.
func (c *conn) deviceAt(index int) (device, error) {
	d, err := c.readDevice(index)
	if err != nil {
		return device{}, fmt.Errorf("find device %d: %w", index, err)
	}
	return d, nil
}

// statsAt reads one by its index, with statistics.
func (c *conn) statsAt(index int) (device, error) {
	found, err := c.get(unix.RTM_GETLINK, header(index))
	if errors.Is(err, unix.ENODEV) {
		return device{}, ErrNoDevice
	}
	if err != nil {
		return device{}, err
	}
	return parseDevice(found)
}

func (c *conn) readDevice(index int, attrs ...rtnl.Attr) (device, error) {
	attrs = append(attrs, rtnl.U32(unix.IFLA_EXT_MASK, skipStats))
	found, err := c.get(unix.RTM_GETLINK, header(index), attrs...)
	if errors.Is(err, unix.ENODEV) {
		return device{}, ErrNoDevice
	}
	if err != nil {
		return device{}, err
	}
	return parseDevice(found)
}

// parseDevice reads an RTM_NEWLINK.
func parseDevice(message []byte) (device, error) {
	header := nl.DeserializeIfInfomsg(message)
	d := device{index: int(header.Index), up: header.Flags&unix.IFF_UP != 0, peerNS: sameNS}
	switch header.Type {
	case unix.ARPHRD_LOOPBACK:
		d.loop = true
	case unix.ARPHRD_ETHER:
		d.ether = true
	case unix.ARPHRD_NONE, unix.ARPHRD_RAWIP, unix.ARPHRD_TUNNEL, unix.ARPHRD_TUNNEL6, unix.ARPHRD_SIT:
		d.rawIP = true
	}
	attrs := rtnl.Attributes(message[header.Len():])
	for attrs.Next() {
		switch attrs.Kind {
		case unix.IFLA_IFNAME:
			d.name = attrs.Text()
		case unix.IFLA_MTU:
			d.mtu = int(attrs.U32())
		case unix.IFLA_OPERSTATE:
			d.passes = attrs.U8() == operUp
		case unix.IFLA_MASTER:
			d.master = int(attrs.U32())
		case unix.IFLA_GROUP:
			d.group = attrs.U32()
		case unix.IFLA_GSO_MAX_SEGS:
			d.segments = attrs.U32()
		case unix.IFLA_QDISC:
			d.qdisc = attrs.Text()
		case unix.IFLA_LINK:
			d.peer = int(attrs.U32())
		case unix.IFLA_IFALIAS:
			d.mark, d.was, d.marked = parseMark(attrs.Text())
		case unix.IFLA_LINK_NETNSID:
			d.peerNS = int(int32(attrs.U32()))
		case unix.IFLA_LINKINFO:
			attrs.Inside(unix.IFLA_INFO_KIND, func(a *rtnl.Attrs) { d.kind = a.Text() })
			attrs.Inside(unix.IFLA_INFO_SLAVE_DATA, func(a *rtnl.Attrs) {
				a.Inside(nl.IFLA_BRPORT_ISOLATED, func(a *rtnl.Attrs) { d.isolated = a.U8() != 0 })
			})
		case unix.IFLA_XDP:
			attrs.Inside(unix.IFLA_XDP_PROG_ID, func(a *rtnl.Attrs) { d.xdp = a.U32() })
		case unix.IFLA_STATS64:
			d.rx, d.tx = parseStats(attrs.Value)
		}
	}
	return d, attrs.Err()
}

// parseStats reads the first members of struct rtnl_link_stats64: packets and bytes, received and sent.
func parseStats(b []byte) (rx, tx datapath.Traffic) {
	if len(b) < 32 {
		return rx, tx
	}
	u := func(i int) uint64 { return binary.NativeEndian.Uint64(b[8*i:]) }
	return datapath.Traffic{Frames: u(0), Bytes: u(2)}, datapath.Traffic{Frames: u(1), Bytes: u(3)}
}

// veth describes a pair: one end here, the peer here or in another namespace.
type veth struct {
	name    string
	mtu     int
	group   uint32
	peer    string
	twins   bool     // both ends get indexes that the data path can take
	queues  int      // for transmission and reception; 0: one
	peerNS  *os.File // nil: here
	peerMAC net.HardwareAddr
}

// addVeth makes a pair, down (the kernel refuses to set an end up before both are there), and gives the first end's
// index: one that the data path can take. Indexes are random, so there is no allocator state; an index that is held is
// never chosen.
func (c *conn) addVeth(v veth, held func(index int) bool) (index int, err error) {
	const tries = 1000 // enough unless all but one in a hundred are taken
	for range tries {
		var peer int
		if index, err = c.randomIndex(held); err == nil && v.twins {
			peer, err = c.randomIndex(held)
		}
		if err != nil {
			return 0, err
		}
		if index == 0 || v.twins && (peer == 0 || peer == index) {
			continue
		}
		err = c.addVethAt(index, peer, v)
		if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST) && c.isIndexTaken(index, v.name) {
			continue
		}
		return index, err
	}
	return 0, fmt.Errorf("find a number for a port: one machine has room for %d", datapath.MaxPorts-2)
}

// randomIndex gives an index that was free; 0: the one that was chosen was not.
func (c *conn) randomIndex(held func(index int) bool) (int, error) {
	index := 2 + rand.IntN(datapath.MaxPorts-2)
	if held(index) {
		return 0, nil
	}
	_, err := c.deviceAt(index)
	if errors.Is(err, ErrNoDevice) {
		return index, nil
	}
	return 0, err
}

// isIndexTaken reports whether another device got the same index at the same moment: the kernel answers EEXIST to that
// as to a name that is taken.
func (c *conn) isIndexTaken(index int, name string) bool {
	d, err := c.deviceAt(index)
	return err == nil && d.name != name
}

func (c *conn) addVethAt(index, peerIndex int, v veth) error {
	common := func() []rtnl.Attr {
		queues := uint32(max(v.queues, 1)) // the kernel's default is one for every CPU
		return []rtnl.Attr{
			rtnl.U32(unix.IFLA_MTU, uint32(v.mtu)), rtnl.U32(unix.IFLA_NUM_TX_QUEUES, queues),
			rtnl.U32(unix.IFLA_NUM_RX_QUEUES, queues),
		}
	}
	peer := append(common(), rtnl.String(unix.IFLA_IFNAME, v.peer))
	if v.peerNS != nil {
		peer = append(peer, rtnl.U32(unix.IFLA_NET_NS_FD, uint32(v.peerNS.Fd())))
	} else {
		peer = append(peer, rtnl.U32(unix.IFLA_GROUP, v.group))
	}
	if v.peerMAC != nil {
		peer = append(peer, rtnl.Bytes(unix.IFLA_ADDRESS, v.peerMAC))
	}
	info := rtnl.Bytes(nl.VETH_INFO_PEER, header(peerIndex).Serialize()).With(peer...)
	attrs := append(common(), rtnl.String(unix.IFLA_IFNAME, v.name), rtnl.U32(unix.IFLA_GROUP, v.group),
		rtnl.Nest(unix.IFLA_LINKINFO, rtnl.String(unix.IFLA_INFO_KIND, "veth"),
			rtnl.Nest(unix.IFLA_INFO_DATA, info)))
	return c.do(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, header(index), attrs...)
}

// change sets attributes of a device.
func (c *conn) change(index int, attrs ...rtnl.Attr) error {
	return c.do(unix.RTM_SETLINK, 0, header(index), attrs...)
}

// changeUp sets attributes and the state of a device.
func (c *conn) changeUp(index int, up bool, attrs ...rtnl.Attr) error {
	h := header(index)
	h.Change = unix.IFF_UP
	if up {
		h.Flags = unix.IFF_UP
	}
	return c.do(unix.RTM_SETLINK, 0, h, attrs...)
}

// operUp is IF_OPER_UP (linux/if.h).
const operUp = 6

// awaitCarrier waits until frames pass devices that were set up, at both ends. The kernel activates their qdiscs, and
// lets a bridge forward, a little later than it says that they are up (net/core/link_watch.c).
func (c *conn) awaitCarrier(names ...string) error {
	const most = 10 * time.Second
	deadline := time.Now().Add(most)
	for _, name := range names {
		d, err := c.device(name)
		for ; err == nil && !d.passes; d, err = c.device(name) {
			if time.Now().After(deadline) {
				return fmt.Errorf("wait for the carrier of device %s: none in %v", name, most)
			}
			time.Sleep(100 * time.Microsecond)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func header(index int) *nl.IfInfomsg {
	h := nl.NewIfInfomsg(unix.AF_UNSPEC)
	h.Index = int32(index)
	return h
}

// groupDeleting is the device group (see ip-link(8)) of what deleteDevices is about to delete.
const groupDeleting = 1<<31 - 1

// bridgesAtOnce bounds how long the RTNL is held: for each bridge the kernel waits for an RCU grace period with it
// (br_multicast_dev_del), some 15 ms.
const bridgesAtOnce = 8

// deleteDevices deletes devices, together: the kernel waits for its readers once for all of them, where one at a time
// it takes milliseconds each. Devices that do not exist are no error.
func (c *conn) deleteDevices(devices []device) error {
	var bridges, others []device
	for _, d := range devices {
		if d.kind == "bridge" {
			bridges = append(bridges, d)
		} else {
			others = append(others, d)
		}
	}
	if err := c.deleteAtOnce(others); err != nil {
		return err
	}
	for some := range slices.Chunk(bridges, bridgesAtOnce) {
		if err := c.deleteAtOnce(some); err != nil {
			return err
		}
	}
	return nil
}

func (c *conn) deleteAtOnce(devices []device) error {
	switch len(devices) {
	case 0:
		return nil
	case 1:
		return ignoreGone(c.do(unix.RTM_DELLINK, 0, header(devices[0].index)))
	}
	for _, d := range devices {
		if err := ignoreGone(c.change(d.index, rtnl.U32(unix.IFLA_GROUP, groupDeleting))); err != nil {
			return err
		}
	}
	return ignoreGone(c.do(unix.RTM_DELLINK, 0, nl.NewIfInfomsg(unix.AF_UNSPEC),
		rtnl.U32(unix.IFLA_GROUP, groupDeleting)))
}

func ignoreGone(err error) error {
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}
