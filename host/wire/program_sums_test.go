package wire_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pergola-net/pergola/datapath/program"
	"github.com/pergola-net/pergola/host/wire"
	"github.com/pergola-net/pergola/host/wiring"
	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/model/slice"
)

// checking forwards, and looks at the checksums of UDP packets with 32 bytes.
const checking = `
#include <pergola/headers.h>
#include <pergola/program.h>

struct sums4 { uint16_t word[4 + 20]; }; /* the addresses, UDP's header and 32 bytes */
struct sums6 { uint16_t word[16 + 20]; };

PERGOLA_COUNTERS { uint64_t right, wrong; };

PERGOLA_PARSE(packet)
{
	struct sums4 *ip4 = pergola_header(packet, 26, struct sums4);
	struct sums6 *ip6 = pergola_header(packet, 22, struct sums6);
	uint64_t sum = pergola_htons(17) + pergola_htons(40);

	packet->output = 3 - packet->interface;
	if (packet->length == 14 + 20 + 40 && *pergola_header(packet, 23, uint8_t) == 17) {
		for (int i = 0; i < 24; i++)
			sum += ip4->word[i];
	} else if (packet->length == 14 + 40 + 40 && *pergola_header(packet, 20, uint8_t) == 17) {
		for (int i = 0; i < 36; i++)
			sum += ip6->word[i];
	} else {
		return PERGOLA_SEND;
	}
	if (pergola_fold(sum))
		pergola_count(wrong);
	else
		pergola_count(right);
	return PERGOLA_SEND;
}
`

// A sender leaves checksums to network cards. A packet program sees them finished, and sees each frame once, whatever
// the way is by which it comes.
func TestPacketProgramsSeeFinishedChecksums(t *testing.T) {
	l := newLab(t)
	a := l.port("a", nil, "192.0.2.0/31", "2001:db8::/127")
	b := l.port("b", nil, "192.0.2.1/31", "2001:db8::1/127")
	left, right := l.port("p", nil), l.port("p", func(p *wire.Port) { p.Inner = "eth1" })
	end := func(port string) wiring.End { return wiring.End{Port: port, MTU: 1500} }
	link := wiring.Link{A: end(a), B: end(left), Program: true}
	other := wiring.Link{A: end(right), B: end(b), Program: true}
	for _, w := range []wiring.Link{link, other} {
		l.must(l.Join(l.ctx, w.A.Port, w.B.Port))
		l.must(l.Treat(l.ctx, w))
	}
	source := filepath.Join(t.TempDir(), "checking.c")
	l.must(os.WriteFile(source, []byte(checking), 0o600))
	object, err := program.Build(l.ctx, source)
	l.must(err)
	l.must(l.SetProgram(l.ctx, "7-p", wire.Program{
		Slice: 7, File: source, Object: object, Ports: []string{left, right}, Digest: "1",
	}))
	queued := link
	queued.A.Shape, queued.Reinject = slice.Shape{Rate: 400e6}, true
	sent := uint64(0)
	for name, how := range map[string]wiring.Link{"at once": link, "by a queue": queued} {
		l.must(l.Treat(l.ctx, how))
		for _, to := range []string{"192.0.2.1", "2001:db8::1"} {
			l.ping("a", to) // addresses are known
			const datagrams = 50
			l.sendsShort("a", to, datagrams)
			sent += datagrams
			l.must(testkit.Poll(func() error {
				if c := l.counts(); c["right"] != sent || c["wrong"] != 0 {
					return fmt.Errorf("%s, to %s: %d checksums are right, want %d, and %d wrong",
						name, to, c["right"], sent, c["wrong"])
				}
				return nil
			}, 5*time.Second))
		}
	}
}

// sendsShort sends so many datagrams of 32 bytes.
func (l *lab) sendsShort(name, address string, datagrams int) {
	l.Helper()
	to := net.JoinHostPort(address, "9")
	conn := in(l, name, func() (net.Conn, error) { return net.Dial("udp", to) })
	defer func() { _ = conn.Close() }()
	for datagrams > 0 {
		if _, err := conn.Write(make([]byte, 32)); err == nil { // else: nobody listens to an earlier one
			datagrams--
		}
	}
}
