package mirror

import (
	"log/slog"
	"testing"

	"github.com/pergola-net/pergola/datapath/fib"
	"github.com/pergola-net/pergola/lab/testkit"
)

// A port of an earlier process that nobody takes over keeps the others off the fast path for the time of a lease, and
// no longer.
func TestWhatIsNotTakenOverIsDropped(t *testing.T) {
	testkit.Root(t)
	maps := newMaps(t)
	open := func() *fib.FIB {
		f, err := fib.Open(maps)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	f := open()
	r, err := f.NewRouter(1)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.SetLeg(7, fib.Leg{MTU: 1500, Up: true, IPv4: true}); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	f = open()
	defer func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}()
	m := &Mirror{cfg: Config{FIB: f, Log: slog.New(slog.DiscardHandler)}}
	if m.takenOver(false) {
		t.Error("the lease is renewed though a port is an earlier process's")
	}
	if !m.takenOver(true) || len(f.Earlier()) != 0 || f.Usage().Routers != 0 {
		t.Errorf("left over: %v, %+v", f.Earlier(), f.Usage())
	}
}
