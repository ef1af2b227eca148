package wire_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pergola-net/pergola/agent/wire"
	"github.com/pergola-net/pergola/test/testkit"
)

// An interface that a user deletes in his node takes the port along, and whoever opened the substrate hears of it.
func TestDeletionInANodeIsTold(t *testing.T) {
	l := newLab(t)
	l.must(l.Close())
	var told atomic.Int32
	var err error
	l.Substrate, err = wire.Open(l.ctx, wire.Config{StateDir: l.dir, Deleted: func() { told.Add(1) }})
	l.must(err)
	port := l.port("a", nil, "192.0.2.0/31")
	before := told.Load()
	if out, err := l.exec("a", "ip", "link", "delete", "eth0"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	testkit.Eventually(t, func() error {
		if _, there := l.observe().Ports[port]; there || told.Load() == before {
			return errors.New("not told, or not gone")
		}
		return nil
	}, 10*time.Second, "the deletion to be told")
}
