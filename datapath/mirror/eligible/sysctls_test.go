package eligible

import (
	"testing"
	"time"

	"github.com/pergola-net/pergola/test/testkit"
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
