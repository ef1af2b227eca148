package rsvp

import (
	"net/netip"
	"reflect"
	"runtime"
	"testing"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// A neighbour sends Paths of 60 KiB, of what takes the most memory for its length, until they are refused. What is
// stored by then is what was allowed, by the count and by what the garbage collector sees.
func TestLongPathsAreRefusedWhenTheMemoryIsFull(t *testing.T) {
	const allowed, length = 4 << 20, 60_000
	route := message.ExplicitRoute{Steps: []message.Step{{Prefix: netip.PrefixFrom(idOf(2), 32)}}}
	for len(route.Steps) < length/4 {
		route.Steps = append(route.Steps, message.Step{Loose: true, Type: 99, Raw: []byte{1, 2}})
	}
	record := message.RecordRoute{}
	for len(record.Records) < length/4 {
		record.Records = append(record.Records, message.Record{Type: 99, Raw: []byte{1, 2}})
	}
	attributes := message.Attributes{}
	for len(attributes.TLVs) < length/4 {
		attributes.TLVs = append(attributes.TLVs, message.TLV{Type: 99})
	}
	for name, long := range map[string]message.Object{"route": route, "record": record, "TLVs": attributes,
		"unknown": message.Unknown{Class: 200, CType: 1, Data: make([]byte, length)}} {
		w := chain(t, 3, 1000)
		w.routers[1].config.MaxBytes = allowed
		w.start(1)
		r := w.routers[1]
		k := w.mustAdd(0, w.request(1, 1, 1, 0, 1, 2))
		w.run(testTick)
		w.check()
		before := inUse()
		var e message.ErrorSpec
		tunnel := uint16(1)
		for ; e.Code == 0 && tunnel <= 2*allowed/length; tunnel++ {
			r.Receive(w.now, arrived(1, w.address(1, 0), longPath(t, w, tunnel+1, long)))
			for _, s := range r.Take().Send {
				if m, err := message.Decode(s.Message); err == nil && m.Type == message.PathErr {
					e, _ = message.Of[message.ErrorSpec](m)
				}
			}
		}
		if e.Code != message.ProtocolError || tunnel < 3 {
			t.Fatalf("%s: error %+v after %d Paths", name, e, tunnel)
		}
		if used := inUse() - before; r.stored > allowed || used < allowed/2 || used > 2*allowed {
			t.Errorf("%s: %d bytes counted and %d in use, of %d allowed", name, r.stored, used, allowed)
		}
		w.run(5 * testRefresh) // those that nobody refreshes are still there
		if _, there := r.installed[k]; !there {
			t.Errorf("%s: an LSP that was there is gone", name)
		}
		w.run(settled)
		w.check()
	}
}

func inUse() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

func longPath(t *testing.T, w *world, tunnel uint16, long message.Object) []byte {
	t.Helper()
	q := w.request(tunnel, 1, 0, 0, 1, 2)
	objects := []message.Object{q.Key.Session, message.Hop{Addr: w.address(1, 0)}}
	if _, ok := long.(message.ExplicitRoute); !ok {
		objects = append(objects, message.ExplicitRoute{Steps: q.Route})
	} else {
		route := long.(message.ExplicitRoute)
		long = message.ExplicitRoute{Steps: append(q.Route[:len(q.Route):len(q.Route)], route.Steps...)}
	}
	b, err := (message.Message{Type: message.Path, TTL: 9, Objects: append(objects, message.LabelRequest{
		EtherType: etherTypeIPv4}, q.Key.template(), message.SenderTspec{}, long)}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// An LSP that is there may not grow beyond what is allowed either: not by a Path, which is refused and leaves the LSP,
// and not by the record of a Resv, which is left out.
func TestAnLSPThatIsThereCannotFillTheMemory(t *testing.T) {
	w := chain(t, 3, 1000)
	w.routers[1].config.MaxBytes = 10_000
	w.start(1)
	q := w.request(1, 1, 400, 0, 1, 2)
	k := w.mustAdd(0, q)
	w.run(testTick)
	w.check()
	r := w.routers[1]
	r.Receive(w.now, arrived(1, w.address(1, 0), longPath(t, w, 1, message.Unknown{Class: 200, CType: 1,
		Data: make([]byte, 20_000)})))
	w.flush(1)
	w.check()
	w.run(testTick)
	if e, failed := w.routers[0].told(Failed, k); !failed || e.Error.Code != message.ProtocolError {
		t.Errorf("told %t: %+v", failed, e)
	}
	b, err := message.Message{Type: message.Resv, TTL: 255, Objects: []message.Object{k.Session,
		message.Hop{Addr: w.address(1, 2), Handle: 2}, message.FixedFilter,
		message.Flowspec{Service: message.ControlledLoad}, k.filter(), message.Label(900),
		message.RecordRoute{Records: make1000()}}}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	r.Receive(w.now, arrived(2, w.address(1, 2), b))
	w.flush(1)
	if v := r.lsps[k].resv; v == nil || v.out != 900 || v.record != nil {
		t.Errorf("the reservation is %+v", v)
	}
	if what := r.overfilled(); what != "" {
		t.Error(what)
	}
}

func make1000() (all []message.Record) {
	for range 1000 {
		all = append(all, message.Record{Addr: idOf(9)})
	}
	return all
}

// Of values whose memory is known.
func TestMemoryBehindValues(t *testing.T) {
	record := message.RecordRoute{Records: make([]message.Record, 2, 3)}
	record.Records[0].Raw = make([]byte, 5)
	size := int(reflect.TypeFor[message.Record]().Size())
	for _, c := range []struct {
		v    any
		want int
	}{
		{7, 0}, {"abc", 3}, {make([]uint32, 2, 4), 16}, {record, 3*size + 5},
		{&record, 3*size + 5 + int(reflect.TypeFor[message.RecordRoute]().Size())},
	} {
		if got := behind(reflect.ValueOf(c.v)); got != c.want {
			t.Errorf("%T: %d bytes, want %d", c.v, got, c.want)
		}
	}
}
