package sliver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/i3/chord"
	"github.com/pergola-net/pergola/i3/fastpath"
	"github.com/pergola-net/pergola/i3/fastpath/layout"
	"github.com/pergola-net/pergola/i3/ident"
	"github.com/pergola-net/pergola/sdk/message"
	"github.com/pergola-net/pergola/sdk/node"
)

// fake is a packet program in memory.
type fake struct {
	block    *block
	filters  map[string]string
	known    known
	room     int
	fails    error
	broken   bool // fails for changes alone
	lost     bool // carries changes out, and the answer is lost
	hangs    bool // answers no request until its time is over
	requests int
}

// block is a program's memory.
type block struct {
	elements [1 + layout.Rings][]byte
	closed   bool
}

func newBlock() *block {
	b := &block{}
	for i := range b.elements {
		b.elements[i] = make([]byte, layout.Size)
	}
	return b
}

func (b *block) At(i int) []byte {
	if b.closed || i >= len(b.elements) {
		return nil
	}
	return b.elements[i]
}

func (b *block) Close() error { b.closed = true; return nil }

// ring is the one in use; nil: none.
func (b *block) ring() []byte {
	n := binary.NativeEndian.Uint64(b.elements[0])
	if n == 0 {
		return nil
	}
	return b.elements[n]
}

func newFake(k known) *fake {
	return &fake{block: newBlock(), known: k, filters: map[string]string{}, room: 1000}
}

func (f *fake) Memory(ctx context.Context) (Memory, error) {
	if err := f.hang(ctx); err != nil {
		return nil, err
	}
	return f.block, f.fails
}

func (f *fake) Look(context.Context) (layout.Node, error) { return f.known.look() }

func (f *fake) hang(ctx context.Context) error {
	if !f.hangs {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (f *fake) ChangeFilters(ctx context.Context, remove, insert []string) error {
	f.requests++
	if err := f.hang(ctx); err != nil {
		return err
	}
	if f.fails != nil {
		return f.fails
	}
	if f.broken {
		return errors.New("broken")
	}
	next := maps.Clone(f.filters)
	for _, name := range remove {
		if _, ok := next[name]; !ok {
			return fmt.Errorf("%q is not there", name)
		}
		delete(next, name)
	}
	for _, text := range insert {
		name, result, _ := strings.Cut(text, " -> ")
		if _, ok := next[name]; ok {
			return fmt.Errorf("%q is there", name)
		}
		next[name] = result
	}
	if len(next) > f.room {
		return &node.Error{Request: message.DoChangeFilters, Code: message.Full, Text: "no room"}
	}
	f.filters = next
	if f.lost {
		return context.DeadlineExceeded
	}
	return nil
}

func (f *fake) ReplaceFilters(ctx context.Context, filters []string) error {
	if f.fails == nil && !f.hangs {
		f.filters = map[string]string{}
	}
	return f.ChangeFilters(ctx, nil, filters)
}

func (f *fake) Filters(context.Context) (all node.Filters, err error) {
	for name, result := range f.filters {
		var one message.Filter
		if _, err := fmt.Sscanf(name, "priority %d %s", &one.Priority, &one.Match); err != nil {
			return all, err
		}
		one.Result = result
		all.Filters = append(all.Filters, one)
	}
	return all, f.fails
}

// known are the addresses whose Ethernet address a test's kernel knows.
type known map[netip.Addr]layout.MAC

func (k known) look() (layout.Node, error) {
	return layout.Node{Addr: netip.MustParseAddrPort("192.0.2.1:5610"), MACs: []layout.MAC{{2}},
		Reach: func(a netip.Addr) (layout.Neighbor, bool) {
			mac, ok := k[a]
			return layout.Neighbor{Interface: 1, To: mac}, ok
		}}, nil
}

func open(t *testing.T, p *fake) *FastPath {
	t.Helper()
	f, err := New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

var (
	receiver = netip.MustParseAddrPort("198.51.100.7:4000")
	prefix   = ident.PrefixOf(ident.FromName("a"), ident.Exact)
	name     = layout.Names(prefix)[0]
	deliver  = fastpath.Filter{Prefix: prefix, Action: fastpath.Action{Kind: fastpath.Deliver,
		To: []netip.AddrPort{receiver}}}
	alone = chord.Routes{Own: chord.OwnAll}
)

func TestFiltersFollowNeighbors(t *testing.T) {
	p := newFake(known{})
	f := open(t, p)
	if err := errors.Join(f.Replace(alone, nil), f.Refresh(), f.Set(deliver)); err != nil {
		t.Fatal(err)
	}
	expect := func(when, want string) {
		t.Helper()
		if diff := cmp.Diff(map[string]string{name: want}, p.filters); diff != "" {
			t.Errorf("%s: %s", when, diff)
		}
	}
	expect("nobody is known", "punt")
	p.known[receiver.Addr()] = layout.MAC{2, 7}
	if err := f.Refresh(); err != nil {
		t.Fatal(err)
	}
	expect("the receiver is known", "send 1 args 020700000000000000000000c63364070fa0")
	requests := p.requests
	for range 2 * trust { // filters are compared, too
		if err := errors.Join(f.Refresh(), f.Set(deliver)); err != nil || p.requests != requests {
			t.Fatalf("nothing has changed, and there are requests: %v", err)
		}
	}
	delete(p.known, receiver.Addr())
	if err := f.Refresh(); err != nil {
		t.Fatal(err)
	}
	expect("it is forgotten", "punt")
	if err := errors.Join(f.Delete(prefix), f.Delete(prefix)); err != nil || len(p.filters) > 0 {
		t.Errorf("after it is deleted: %v, %v", p.filters, err)
	}
}

// What became of a change is not known when its answer is lost: all is punted until the filters are written anew. What
// is taken away meanwhile does not come back.
func TestChangeWhoseAnswerIsLostIsMadeGood(t *testing.T) {
	for _, deleted := range []bool{false, true} {
		p := newFake(known{receiver.Addr(): {2}})
		f := open(t, p)
		if err := errors.Join(f.Replace(alone, nil), f.Refresh()); err != nil {
			t.Fatal(err)
		}
		p.lost = true
		if err := f.Set(deliver); err != nil || len(p.filters) != 1 || p.block.ring() != nil {
			t.Fatalf("the answer is lost: %v, %v, and packets are not punted", p.filters, err)
		}
		p.lost = false
		want := 1
		if deleted {
			want = 0
			if err := f.Delete(prefix); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Refresh(); err != nil || len(p.filters) != want || p.block.ring() == nil {
			t.Errorf("deleted %t: the next Refresh: %v, filters %v", deleted, err, p.filters)
		}
	}
}

// An agent that does not answer costs its server one moment, once. What the server wants meanwhile is written when the
// agent is back.
func TestServerDoesNotWaitForAnAgentThatIsAway(t *testing.T) {
	p := newFake(known{receiver.Addr(): {2}})
	f := open(t, p)
	if err := errors.Join(f.Replace(alone, nil), f.Refresh()); err != nil {
		t.Fatal(err)
	}
	p.hangs = true
	p.requests = 0
	begin := time.Now()
	for i := range 100 {
		one := deliver
		one.Prefix = ident.PrefixOf(ident.FromName(fmt.Sprint(i)), ident.Exact)
		if err := errors.Join(f.Set(one), f.SetRoutes(chord.Routes{Own: chord.Own(i % 2)})); err != nil {
			t.Fatal(err)
		}
		if p.block.ring() != nil {
			t.Fatal("not all filters are there, and packets are not punted")
		}
	}
	if took := time.Since(begin); took > time.Second || p.requests != 1 {
		t.Errorf("100 changes take %s and %d requests", took, p.requests)
	}
	refreshed := make(chan error)
	go func() { refreshed <- f.Refresh() }()
	for f.asking.TryLock() { // until Refresh asks
		f.asking.Unlock()
		runtime.Gosched()
	}
	begin = time.Now()
	err := errors.Join(f.Set(deliver), f.SetRoutes(alone))
	if took := time.Since(begin); took > time.Second || err != nil {
		t.Errorf("while Refresh waits, a change takes %s: %v", took, err)
	}
	if err := <-refreshed; err == nil {
		t.Error("the agent is away, and Refresh does not say so")
	}
	p.hangs = false
	if err := f.Refresh(); err != nil || len(p.filters) != 101 || p.block.ring() == nil {
		t.Errorf("the agent is back: %d filters, %v", len(p.filters), err)
	}
}

// Only what the server is told that it failed is left to the server; nothing is on that it does not know of.
func TestFailuresLeaveAllToTheServer(t *testing.T) {
	p := newFake(known{receiver.Addr(): {2}})
	f := open(t, p)
	if err := errors.Join(f.Replace(alone, nil), f.Refresh(), f.Set(deliver)); err != nil {
		t.Fatal(err)
	}
	p.room = 1
	other := fastpath.Filter{Prefix: ident.PrefixOf(ident.FromName("b"), ident.Exact)}
	if err := f.Set(other); !errors.Is(err, fastpath.ErrFull) || p.block.ring() == nil {
		t.Errorf("no room: %v", err)
	}
	p.fails = errors.New("no agent")
	if err := f.Delete(prefix); err != nil || p.block.ring() != nil {
		t.Errorf("the agent refuses: %v, and packets are not punted", err)
	}
	if f.Refresh() == nil || p.block.ring() != nil {
		t.Error("the agent refuses, and Refresh does not say so, or turns the program on")
	}
	if err := f.Replace(alone, []fastpath.Filter{other}); err != nil || p.block.ring() != nil {
		t.Errorf("Replace: %v", err)
	}
	p.fails = nil
	if err := f.Refresh(); err != nil || p.block.ring() == nil {
		t.Errorf("the agent is back: %v", err)
	}
	if _, ok := p.filters[layout.Names(other.Prefix)[0]]; !ok || len(p.filters) != 1 {
		t.Errorf("filters: %v", p.filters)
	}
}

// Of keys for whose filters there is no room there are none, until there is.
func TestKeysWithoutRoomArePunted(t *testing.T) {
	p := newFake(known{receiver.Addr(): {2}})
	f := open(t, p)
	p.room = 7
	var all []fastpath.Filter
	for i := range 10 {
		for _, bits := range []int{128, 200} {
			one := deliver
			one.Prefix = ident.PrefixOf(ident.FromName(fmt.Sprint(i)), bits)
			all = append(all, one)
		}
	}
	if err := errors.Join(f.Replace(alone, all), f.Refresh()); err != nil {
		t.Fatal(err)
	}
	if len(p.filters) != 6 || p.block.ring() == nil {
		t.Errorf("with room for 3 keys of 2 filters: %d filters", len(p.filters))
	}
	p.room = 100
	for range trust {
		if err := f.Refresh(); err != nil {
			t.Fatal(err)
		}
	}
	if len(p.filters) != len(all) {
		t.Errorf("with room for all: %d filters", len(p.filters))
	}
}

// A program that still reads a ring sees that it is being written, or was.
func TestRingsTakeTurns(t *testing.T) {
	p := newFake(known{})
	f := open(t, p)
	if p.block.ring() != nil {
		t.Error("a ring is in use from the beginning")
	}
	if err := errors.Join(f.Replace(alone, nil), f.Refresh()); err != nil {
		t.Fatal(err)
	}
	if err := f.SetRoutes(chord.Routes{}); err != nil { // the first change below is one
		t.Fatal(err)
	}
	versions := map[uint64]bool{}
	for i := range 10 {
		routes := alone
		if i%2 == 1 {
			routes.Own = chord.OwnNone
		}
		before := slices.Clone(p.block.elements[1+f.active%layout.Rings])
		if err := f.SetRoutes(routes); err != nil {
			t.Fatal(err)
		}
		version := binary.NativeEndian.Uint64(p.block.ring())
		if version == 0 || versions[version] || version == binary.NativeEndian.Uint64(before) {
			t.Errorf("change %d has version %d, as an earlier one", i, version)
		}
		versions[version] = true
		if err := f.SetRoutes(routes); err != nil || binary.NativeEndian.Uint64(p.block.ring()) != version {
			t.Errorf("what has not changed is written: %v", err)
		}
	}
	// The next process.
	next := open(t, p)
	if err := errors.Join(next.Replace(alone, nil), next.Refresh()); err != nil {
		t.Fatal(err)
	}
	if version := binary.NativeEndian.Uint64(p.block.ring()); versions[version] {
		t.Errorf("the next process writes version %d again", version)
	}
}

// A program that is loaded anew with memory of another size has a block of its own.
func TestMemoryOfAnotherProgramIsTaken(t *testing.T) {
	p := newFake(known{receiver.Addr(): {2}})
	f := open(t, p)
	if err := errors.Join(f.Replace(alone, nil), f.Refresh(), f.Set(deliver)); err != nil {
		t.Fatal(err)
	}
	old := p.block
	p.block = newBlock()
	clear(p.filters)
	if err := f.Refresh(); err != nil || p.block.ring() == nil || len(p.filters) != 1 || !old.closed {
		t.Errorf("another block: %v, filters %v, the old one closed %t", err, p.filters, old.closed)
	}
	p.block = newBlock()
	p.block.elements[2] = nil
	for range 2 {
		if err := f.Refresh(); err == nil || !strings.Contains(err.Error(), "i3.c") {
			t.Errorf("another program: %v", err)
		}
	}
	if err := errors.Join(f.Set(deliver), f.SetRoutes(alone)); err != nil {
		t.Errorf("the server is told: %v", err)
	}
	p.block = newBlock()
	if err := f.Refresh(); err != nil || p.block.ring() == nil {
		t.Errorf("a program that can be used again: %v", err)
	}
}

// Where a program is loaded anew, filters that were written at run time are lost; somebody may have changed others.
func TestFiltersThatAreOthersAreWrittenAgain(t *testing.T) {
	p := newFake(known{receiver.Addr(): {2}})
	f := open(t, p)
	if err := errors.Join(f.Replace(alone, nil), f.Refresh(), f.Set(deliver)); err != nil {
		t.Fatal(err)
	}
	want := maps.Clone(p.filters)
	for what, change := range map[string]func(){
		"lost":    func() { clear(p.filters) },
		"changed": func() { p.filters[name] = "punt" },
		"another": func() { p.filters["priority 1 any"] = "punt" },
	} {
		change()
		f.age = trust - 1
		p.broken = true // when filters are written
		if err := f.Refresh(); err == nil || p.block.ring() != nil {
			t.Errorf("%s: cannot be written, and packets are not punted: %v", what, err)
		}
		p.broken = false
		if err := f.Refresh(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, p.filters); diff != "" || p.block.ring() == nil {
			t.Errorf("%s: %s", what, diff)
		}
	}
}

func TestAnotherProgramIsRefused(t *testing.T) {
	p := newFake(known{})
	p.block.elements[2] = p.block.elements[2][:100]
	if _, err := New(t.Context(), p); err == nil || !strings.Contains(err.Error(), "i3.c") {
		t.Errorf("a program with other memory: %v", err)
	}
}

func TestManyFiltersAreSetInBatches(t *testing.T) {
	p := newFake(known{})
	f := open(t, p)
	var all []fastpath.Filter
	for i := range 2*batch + 7 {
		all = append(all, fastpath.Filter{Prefix: ident.PrefixOf(ident.FromName(fmt.Sprint(i)), ident.Exact)})
	}
	err := errors.Join(f.Replace(alone, all), f.Refresh())
	if err != nil || len(p.filters) != len(all) || p.requests != 4 {
		t.Errorf("%d filters by %d requests: %v", len(p.filters), p.requests, err)
	}
}
