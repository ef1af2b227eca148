package topology

import (
	"reflect"
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
			"west", []slice.Queue{{Share: 20}, {Share: 30, Length: unit.Length{Bytes: 64 << 10}},
				{Share: 25, Length: unit.Length{Frames: 200}}, {Share: 20}},
		},
		"queue 0 named": {
			"{ends: [west, h], rate: 10Mbit, queues: {0: {share: 2, length: 5}, " +
				"1: {rate: 5Mbit, reserve: 1Mbit}}}",
			"west", []slice.Queue{{Share: 2, Length: unit.Length{Frames: 5}},
				{Share: 1, Rate: 5e6, Reserve: 1e6}},
		},
		"more than ten": {
			"{ends: [west, h], rate: 10Mbit, queues: {1: {}, 2: {}, 3: {}, 4: {}, 5: {}, 6: {}, " +
				"7: {}, 8: {}, 9: {}, 10: {share: 7}}}",
			"west", []slice.Queue{{Share: 1}, {Share: 1}, {Share: 1}, {Share: 1}, {Share: 1}, {Share: 1},
				{Share: 1}, {Share: 1}, {Share: 1}, {Share: 1}, {Share: 7}},
		},
		"of both ends": {"{ends: [west, east], rate: 10Mbit, queues: {1: {}}}", "east",
			[]slice.Queue{{Share: 1}, {Share: 1}}},
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
