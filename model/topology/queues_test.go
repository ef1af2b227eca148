package topology

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/unit"
)

const withQueues = `
nodes:
  west: {kind: program, program: ./west.o}
  east: {kind: program, program: ./east.o}
  r: {kind: router}
  h:
`

func TestQueuesAreNumberedFromZero(t *testing.T) {
	for name, c := range map[string]struct {
		link, end string
		want      []slice.Queue
	}{
		"as in figure 7 of SPP": {
			"{ends: [west, h], from: {west: {rate: 800Mbit, queues: {1: {share: 30, length: 64KiB}, " +
				"2: {share: 25, length: 200}, 3: {share: 20}}}}}",
			"west", []slice.Queue{{Share: 20, Length: frames(1000)},
				{Share: 30, Length: unit.Length{Bytes: 64 << 10}}, {Share: 25, Length: frames(200)},
				{Share: 20, Length: frames(1000)}},
		},
		"queue 0 named": {
			"{ends: [west, h], rate: 10Mbit, queues: {0: {share: 2, length: 5}, " +
				"1: {rate: 5Mbit, reserve: 1Mbit}}}",
			"west", []slice.Queue{{Share: 2, Length: frames(5)},
				{Share: 1, Rate: 5e6, Reserve: 1e6, Length: frames(64)}},
		},
		"by priority": {
			"{ends: [west, h], rate: 10Mbit, queues: {1: {priority: 1, length: 5}, " +
				"2: {priority: 8, length: 5}}}",
			"west", []slice.Queue{{Share: 1, Length: frames(82)},
				{Share: 1, Length: frames(5), Priority: 1}, {Share: 1, Length: frames(5)}},
		},
		"more than ten": {
			"{ends: [west, h], rate: 10Mbit, queues: {1: {}, 2: {}, 3: {}, 4: {}, 5: {}, 6: {}, " +
				"7: {}, 8: {}, 9: {}, 10: {share: 7}}}",
			"west", append(slices.Repeat([]slice.Queue{{Share: 1, Length: frames(82)}}, 10),
				slice.Queue{Share: 7, Length: frames(82)}),
		},
		"of both ends": {"{ends: [west, east], rate: 10Mbit, queues: {1: {}}}", "east",
			[]slice.Queue{{Share: 1, Length: frames(82)}, {Share: 1, Length: frames(82)}}},
		"not of a router": {"{ends: [west, r], rate: 10Mbit, queues: {1: {}}}", "r", nil},
	} {
		top := mustParse(t, "t.yaml", []byte(withQueues+"links: ["+c.link+"]\n"))
		for _, source := range top.Sources() {
			source.Data = []byte("an object")
		}
		s := mustResolve(t, throughJSON(t, top), nil)
		for _, e := range s.Links[0].Ends {
			if e.Node == c.end && !reflect.DeepEqual(e.Shape.Queues, c.want) {
				t.Errorf("%s: queues %+v, want %+v", name, e.Shape.Queues, c.want)
			}
			if err := e.Shape.Check(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func frames(n int) unit.Length { return unit.Length{Frames: n} }

// Lengths that nobody wrote do not keep a topology from running.
func TestQueuesWithoutLengthsFitIntoWhatANodeHas(t *testing.T) {
	const full = 1514
	for name, c := range map[string]struct {
		interfaces, queues int
		link, reserve      string
		first, last        unit.Length // of queues 1 and 2
		most               int64       // bytes of all
	}{
		"as many as their rates want": {3, 5, "rate: 20Mbit", "", frames(165), frames(165), 18 * 165 * full},
		"not more than an Ethernet device has": {3, 5, "rate: 10Gbit", "", frames(1000), frames(1000),
			18 * 1000 * full},
		"many":          {20, 20, "rate: 1Gbit", "", frames(105), frames(105), slice.DefaultBuffer / 2},
		"jumbo frames":  {8, 20, "rate: 10Gbit, mtu: 9000", "", frames(64), frames(64), slice.DefaultBuffer},
		"more reserved": {20, 20, "rate: 1Gbit", "buffer: 256MiB", frames(211), frames(211), 128 << 20},
		"little":        {2, 3, "rate: 1Gbit", "buffer: 1MiB", frames(64), frames(64), 1 << 20},
		"one is written, and stays": {2, 3, "rate: 1Gbit", "buffer: 20MiB", unit.Length{Bytes: 8 << 20},
			frames(461), 20 << 20},
	} {
		one := ""
		if c.first.Bytes != 0 {
			one = "length: 8MiB"
		}
		text := "nodes:\n  p: {program: ./p.o, reserve: {" + c.reserve + "}}\n  h:\nlinks:\n"
		for range c.interfaces {
			text += "  - {ends: [p, h], " + c.link + ", queues: {1: {" + one + "}"
			for q := 2; q <= c.queues; q++ {
				text += fmt.Sprintf(", %d: {share: 3}", q)
			}
			text += "}}\n"
		}
		top := mustParse(t, "t.yaml", []byte(text))
		for _, source := range top.Sources() {
			source.Data = []byte("an object")
		}
		s := mustResolve(t, throughJSON(t, top), nil)
		for _, l := range s.Links {
			for _, e := range l.Ends {
				if e.Node != "p" {
					continue
				}
				first, last := e.Shape.Queues[1].Length, e.Shape.Queues[2].Length
				if first != c.first || last != c.last {
					t.Errorf("%s: %s has lengths %v and %v, want %v and %v", name, e, first, last,
						c.first, c.last)
				}
			}
		}
		if got := s.Queueing(nil)["p"].Buffer; got > c.most || got < c.most/2 {
			t.Errorf("%s: %d bytes, want at most %d, and more than half of that", name, got, c.most)
		}
	}
}

func TestErrorsInQueues(t *testing.T) {
	many := "rate: 1M, queues: {"
	for i := range slice.MaxQueues + 1 {
		many += unit.Length{Frames: i}.String() + ": {}, "
	}
	for name, c := range map[string]struct{ link, want string }{
		"no rate":      {"queues: {1: {}}", "queues divide a rate, and there is none here (add rate: to the link)"},
		"share 0":      {"rate: 1M, queues: {1: {share: 0}}", "share 0 is out of range: 1 to 100 (the least weight is 1; to bound a queue, give it a rate)"},
		"oversold":     {"rate: 10Mbit, queues: {1: {reserve: 6Mbit}, 2: {reserve: 5Mbit}}", "the queues reserve 11Mbit of a rate of 10Mbit (lower a reserve:, or raise the rate)"},
		"rate":         {"rate: 1M, queues: {1: {rate: 2M}}", "the rate of queue 1 is above the link's, 1Mbit (leave it out: no queue gets more than the link's rate)"},
		"reserve":      {"rate: 1M, queues: {1: {rate: 500k, reserve: 600k}}", "queue 1 reserves 600kbit and has a rate of 500kbit"},
		"queue":        {"rate: 1M, queue: 5, queues: {1: {}}", "each queue has a length of its own, so the link has no queue: (write length: in the queues)"},
		"both":         {"rate: 1M, queues: {1: {}}, classes: {a: {}}", "a link has classes or queues in one direction, and here are both (leave one of them out)"},
		"gap":          {"rate: 1M, queues: {1: {}, 3: {}}", "there is no queue 2, and there are 2 queues (number them from 1 without gaps)"},
		"name":         {"rate: 1M, queues: {voice: {}}", `"voice" is no number of a queue: 0 to 1023`},
		"octal":        {"rate: 1M, queues: {'01': {}}", `"01" is no number of a queue`},
		"negative":     {"rate: 1M, queues: {-1: {}}", `"-1" is no number of a queue`},
		"too many":     {many + "}", "1025 queues: at most 1024, number 0 included"},
		"length":       {"rate: 1M, queues: {1: {length: long}}", `"long" is no length of a queue: write frames, such as 200, or bytes, such as 64KiB`},
		"no length":    {"rate: 1M, queues: {1: {length: 0}}", "a queue of length 0 takes no frame: leave length out for the default"},
		"priority 9":   {"rate: 1M, queues: {1: {priority: 9}}", "priority 9 is out of range (write 1 (served first) to 8)"},
		"short length": {"rate: 1M, queues: {1: {length: 1KiB}}", "length 1KiB is out of range: 2048 bytes to 1GiB"},
		"long length":  {"rate: 1M, queues: {1: {length: 2000000}}", "length 2000000 is out of range: 1 to 1000000 frames"},
		"unknown key":  {"rate: 1M, queues: {1: {shares: 2}}", `unknown key "shares" (did you mean "share"?)`},
		"of a host":    {"rate: 1M, from: {h: {queues: {1: {}}}}", `"h" has no packet program, which would choose a queue for each frame (write classes:, which choose by what is in the frame)`},
	} {
		text := "nodes: {p: {kind: program, program: ./p.o}, h: }\nlinks:\n  - {ends: [p, h], " + c.link + "}\n"
		parsed, found := Parse("t.yaml", []byte(text))
		if len(found) == 0 {
			_, found = Resolve(parsed, nil)
		}
		if have := found.Error(); !strings.Contains(have, c.want) || !strings.Contains(have, "t.yaml:3:") {
			t.Errorf("%s: %v, want %q at line 3", name, have, c.want)
		}
	}
}

func TestALinkWithoutPacketProgramsHasNoQueues(t *testing.T) {
	const text = "nodes: {a: , b: }\nlinks:\n  - {ends: [a, b], rate: 1M, queues: {1: {}}}\n"
	parsed, found := Parse("t.yaml", []byte(text))
	if len(found) == 0 {
		_, found = Resolve(parsed, nil)
	}
	if have := found.Error(); !strings.Contains(have, "t.yaml:3:30: no end of the link has a packet program") {
		t.Error(have)
	}
}
