package speakers

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/signalling/rsvp"
)

// daemons note what they were told, from the try with this number on.
type daemons struct {
	from    int
	starts  atomic.Int32
	mu      sync.Mutex // guards what follows
	told    []string
	refused int
}

func (d *daemons) Configure(_ context.Context, id sliver.ID, lines []string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.refused+1 < d.from {
		d.refused++
		return errors.New("no daemon")
	}
	d.told = append(d.told, id.Node+": "+strings.Join(lines, "|"))
	return nil
}

func (d *daemons) Started(sliver.ID) string { return strconv.Itoa(int(d.starts.Load())) }

func (d *daemons) all() []string {
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.told
}

// Daemons that take nothing are asked more and more rarely, and others do not wait for them. (Time is synctest's: a
// pause takes none.)
func TestDaemonsThatTakeNothingHoldNobodyUp(t *testing.T) {
	const stuck = askedAtOnce - 1
	synctest.Test(t, func(t *testing.T) {
		s := newSpeakers()
		stopped := &stoppedDaemons{}
		go s.Advertise(t.Context(), stopped)
		for i := range stuck {
			id := sliver.ID{Slice: 1, Node: "stopped" + strconv.Itoa(i)}
			s.setUnreserved(id, "lab", "eth1", reserved(0))
			s.setAdvertised(id, "eth1", reserved(0))
		}
		s.setUnreserved(routerB, "lab", "eth1", reserved(0))
		s.setAdvertised(routerB, "eth1", reserved(0))
		time.Sleep(configureTime / 4)
		s.setUnreserved(routerB, "lab", "eth1", reserved(900))
		s.setAdvertised(routerB, "eth1", reserved(900))
		time.Sleep(configureTime / 2)
		if n := stopped.told.Load(); n != 2 {
			t.Errorf("b is told %d times, and others have not answered yet", n)
		}
		before := stopped.asked.Load()
		time.Sleep(10 * time.Minute)
		if n := stopped.asked.Load() - before; n < stuck*10 || n > stuck*40 {
			t.Errorf("those that take nothing are asked %d times in ten minutes", n)
		}
	})
}

const configureTime = 5 * time.Second

// stoppedDaemons take nothing, but for those of b.
type stoppedDaemons struct{ asked, told atomic.Int32 }

func (d *stoppedDaemons) Configure(ctx context.Context, id sliver.ID, _ []string) error {
	if id == routerB {
		d.told.Add(1)
		return nil
	}
	d.asked.Add(1)
	select {
	case <-ctx.Done():
	case <-time.After(configureTime):
	}
	return errors.New("no answer")
}

func (d *stoppedDaemons) Started(sliver.ID) string { return "" }

func TestDaemonsAreToldOfLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpeakers()
		set := func(name string, is rsvp.Bandwidth) {
			s.setUnreserved(routerB, "lab", name, is)
			s.setAdvertised(routerB, name, is)
		}
		frr := &daemons{from: 3}
		go s.Advertise(t.Context(), frr)
		set("eth1", reserved(0))
		set("eth2", rsvp.Bandwidth{}) // FRR floods no link without bandwidth
		time.Sleep(floodAll / 2)
		all := frr.all()
		if len(all) != 1 || !strings.HasPrefix(all[0], "b: interface eth1|link-params|enable|") ||
			!strings.Contains(all[0], "|max-bw 1000|max-rsv-bw 1000|unrsv-bw 0 1000|") ||
			!strings.Contains(all[0], "|interface eth2|link-params|no enable|") {
			t.Fatalf("when daemons take it, they are told %q", all)
		}
		// One line for each priority, if a threshold is passed; else from time to time.
		for _, b := range []uint64{10, 20, 500, 510} {
			set("eth1", reserved(b))
			synctest.Wait()
		}
		const some = "b: interface eth1|link-params|unrsv-bw 0 500|unrsv-bw 1 500|"
		if all = frr.all(); len(all) != 2 || !strings.HasPrefix(all[1], some) {
			t.Errorf("they are told %q, want last %q", all, some)
		}
		time.Sleep(2 * floodAll)
		if all = frr.all(); len(all) != 3 || !strings.Contains(all[2], "|unrsv-bw 0 490|") {
			t.Errorf("later they are told %q, want 490", all)
		}
		// Daemons that have started anew, and a router that speaks anew, are told everything.
		frr.starts.Add(1)
		time.Sleep(floodAll)
		if all = frr.all(); len(all) != 4 || !strings.Contains(all[3], "|enable|") {
			t.Errorf("after they have started anew, they are told %q", all)
		}
		s.mu.Lock()
		s.forgetLocked(routerB)
		s.mu.Unlock()
		time.Sleep(2 * floodAll)
		set("eth1", reserved(0))
		time.Sleep(floodAll)
		if all = frr.all(); len(all) != 5 || !slices.Contains(strings.Split(all[4], "|"), "enable") {
			t.Errorf("after the router has started anew, they are told %q", all)
		}
		// So are those of a router that is to flood links from now on, and only they.
		s.setFloods(routerB, false)
		s.setUnreserved(routerB, "lab", "eth1", reserved(900))
		time.Sleep(2 * floodAll)
		if all = frr.all(); len(all) != 5 {
			t.Errorf("one that is to flood no links is told %q", all[5:])
		}
		s.setFloods(routerB, true)
		time.Sleep(floodAll / 2)
		if all = frr.all(); len(all) != 6 || !strings.Contains(all[5], "|enable|") {
			t.Errorf("one that is to flood links is told %q", all[5:])
		}
	})
}
