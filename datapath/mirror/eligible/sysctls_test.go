package eligible

import (
	"testing"
	"time"

	"github.com/pergola-net/pergola/lab/testkit"
)

// What nothing announces is noticed by the audit.
func TestParametersThatLetARouterLearn(t *testing.T) {
	testkit.Root(t)
	testkit.LeakCheck(t)
	b := newWatched(t, newWatcher(t, Config{Interval: 20 * time.Millisecond, Audit: 100 * time.Millisecond}))
	b.await("", "")
	for sysctl, reason := range map[string]string{
		"conf/all/accept_redirects": "net.ipv4.conf.all.accept_redirects is 1",
		"ip_forward_use_pmtu":       "net.ipv4.ip_forward_use_pmtu is 1",
	} {
		b.run("echo 1 >/proc/sys/net/ipv4/" + sysctl)
		b.await(reason, "")
		b.run("echo 0 >/proc/sys/net/ipv4/" + sysctl)
		b.await("", "")
	}
}

// An interface that does not forward takes redirects by its own setting, and what it has learnt is of force for all.
func TestRedirectsOfAnInterfaceThatDoesNotForward(t *testing.T) {
	testkit.Root(t)
	testkit.LeakCheck(t)
	b := newWatched(t, newWatcher(t, Config{Interval: 20 * time.Millisecond, Audit: 100 * time.Millisecond}))
	conf := "/proc/sys/net/ipv4/conf/eth1/"
	b.run("echo 1 >" + conf + "accept_redirects; echo 0 >" + conf + "forwarding")
	b.await("net.ipv4.conf.eth1.forwarding is 0, and its accept_redirects 1", "")
	b.run("echo 0 >" + conf + "accept_redirects")
	b.await("", "")
	b.run("echo 1 >" + conf + "forwarding; echo 1 >" + conf + "accept_redirects")
	b.await("", "")
}
