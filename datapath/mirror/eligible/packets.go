package eligible

import (
	"fmt"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/rtnl"
)

// Of linux/packet_diag.h.
const (
	packetShowInfo   = 1 << 0
	packetShowFilter = 1 << 5
	packetDiagHeader = 16
	packetDiagInfo   = 0
	packetDiagFilter = 7
	loopbackIndex    = 1 // of lo, in every namespace
)

// listPackets asks for all packet sockets: with where they listen, and their filters.
var listPackets = func() []byte {
	ask := make([]byte, 20) // struct packet_diag_req
	ask[0] = unix.AF_PACKET
	byteOrder.PutUint32(ask[8:], packetShowInfo|packetShowFilter)
	return rtnl.Request(unix.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP, ask)
}()

// packetSocket is a socket that sees frames as they arrive and leave.
type packetSocket struct {
	kind   byte   // SOCK_RAW, SOCK_DGRAM, SOCK_PACKET
	proto  uint16 // 0: receives nothing
	device int    // 0: all; -1: its device is gone
	filter []bpf.RawInstruction
}

func lookAtPackets(v *visit) (Verdict, error) {
	var verdict Verdict
	sockets, err := v.node.packetSockets()
	for _, data := range sockets {
		s, err := parsePacketSocket(data)
		if err != nil {
			return verdict, err
		}
		where := "all interfaces"
		if s.device != 0 {
			where = v.node.nameOf(s.device)
		}
		if s.sees(unix.ETH_P_IP, transit4) {
			verdict.ipv4("packet socket on %s receives IPv4 (ss -0 -p shows whose)", where)
		}
		if s.sees(unix.ETH_P_IPV6, transit6) {
			verdict.ipv6("packet socket on %s receives IPv6 (ss -0 -p shows whose)", where)
		}
	}
	return verdict, err
}

// sees reports whether the socket may receive any of the frames that the fast path would take past it.
func (s packetSocket) sees(proto uint16, frames []frame) bool {
	if s.proto != unix.ETH_P_ALL && s.proto != proto || s.device == loopbackIndex || s.device < 0 {
		return false
	}
	if s.filter == nil { // none, or an eBPF program, which is not shown
		return true
	}
	start := 0
	if s.kind == unix.SOCK_DGRAM {
		start = networkOffset
	}
	return accepts(s.filter, frames, start)
}

func parsePacketSocket(data []byte) (packetSocket, error) {
	if len(data) < packetDiagHeader {
		return packetSocket{}, fmt.Errorf("read packet socket: %w", unix.EBADMSG)
	}
	s := packetSocket{kind: data[1], proto: byteOrder.Uint16(data[2:])}
	err := attributes(data, packetDiagHeader, func(a *rtnl.Attrs) {
		switch a.Kind {
		case packetDiagInfo:
			s.device = int(int32(a.U32()))
		case packetDiagFilter:
			s.filter = parseFilter(a.Value)
		}
	})
	return s, err
}

// parseFilter reads an array of struct sock_filter.
func parseFilter(b []byte) []bpf.RawInstruction {
	var filter []bpf.RawInstruction
	for ; len(b) >= 8; b = b[8:] {
		filter = append(filter, bpf.RawInstruction{Op: byteOrder.Uint16(b), Jt: b[2], Jf: b[3],
			K: byteOrder.Uint32(b[4:])})
	}
	return filter
}
