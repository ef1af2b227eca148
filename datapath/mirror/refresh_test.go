package mirror

import (
	"fmt"
	"testing"
	"time"

	"github.com/pergola-net/pergola/datapath/mirror/signs"
	"github.com/pergola-net/pergola/lab/testkit"
)

// setMTU6 changes eth0's MTU for IPv6, waits until the programs know, and says how long that took.
func (l *lab) setMTU6(mtu int) time.Duration {
	l.Helper()
	l.script(fmt.Sprintf("echo %d >/proc/sys/net/ipv6/conf/eth0/mtu", mtu))
	begun := time.Now()
	testkit.Eventually(l, func() error {
		if have := l.leg(0).MTU; have != mtu {
			return fmt.Errorf("it is %d", have)
		}
		return nil
	}, 10*time.Second, fmt.Sprintf("the programs to know an MTU of %d", mtu))
	return time.Since(begun)
}

// undisturbed fails if the router was read again, or left the fast path.
func (l *lab) undisturbed() {
	l.Helper()
	s, err := l.mirror.Status(l.name)
	if err != nil {
		l.Fatal(err)
	}
	if s.Resyncs > 0 || s.Left != [2]int{} || !s.IPv4.FastPath || !s.IPv6.FastPath {
		l.Errorf("the router did not stay on the fast path: %+v", s)
	}
}

func TestIPv6MTUIsFollowedWhenItIsWritten(t *testing.T) {
	testkit.Root(t)
	heard, err := signs.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := heard.Close(); err != nil {
			t.Error(err)
		}
	})
	l := newLab(t, func(c *Config) { c.Signs = heard })
	l.synced()
	for _, mtu := range []int{1400, 1300, 1450, 1500} {
		t.Logf("the programs know an MTU of %d after %v", mtu, l.setMTU6(mtu))
		l.verify()
	}
	l.undisturbed()
}

// Where no sign tells of it, the audit notices, and takes the router off for nothing.
func TestIPv6MTUIsNoDifference(t *testing.T) {
	differences := make(chan []Difference, 10)
	l := newLab(t, func(c *Config) {
		c.AuditRate = 10_000
		c.OnDifference = func(_ string, found []Difference) { differences <- found }
	})
	l.synced()
	for _, mtu := range []int{1400, 1500} {
		t.Logf("the programs know an MTU of %d after %v", mtu, l.setMTU6(mtu))
	}
	l.synced()
	l.undisturbed()
	if len(differences) > 0 {
		t.Errorf("the audit reports %v", <-differences)
	}
}
