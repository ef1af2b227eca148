package rsvp

import (
	"math/rand/v2"
	"net/netip"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// row is routers in a row without faults: messages arrive at once. Its bookkeeping is small beside what is measured.
type row struct {
	routers []*Router
	now     time.Duration
	ups     int
	sent    map[message.Type]int
	bytes   int
}

const manyLSPs = 100_000

func newRow(t testing.TB, n int) *row {
	t.Helper()
	w := &row{sent: map[message.Type]int{}}
	random := rand.New(rand.NewPCG(1, 1))
	for i := range n {
		c := Config{ID: idOf(i), Random: random.Uint64, Reduce: true, MaxLSPs: 2 * manyLSPs}
		for side, link := range []int{i - 1, i} { // interface 1 is to the router before, 2 to the next one
			if link >= 0 && link < n-1 {
				c.Interfaces = append(c.Interfaces, Interface{Index: side + 1, Bandwidth: 1 << 40,
					Prefix: netip.PrefixFrom(rowAddr(link, 1-side), 30)})
			}
		}
		r, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		w.routers = append(w.routers, r)
	}
	return w
}

func rowAddr(link, side int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 0, byte(link), byte(side + 1)})
}

// request is the i-th LSP from the first router to the last.
func (w *row) request(i int) Request {
	last := len(w.routers) - 1
	q := Request{Key: Key{Session: message.Session{End: idOf(last), Tunnel: uint16(i), Extended: idOf(i >> 16)},
		Sender: idOf(0), LSP: 1}, Bandwidth: 1000, Record: true,
		Attribute: message.SessionAttribute{Setup: 4, Holding: 4, Name: "an LSP"}}
	for link := range last {
		q.Route = append(q.Route, message.Step{Prefix: netip.PrefixFrom(rowAddr(link, 1), 32)})
	}
	return q
}

// settle carries messages until there are none.
func (w *row) settle() {
	for quiet := false; !quiet; {
		quiet = true
		for i := range w.routers {
			quiet = w.carry(i) && quiet
		}
	}
}

func (w *row) carry(i int) (quiet bool) {
	out := w.routers[i].Take()
	for _, e := range out.Events {
		if e.Kind == Up && i == 0 {
			w.ups++
		}
	}
	for _, s := range out.Send {
		w.sent[message.Type(s.Message[1])]++
		w.bytes += len(s.Message)
		to, index := i-1, 2
		if s.Interface == 2 {
			to, index = i+1, 1
		}
		w.routers[to].Receive(w.now, arrived(index, s.Source, s.Message))
	}
	return len(out.Send) == 0
}

// fill sets LSPs up from number first on.
func (w *row) fill(t testing.TB, first, n int) {
	t.Helper()
	for i := range n {
		if err := w.routers[0].Add(w.now, w.request(first+i)); err != nil {
			t.Fatal(err)
		}
		w.settle()
	}
	if w.ups != first+n {
		t.Fatalf("%d of %d LSPs are up", w.ups, first+n)
	}
}

// run lets time pass; each router is looked at when it wants to be.
func (w *row) run(d time.Duration) {
	for until := w.now + d; ; {
		first, at := -1, until
		for i, r := range w.routers {
			if next, ok := r.Next(); ok && next < at {
				first, at = i, next
			}
		}
		w.now = at
		if first < 0 {
			return
		}
		w.routers[first].Tick(at)
		w.settle()
	}
}

// BenchmarkSetUp is an LSP over three hops, by four routers: from Add to the reservation at the ingress. They are set
// up on top of each other.
func BenchmarkSetUp(b *testing.B) {
	w := newRow(b, 4)
	w.fill(b, 0, 2) // neighbours know of each other that they take numbers
	b.ReportAllocs()
	b.ResetTimer()
	before := processorTime(b)
	w.fill(b, 2, b.N)
	b.ReportMetric(float64(b.N)/(processorTime(b)-before).Seconds(), "LSPs/core-s")
}

// BenchmarkHold is the memory of one of 100,000 LSPs at a router in the middle and at both ends; a third of three
// routers' is that of one.
func BenchmarkHold(b *testing.B) {
	for b.Loop() {
		before := heapInUse()
		w := newRow(b, 3)
		w.fill(b, 0, manyLSPs)
		used := heapInUse() - before
		b.ReportMetric(float64(used)/3/manyLSPs, "B/LSP")
		runtime.KeepAlive(w)
	}
}

// BenchmarkPreempt is an LSP that takes the place of one of 100,000 on a full link, from Add to the reservation.
func BenchmarkPreempt(b *testing.B) {
	w := newRow(b, 2)
	w.fill(b, 0, manyLSPs)
	w.routers[0].interfaces[2].Bandwidth = manyLSPs * 1000
	b.ResetTimer()
	for i := range b.N {
		q := w.request(i)
		q.Key.LSP, q.Attribute.Setup, q.Attribute.Holding = 2, 1, 1
		if err := w.routers[0].Add(w.now, q); err != nil {
			b.Fatal(err)
		}
		w.settle()
	}
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// processorTime is that of this process: beside other work, time that passes says little.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkRefresh is what one LSP costs one router in one mean period of refreshes, with 100,000 LSPs and numbers:
// in a row of three routers the first one sends and hears one half of what the middle one does.
func BenchmarkRefresh(b *testing.B) {
	w := newRow(b, 3)
	w.fill(b, 0, manyLSPs)
	w.run(2 * defaultRefresh)
	b.ResetTimer()
	before := processorTime(b)
	for b.Loop() {
		clear(w.sent)
		w.bytes = 0
		w.run(defaultRefresh)
	}
	// The work of four half routers: two ends, and a middle one, which does twice as much.
	each := float64(processorTime(b)-before) / float64(b.N) / manyLSPs / 2
	b.ReportMetric(each, "ns/LSP")
	b.ReportMetric(100*each*manyLSPs/float64(defaultRefresh), "%core")
	b.ReportMetric(float64(w.sent[message.Srefresh]), "Srefresh")
	b.ReportMetric(float64(w.sent[message.Path]+w.sent[message.Resv]), "full")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkRepair is a link with 1,000 protected LSPs that fails: changing their labels, which is all that packets wait
// for, and then the messages of the router before the link.
func BenchmarkRepair(b *testing.B) {
	const many = 1000
	var labels, messages time.Duration
	for range b.N {
		w := ladder(b, 2)
		for i, n := range w.routers {
			n.config.LastLabel = 4 * many
			w.start(i)
		}
		for i := range uint16(many) {
			w.mustAdd(0, w.guarded(i, 0, 0, 1, 2, 3))
		}
		w.mustAdd(1, w.bypass(many, 2, 1, 4, 2))
		w.run(2 * testTick)
		r := w.routers[1].Router
		before := processorTime(b)
		r.SetLink(w.now, w.index(1, 2), false)
		out := r.Take()
		between := processorTime(b)
		r.Tick(w.now + pause)
		told := r.Take()
		labels, messages = labels+between-before, messages+processorTime(b)-between
		if len(out.Labels) != many || len(told.Send) != 3*many {
			b.Fatalf("%d labels, %d messages", len(out.Labels), len(told.Send))
		}
	}
	b.ReportMetric(float64(labels.Microseconds())/1000/float64(b.N), "ms-labels")
	b.ReportMetric(float64(messages.Microseconds())/1000/float64(b.N), "ms-messages")
	b.ReportMetric(0, "ns/op")
}
