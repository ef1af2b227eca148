package outside

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath/claims"
)

// States of sockets in /proc/net.
const (
	listening   = "0A" // TCP_LISTEN
	unconnected = "07" // of UDP
)

// socket is one that takes what comes to a port: of TCP it listens.
type socket struct {
	port    claims.Port
	address netip.Addr // without the zone; IPv4 in IPv6 is IPv4
	// chosen: a process chose the port, as far as that can be seen. The kernel gives ports of one range to sockets
	// of processes that choose none, as most clients.
	chosen bool
}

// isOutside reports whether what comes from outside of the sliver to its interface, which has the address, comes to the
// socket.
func (s socket) isOutside(inner netip.Addr) bool {
	return s.address.IsUnspecified() || s.address == inner
}

// readSockets lists those of the thread's network namespace.
func readSockets() (all []socket, err error) {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return nil, fmt.Errorf("read which ports the kernel gives: %w", err)
	}
	var first, last uint16
	if _, err := fmt.Sscan(string(text), &first, &last); err != nil {
		return nil, fmt.Errorf("read which ports the kernel gives: %q: %w", text, err)
	}
	for name, protocol := range map[string]uint16{
		"tcp": unix.IPPROTO_TCP, "tcp6": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP, "udp6": unix.IPPROTO_UDP,
	} {
		file, err := os.Open("/proc/thread-self/net/" + name)
		if errors.Is(err, os.ErrNotExist) { // a kernel without IPv6
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list sockets: %w", err)
		}
		some, err := parseSockets(file, protocol)
		if err = errors.Join(err, file.Close()); err != nil {
			return nil, fmt.Errorf("list sockets: %s: %w", name, err)
		}
		all = append(all, some...)
	}
	for i := range all {
		given := first <= all[i].port.Number && all[i].port.Number <= last
		all[i].chosen = all[i].chosen && !given
	}
	return all, nil
}

// mostSockets is how many are read of each file: a sliver may have any number, and more than there are ports is work
// for nothing.
const mostSockets = 1 << 16

// parseSockets reads a file of /proc/net. Those of TCP that listen come first: the others, which may be many, are not
// read.
func parseSockets(r io.Reader, protocol uint16) (all []socket, err error) {
	lines := bufio.NewScanner(r)
	lines.Scan()                                 // the heading
	for len(all) < mostSockets && lines.Scan() { // 0: 00000000:1F90 00000000:0000 0A ...
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 {
			return nil, fmt.Errorf("%q is no socket", lines.Text())
		}
		if protocol == unix.IPPROTO_TCP && fields[3] != listening {
			return all, nil
		}
		s := socket{chosen: fields[3] == listening || fields[3] == unconnected}
		s.port.Protocol = protocol
		if s.address, s.port.Number, err = parseEnd(fields[1]); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, lines.Err()
}

// parseEnd reads 0100007F:1F90: words in the machine's order, and the port.
func parseEnd(text string) (at netip.Addr, port uint16, err error) {
	address, number, _ := strings.Cut(text, ":")
	words, err := hex.DecodeString(address)
	var p []byte
	if err == nil {
		p, err = hex.DecodeString(number)
	}
	if err == nil && (len(words)%4 != 0 || len(p) != 2) {
		err = errors.New("wrong length")
	}
	if err != nil {
		return at, 0, fmt.Errorf("%q is no address and port: %w", text, err)
	}
	for i := 0; i < len(words); i += 4 {
		binary.NativeEndian.PutUint32(words[i:], binary.BigEndian.Uint32(words[i:]))
	}
	at, ok := netip.AddrFromSlice(words)
	if !ok {
		return at, 0, fmt.Errorf("%q is no address and port", text)
	}
	return at.Unmap(), binary.BigEndian.Uint16(p), nil
}
