package rtnl

import (
	"bytes"
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/lab/testkit"
)

func TestAttributesAreDecodedAsEncoded(t *testing.T) {
	address := netip.MustParseAddr("192.0.2.1")
	all := slices.Concat(U8(1, 8), U16(2, 16), U32(3, 32), U64(4, 64), String(5, "eth0"),
		Bytes(6, address.AsSlice()), Nest(7|unix.NLA_F_NESTED, U32(1, 77), U32(2, 78)),
		Struct(8, struct{ A, B uint16 }{1, 2}).With(U8(9, 9)))
	if len(all)%unix.NLA_ALIGNTO != 0 {
		t.Errorf("%d bytes are not aligned", len(all))
	}
	var kinds []uint16
	a := Attributes(all)
	for a.Next() {
		kinds = append(kinds, a.Kind)
		ok := true
		switch a.Kind {
		case 1:
			ok = a.U8() == 8
		case 2:
			ok = native.Uint16(a.Value) == 16
		case 3:
			ok = a.U32() == 32
		case 4:
			ok = a.U64() == 64
		case 5:
			ok = a.Text() == "eth0"
		case 6:
			ok = a.Address() == address
		case 7:
			a.Inside(2, func(inner *Attrs) { ok = inner.U32() == 78 })
		case 8:
			ok = bytes.Equal(a.Value[:4], Encode(struct{ A, B uint16 }{1, 2})) && len(a.Value) == 4+8
		}
		if !ok {
			t.Errorf("attribute %d came back as %x", a.Kind, a.Value)
		}
	}
	if err := a.Err(); err != nil || !slices.Equal(kinds, []uint16{1, 2, 3, 4, 5, 6, 7, 8}) {
		t.Errorf("attributes %d, %v", kinds, err)
	}
}

func TestMalformedAttributesAreErrors(t *testing.T) {
	for name, b := range map[string][]byte{
		"too short for a header":     {4, 0, 1},
		"shorter than its header":    {3, 0, 1, 0},
		"longer than the message":    {9, 0, 1, 0, 1, 2, 3, 4},
		"a number that is too short": U16(3, 1),
		"a nested one":               Nest(7, U32(1, 1)[:6]),
	} {
		a := Attributes(b)
		for a.Next() {
			switch a.Kind {
			case 3:
				_ = a.U32()
			case 7:
				a.Inside(1, func(*Attrs) {})
			}
		}
		if !errors.Is(a.Err(), ErrMalformed) {
			t.Errorf("%s: %v, want %v", name, a.Err(), ErrMalformed)
		}
	}
}

// What the library reads, Attrs reads as well. (The library panics at lengths that are no multiple of four.)
func FuzzAttributes(f *testing.F) {
	f.Add([]byte(slices.Concat(U32(1, 1), String(2, "x"))))
	f.Add([]byte{4, 0, 1, 0, 3})
	f.Fuzz(func(t *testing.T, b []byte) {
		b = b[:len(b)&^3]
		want, err := nl.ParseRouteAttr(b)
		a := Attributes(b)
		var got [][]byte
		for a.Next() {
			got = append(got, a.Value)
		}
		if err != nil {
			if a.Err() == nil {
				t.Fatalf("%x: no error, the library has: %v", b, err)
			}
			return
		}
		if len(got) != len(want) {
			t.Fatalf("%x: %d attributes, the library has %d", b, len(got), len(want))
		}
		for i := range want {
			if !bytes.Equal(got[i], want[i].Value) {
				t.Fatalf("%x: attribute %d is %x, the library has %x", b, i, got[i], want[i].Value)
			}
		}
	})
}

// message encodes what a kernel might answer to request 1.
func message(kind, flags uint16, data []byte) []byte {
	b := Request(kind, 0, data)
	native.PutUint16(b[6:], flags)
	SetSequence(b, 1)
	return b
}

func TestAnswerEnds(t *testing.T) {
	denied := native.AppendUint32(nil, ^uint32(unix.EPERM)+1)
	item := message(unix.RTM_NEWLINK, unix.NLM_F_MULTI, []byte("data"))
	done := message(unix.NLMSG_DONE, unix.NLM_F_MULTI, make([]byte, 4))
	other := message(unix.RTM_NEWLINK, 0, []byte("old "))
	SetSequence(other, 7)
	for _, c := range []struct {
		name         string
		datagram     []byte
		acknowledged bool
		count        int
		end          bool
		err          error
	}{
		{"single", message(unix.RTM_NEWLINK, 0, []byte("data")), false, 1, true, nil},
		{"single, the result is to come", message(unix.RTM_NEWLINK, 0, []byte("data")), true, 1, false, nil},
		{"list", slices.Concat(item, item, done), false, 2, true, nil},
		{"more to come", item, false, 1, false, nil},
		{"interrupted", slices.Concat(message(unix.RTM_NEWLINK, unix.NLM_F_MULTI|unix.NLM_F_DUMP_INTR, nil),
			done), false, 1, true, ErrInterrupted},
		{"denied", message(unix.NLMSG_ERROR, 0, denied), false, 0, true, unix.EPERM},
		{"failed at the end", slices.Concat(item, message(unix.NLMSG_DONE, unix.NLM_F_MULTI, denied)), false, 1, true, unix.EPERM},
		{"of another request", other, false, 0, false, nil},
		{"cut off", item[:8], false, 0, true, ErrMalformed},
	} {
		count := 0
		e := exchange{seq: 1, acknowledged: c.acknowledged, f: func(Message) error { count++; return nil }}
		end, err := e.datagram(c.datagram)
		if count != c.count || end != c.end || !errors.Is(err, c.err) {
			t.Errorf("%s: %d messages, end %v, %v; want %d, %v, %v", c.name, count, end, err, c.count,
				c.end, c.err)
		}
	}
}

// FuzzAnswer: no bytes make the reader of answers fail but with an error.
func FuzzAnswer(f *testing.F) {
	f.Add(message(unix.NLMSG_ERROR, unix.NLM_F_ACK_TLVS, make([]byte, 40)))
	f.Add(message(unix.NLMSG_ERROR, unix.NLM_F_ACK_TLVS|unix.NLM_F_CAPPED, make([]byte, 40)))
	f.Fuzz(func(_ *testing.T, b []byte) {
		e := exchange{seq: 1, f: func(Message) error { return nil }}
		_, _ = e.datagram(b)
	})
}

// ifinfo is struct ifinfomsg.
func ifinfo(index int32) []byte { return Encode(unix.IfInfomsg{Index: index}) }

func bridge(name string) (header []byte, attrs []Attr) {
	return ifinfo(0), []Attr{String(unix.IFLA_IFNAME, name),
		Nest(unix.IFLA_LINKINFO, String(unix.IFLA_INFO_KIND, "bridge"))}
}

// in gives a test a connection to a namespace of its own.
func in(t *testing.T, f func(c *Conn)) {
	t.Helper()
	testkit.Root(t)
	testkit.LeakCheck(t)
	err := netns.New(func() error {
		c, err := Open(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		f(c)
		return c.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
}

// names lists the devices.
func names(t *testing.T, c *Conn) (names []string) {
	t.Helper()
	all, err := c.Dump(unix.RTM_GETLINK, unix.RTM_NEWLINK, ifinfo(0))
	if err != nil {
		t.Fatal(err)
	}
	for _, data := range all {
		for a := Attributes(data[unix.SizeofIfInfomsg:]); a.Next(); {
			if a.Kind == unix.IFLA_IFNAME {
				names = append(names, a.Text())
			}
		}
	}
	return names
}

func TestConnMakesListsAndDeletes(t *testing.T) {
	in(t, func(c *Conn) {
		header, attrs := bridge("d0")
		create := uint16(unix.NLM_F_CREATE | unix.NLM_F_EXCL)
		if err := c.Do(unix.RTM_NEWLINK, create, header, attrs...); err != nil {
			t.Fatalf("add device: %v", err)
		}
		if err := c.Do(unix.RTM_NEWLINK, create, header, attrs...); !errors.Is(err, unix.EEXIST) {
			t.Errorf("add it once more: %v, want %v", err, unix.EEXIST)
		}
		if got := names(t, c); !slices.Contains(got, "d0") || !slices.Contains(got, "lo") {
			t.Errorf("devices %q", got)
		}
		data, err := c.Get(unix.RTM_GETLINK, ifinfo(0), String(unix.IFLA_IFNAME, "d0"))
		if err != nil || len(data) < unix.SizeofIfInfomsg {
			t.Fatalf("get device: %d bytes, %v", len(data), err)
		}
		if err := c.Do(unix.RTM_DELLINK, 0, ifinfo(int32(native.Uint32(data[4:])))); err != nil {
			t.Errorf("delete device: %v", err)
		}
		if got := names(t, c); slices.Contains(got, "d0") {
			t.Errorf("devices %q after the deletion", got)
		}
	})
}

func TestErrorsHaveTheKernelsText(t *testing.T) {
	in(t, func(c *Conn) {
		// A route by an interface that is not there; the text is of Linux 4.20 and later.
		route := Encode(unix.RtMsg{Family: unix.AF_INET, Dst_len: 24, Table: unix.RT_TABLE_MAIN,
			Type: unix.RTN_UNICAST})
		err := c.Do(unix.RTM_NEWROUTE, unix.NLM_F_CREATE, route, Bytes(unix.RTA_DST, []byte{192, 0, 2, 0}),
			Bytes(unix.RTA_GATEWAY, []byte{198, 51, 100, 1}))
		if !errors.Is(err, unix.ENETUNREACH) || err.Error() == unix.ENETUNREACH.Error() {
			t.Errorf("%v, want %q with a text", err, unix.ENETUNREACH)
		}
	})
}

func TestBatchCarriesOutAllAndNamesWhatFailed(t *testing.T) {
	const many = 1000 // more than one chunk
	in(t, func(c *Conn) {
		b := c.Batch()
		request := func(i int) []byte {
			address := []byte{127, 1, byte(i >> 8), byte(i)}
			header := Encode(unix.IfAddrmsg{Family: unix.AF_INET, Prefixlen: 32, Index: 1})
			return Request(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, header,
				Bytes(unix.IFA_LOCAL, address))
		}
		for i := range many {
			if err := b.Add(i, request(i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.Flush(); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(b.Add("new", request(many)), b.Add("old", request(7))); err != nil {
			t.Fatal(err)
		}
		if err := b.Flush(); !errors.Is(err, unix.EEXIST) ||
			!bytes.HasPrefix([]byte(err.Error()), []byte("old: ")) {
			t.Errorf("%v, want old: %v", err, unix.EEXIST)
		}
		all, err := c.Dump(unix.RTM_GETADDR, unix.RTM_NEWADDR, make([]byte, unix.SizeofIfAddrmsg))
		if err != nil || len(all) != many+1 {
			t.Errorf("%d addresses, %v; want %d", len(all), err, many+1)
		}
	})
}
