package sockets

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"runtime/pprof"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/sdk/message"
)

// All hosts hear of a change of what is stored, so it costs more than other requests.
func TestChangesOfWhatIsStoredAreFew(t *testing.T) {
	const changes = 4
	b := newBed(t)
	c := b.raw(t, "west")
	start := time.Now()
	for range changes {
		got := ask(t, c, `{"do": "set_queues", "interface": "eth1", "queues": [{"queue": 1, "share": 3}]}`)
		if !strings.Contains(got, `"ok"`) {
			t.Fatal(got)
		}
	}
	least := time.Second * (changes*costOfChange - burst) / bytesPerSecond
	if took := time.Since(start); took < least {
		t.Errorf("%d changes took %v, want %v at least", changes, took, least)
	}
	if got := ask(t, b.raw(t, "west"), `{"do": "reserve"}`); !strings.Contains(got, "nothing to reserve") {
		t.Errorf("one that makes no sense: %s", got)
	}
}

// Slices of a host change what is stored in turn, however many requests of one of them wait.
func TestSlicesChangeWhatIsStoredInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const seconds = 20
		ctx, end := context.WithCancel(t.Context())
		s := &Sockets{changes: rate.NewLimiter(1, 1)} // a second
		greedy := &socket{share: newShare(), sockets: s, ctx: ctx}
		other := &socket{share: newShare(), sockets: s, ctx: ctx}
		change := message.Request{Do: message.DoSetQueues}
		var changes atomic.Int64
		for range 10 * maxConnections {
			go func() {
				for {
					done, err := greedy.admit(change)
					if err != nil {
						return
					}
					changes.Add(1)
					done()
				}
			}()
		}
		time.Sleep(seconds * time.Second)
		if n := changes.Load(); n < seconds || n > seconds+1 {
			t.Errorf("%d changes in %d s", n, seconds)
		}
		start := time.Now()
		done, err := other.admit(change)
		if took := time.Since(start); err != nil || took > 2*time.Second {
			t.Errorf("another slice waited for %s: %v", took, err)
		}
		done()
		end()
		synctest.Wait()
		if len(greedy.changes) > 0 {
			t.Error("a request that ended while it waited keeps the others of its slice waiting")
		}
	})
}

// Of a slice, one answer that may be long is made at a time. The requests that wait for it keep no thread: the process
// ends when it has too many.
func TestOneListAtATimeForEachSlice(t *testing.T) {
	b := newBed(t)
	b.nodes.mu.Lock()
	b.nodes.listing = make(chan struct{})
	b.nodes.mu.Unlock()
	before := threads(t)
	var conns []*net.UnixConn
	for _, node := range []string{"west", "east"} {
		for range maxConnections {
			c := b.raw(t, node)
			if _, err := c.Write([]byte(`{"do": "filters"}`)); err != nil {
				t.Fatal(err)
			}
			conns = append(conns, c)
		}
	}
	<-b.nodes.listing // the first one is under way
	testkit.Eventually(t, func() error {
		if n := waiting(t); n != len(conns)-1 {
			return fmt.Errorf("%d of %d requests wait", n, len(conns))
		}
		return nil
	}, 10*time.Second, "requests to wait")
	if now := threads(t); now >= before+len(conns)-1 {
		t.Errorf("%d requests wait; there were %d threads, and are %d", len(conns)-1, before, now)
	}
	<-b.nodes.listing // it ends
	for range len(conns) - 1 {
		<-b.nodes.listing
		<-b.nodes.listing
	}
	for _, c := range conns {
		if n, err := c.Read(make([]byte, 1000)); n == 0 || err != nil {
			t.Errorf("a request is not answered: %v", err)
		}
	}
}

// waiting counts the requests that wait until they may be carried out.
func waiting(t *testing.T) int {
	t.Helper()
	var all bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&all, 2); err != nil {
		t.Fatal(err)
	}
	return strings.Count(all.String(), "(*socket).enter(")
}

func threads(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}
