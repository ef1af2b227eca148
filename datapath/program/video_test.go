package program

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// Filters of examples/video.yaml.
const videoFilters = `priority 1 broken=1 -> drop
priority 1 frame=0/7 -> send 2 queue 1
priority 1 frame=2/7 -> send 2 queue 2
priority 1 frame=4/6 -> send 2 queue 3
any -> send 2 queue 4
`

// What frames of a video are in the key of video.c.
const noVideo, keyFrame, unknown = 0, 1, 255

func loadVideo(t *testing.T) *Program {
	t.Helper()
	p := load(t, example(t, "video.c"))
	filters, err := ParseFilters(strings.NewReader(videoFilters), p.Object.Key)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.SetFilters(filters); err != nil {
		t.Fatal(err)
	}
	return p
}

// transport is a TS packet (ISO/IEC 13818-1). A stream is that of a PES packet that begins in it; 0: none does.
func transport(pid uint16, stream byte, adaptation ...byte) []byte {
	b := []byte{0x47, byte(pid >> 8), byte(pid), 0x10}
	if adaptation != nil {
		b[3] |= 0x20
		b = append(append(b, byte(len(adaptation))), adaptation...)
	}
	if stream != 0 {
		b[1] |= 0x40
		b = append(b, 0, 0, 1, stream)
	}
	return append(b, make([]byte, 188-len(b))...)
}

const videoPID, soundPID = 0x100, 0x101

// What RTP packets begin with: a TS packet of each kind.
var (
	newKey        = transport(videoPID, 0xe0, 0x40)
	newDifference = transport(videoPID, 0xe0, 0, 0xff, 0xff)
	goesOn        = transport(videoPID, 0)
	sound         = transport(soundPID, 0xc0, 0x40)
	table         = append([]byte{0x47, 0x40, 0, 0x10}, make([]byte, 184)...)
)

// rtp is a frame with an RTP packet (RFC 3550) with TS packets: this one, and another.
func rtp(t testing.TB, source uint32, sequence int, ts []byte) []byte {
	t.Helper()
	head := binary.BigEndian.AppendUint32([]byte{0x80, 33, byte(sequence >> 8), byte(sequence), 0, 0, 0, 9}, source)
	ip := &layers.IPv4{Version: 4, IHL: 5, TTL: 9, Protocol: layers.IPProtocolUDP, SrcIP: []byte{192, 0, 2, 1},
		DstIP: []byte{198, 51, 100, 2}}
	udp := &layers.UDP{SrcPort: 1111, DstPort: 5004}
	if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	eth := &layers.Ethernet{SrcMAC: macA, DstMAC: macB, EthernetType: layers.EthernetTypeIPv4}
	return serialize(t, eth, ip, udp, gopacket.Payload(bytes.Join([][]byte{head, ts, goesOn}, nil)))
}

// videoPacket is one of a stream, and what is to become of it.
type videoPacket struct {
	sequence int
	ts       []byte
	frame    byte // as in the key
	broken   byte
}

var videoQueues = map[byte]uint32{noVideo: 1, keyFrame: 1, 2: 2, 3: 2, 4: 3, 7: 3, 8: 4, unknown: 4}

func (want videoPacket) compare(t *testing.T, o Outcome, came []byte, what string) {
	t.Helper()
	verdict, queue := Send, videoQueues[want.frame]
	if want.broken != 0 {
		verdict, queue = Drop, 0
	}
	same := o.Key[0] == want.frame && o.Key[1] == want.broken && o.Verdict == verdict && o.Fault == ""
	if !same || verdict == Send && (o.Queue != queue || o.Output != 2) {
		t.Errorf("%s: wanted frame %d, broken %d, queue %d; it is frame %d, broken %d, %+v", what, want.frame,
			want.broken, queue, o.Key[0], o.Key[1], o)
	}
	if verdict == Send && !bytes.Equal(o.Data, came) {
		t.Errorf("%s: the frame was changed", what)
	}
}

// Each of the streams is a flow of its own, as its packets come to the node.
func TestVideoIsFollowed(t *testing.T) {
	for name, c := range map[string]struct {
		stream   []videoPacket
		counters map[string]uint64 // those that move
	}{
		"a group of frames": {[]videoPacket{
			{9, table, noVideo, 0},
			{10, newKey, keyFrame, 0},
			{11, goesOn, keyFrame, 0},
			{12, sound, noVideo, 0},
			{13, goesOn, keyFrame, 0},
			{14, newDifference, 2, 0},
			{15, goesOn, 2, 0},
			{16, newDifference, 3, 0},
			{17, newDifference, 4, 0},
			{18, sound, noVideo, 0},
			{19, goesOn, 4, 0},
			{20, newKey, keyFrame, 0},
			{21, newDifference, 2, 0},
			{22, transport(videoPID, 0xef, append([]byte{0x50}, make([]byte, 178)...)...), keyFrame, 0},
		}, map[string]uint64{"key_frames": 3, "difference_frames": 4, "video": 11, "no_video": 3}},
		"numbers wrap": {[]videoPacket{
			{65534, newKey, keyFrame, 0},
			{65535, goesOn, keyFrame, 0},
			{0, goesOn, keyFrame, 0},
			{1, newDifference, 2, 0},
		}, map[string]uint64{"key_frames": 1, "difference_frames": 1, "video": 4}},
		"a difference frame lost a packet": {[]videoPacket{
			{1, newKey, keyFrame, 0},
			{2, newDifference, 2, 0},
			{4, goesOn, 2, 1},
			{5, sound, noVideo, 0},
			{6, newDifference, 3, 1},
			{7, goesOn, 3, 1},
			{8, newKey, keyFrame, 0},
			{9, newDifference, 2, 0},
		}, map[string]uint64{"key_frames": 2, "difference_frames": 3, "video": 7, "no_video": 1, "broken": 3}},
		"a difference frame lost its beginning": {[]videoPacket{
			{1, newKey, keyFrame, 0},
			{2, newDifference, 2, 0},
			{4, goesOn, 2, 1}, // of the next frame, whose number was lost with its beginning
			{5, newDifference, 3, 1},
		}, map[string]uint64{"key_frames": 1, "difference_frames": 2, "video": 4, "broken": 2}},
		"the first difference frame lost its beginning": {[]videoPacket{
			{1, newKey, keyFrame, 0},
			{3, goesOn, keyFrame, 0}, // for all that is known
			{4, newDifference, 2, 1},
		}, map[string]uint64{"key_frames": 1, "difference_frames": 1, "video": 3, "broken": 1}},
		"packets that come late": {[]videoPacket{
			{1, newKey, keyFrame, 0},
			{2, newDifference, 2, 0},
			{2, newDifference, unknown, 0},
			{1, newKey, keyFrame, 0},
			{1, goesOn, unknown, 0},
			{1, sound, noVideo, 0},
			{3, goesOn, 2, 0},
		}, map[string]uint64{"key_frames": 1, "difference_frames": 1, "video": 6, "no_video": 1, "late": 3}},
		"the sender began anew": {[]videoPacket{
			{1000, newKey, keyFrame, 0},
			{500, newDifference, 2, 1},
			{400, newKey, keyFrame, 0},
			{401, newDifference, 2, 0},
		}, map[string]uint64{"key_frames": 2, "difference_frames": 2, "video": 4, "broken": 1}},
		"seen from the middle on": {[]videoPacket{
			{1, goesOn, noVideo, 0},
			{2, newDifference, unknown, 0},
			{3, goesOn, unknown, 0},
			{4, newDifference, unknown, 0},
			{5, newKey, keyFrame, 0},
			{6, newDifference, 2, 0},
		}, map[string]uint64{"key_frames": 1, "difference_frames": 3, "video": 5, "no_video": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			p := loadVideo(t)
			for n, hook := range Hooks {
				for i, want := range c.stream {
					came := rtp(t, uint32(n), want.sequence, want.ts)
					o := run(t, p, hook, Frame{Data: came, Interface: 1})
					want.compare(t, o, came, fmt.Sprintf("%s, packet %d", hook, i))
				}
			}
			checkMoved(t, p, c.counters, uint64(len(Hooks)))
		})
	}
}

// checkMoved compares all counters. Those that are not named are 0.
func checkMoved(t *testing.T, p *Program, want map[string]uint64, times uint64) {
	t.Helper()
	counters, err := p.ReadCounters()
	if err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(counters, func(_ string, n uint64) bool { return n == 0 })
	expected := map[string]uint64{}
	for name, n := range want {
		expected[name] = n * times
	}
	if diff := cmp.Diff(expected, counters); diff != "" {
		t.Errorf("counters: wanted -, are +: %s", diff)
	}
}

// Numbers of frames end at 255: those of a long group have the last one.
func TestVideoOfALongGroup(t *testing.T) {
	p := loadVideo(t)
	for i := range 300 {
		want := videoPacket{i, newDifference, byte(min(i+1, 255)), 0}
		if i == 0 {
			want.ts = newKey
		}
		came := rtp(t, 7, i, want.ts)
		o := run(t, p, XDP, Frame{Data: came, Interface: 1})
		if o.Key[0] != want.frame || o.Key[1] != 0 {
			t.Fatalf("packet %d: %+v", i, o)
		}
	}
}

// What is malformed, or of another protocol, goes on as what is no video does, as it came.
func TestVideoLeavesOthersAlone(t *testing.T) {
	const ip, udp, head, ts = 14, 34, 42, 54
	set := func(at int, value ...byte) func([]byte) []byte {
		return func(f []byte) []byte { copy(f[at:], value); return f }
	}
	both := func(a, b func([]byte) []byte) func([]byte) []byte { return func(f []byte) []byte { return b(a(f)) } }
	cases := map[string]func([]byte) []byte{
		"another Ethertype":         set(12, 0x88, 0xb5),
		"options":                   set(ip, 0x46),
		"more fragments":            set(ip+6, 0x20),
		"an offset":                 set(ip+7, 1),
		"TCP":                       set(ip+9, 6),
		"longer than the frame":     set(ip+2, 4),
		"shorter than its headers":  set(ip+2, 0, 20),
		"no length":                 set(ip+2, 0, 0),
		"another length of UDP":     set(udp+5, 0),
		"another version of RTP":    set(head, 0x40),
		"an extension of RTP":       set(head, 0x90),
		"padding":                   set(head, 0xa0),
		"a contributing source":     set(head, 0x81),
		"another payload type":      set(head+1, 96),
		"no sync byte":              set(ts, 0x46),
		"an error in TS":            set(ts+1, 0xc1),
		"scrambled":                 set(ts+3, 0xb0),
		"adaptation too long":       set(ts+4, 255),
		"no payload":                set(ts+3, 0x20),
		"a frame goes on":           set(ts+1, 1), // it looks as if one began
		"a header in two packets":   both(set(ts+4, 181), set(ts+186, 0, 0, 1, 0xe0)),
		"padding behind a datagram": both(set(ip+2, 0, 40), set(udp+4, 0, 20)),
		"cut off":                   func(f []byte) []byte { return f[:ts+100] },
		"a part of a TS packet":     func(f []byte) []byte { return shorten(f, 1) },
		"no TS packet":              func(f []byte) []byte { return shorten(f, 2*188) },
	}
	p := loadVideo(t)
	for name, change := range cases {
		for _, hook := range Hooks {
			came := change(rtp(t, 7, 1, newKey))
			o := run(t, p, hook, Frame{Data: came, Interface: 1})
			videoPacket{frame: noVideo}.compare(t, o, came, string(hook)+", "+name)
		}
	}
	checkMoved(t, p, map[string]uint64{"no_video": uint64(len(cases))}, uint64(len(Hooks)))
	for _, hook := range Hooks {
		came := rtp(t, 7, 1, newKey) // without a change
		o := run(t, p, hook, Frame{Data: came, Interface: 1})
		videoPacket{frame: keyFrame}.compare(t, o, came, string(hook)+", as it was made")
		o = run(t, p, hook, Frame{Data: came, Interface: 2})
		if o.Output != 1 || o.Queue != 0 || o.Filter != 0 || !bytes.Equal(o.Data, came) {
			t.Errorf("%s, by the other interface: %+v", hook, o)
		}
	}
}

// Filters may also look at what other traffic is.
func TestVideoKeyHasPorts(t *testing.T) {
	p := loadVideo(t)
	datagram := udp4(t, "198.51.100.7", 9, 100)
	fragment := bytes.Clone(datagram)
	fragment[14+7] = 1
	urgent := bytes.Clone(datagram)
	urgent[14+1] = 0xb8
	for _, c := range []struct{ came, key []byte }{
		{datagram, []byte{noVideo, 0, 17, 0, 2222 >> 8, 2222 & 0xff}},
		{urgent, []byte{noVideo, 0, 17, 0xb8, 2222 >> 8, 2222 & 0xff}},
		{fragment, []byte{noVideo, 0, 17, 0, 0, 0}},
		{ethernet(t, macB, macA, local, 1, 2, 3), make([]byte, 6)},
	} {
		o := run(t, p, XDP, Frame{Data: c.came, Interface: 1})
		if diff := cmp.Diff(c.key, o.Key[:6]); diff != "" || o.Queue != 1 {
			t.Errorf("%x: %s\n%+v", c.came, diff, o)
		}
	}
}

// shorten takes bytes from the end of a datagram, and its lengths follow.
func shorten(f []byte, bytes int) []byte {
	f = f[:len(f)-bytes]
	binary.BigEndian.PutUint16(f[14+2:], uint16(len(f)-14))
	binary.BigEndian.PutUint16(f[34+4:], uint16(len(f)-34))
	return f
}

// A program has room for so many flows. Others are no video to it, until one has ended.
func TestVideoHasRoomForSoManyFlows(t *testing.T) {
	p := loadVideo(t)
	const second = 1_000_000_000
	begin := func(source uint32, time uint64) byte {
		return run(t, p, XDP, Frame{Data: rtp(t, source, 1, newKey), Interface: 1, Time: time}).Key[0]
	}
	const flows = 1000
	var without []uint32
	for source := range uint32(flows) {
		if begin(source, 10*second) == noVideo {
			without = append(without, source)
		}
	}
	with := uint64(flows - len(without))
	if with < 200 || with > 256 {
		t.Errorf("%d flows have room", with)
	}
	checkMoved(t, p, map[string]uint64{"key_frames": with, "video": with, "no_video": flows - with,
		"no_room": flows - with}, 1)
	if frame := begin(without[0], 14*second); frame != noVideo {
		t.Errorf("4 s later another flow's room was taken: frame %d", frame)
	}
	if frame := begin(without[0], 15*second); frame != keyFrame {
		t.Errorf("5 s later there is no room: frame %d", frame)
	}
}

// randomVideo are packets of a few flows, most of them in order, some with some bytes changed.
func randomVideo(t *testing.T) func(random *rand.Rand) Frame {
	t.Helper()
	var sequences [4]int
	return func(random *rand.Rand) Frame {
		source := random.IntN(len(sequences))
		sequences[source] += []int{1, 1, 1, 1, 1, 2, -1, 200}[random.IntN(8)]
		kinds := [][]byte{newKey, newDifference, newDifference, goesOn, goesOn, sound, table}
		data := rtp(t, uint32(source), sequences[source], kinds[random.IntN(len(kinds))])
		if random.IntN(4) == 0 {
			for range 1 + random.IntN(3) {
				data[random.IntN(70)] ^= byte(1 << random.IntN(8))
			}
		}
		return Frame{Data: data, Interface: uint32(1 + random.IntN(4)/3), Interfaces: 0x6,
			Time: 1 + random.Uint64N(1<<40)}
	}
}
