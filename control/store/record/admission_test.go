package record

import (
	"testing"
	"time"

	"github.com/pergola-net/pergola/control/pki"
	"github.com/pergola-net/pergola/control/store/storetest"
)

// A server that was off for long receives later admissions only from the servers that joined meanwhile.
func TestAServerThatWasOffAcceptsLaterAdmissions(t *testing.T) {
	t.Parallel()
	now := time.Now()
	authority := storetest.NewAuthority(t)
	was := storetest.Identity(t, authority, "h2", pki.Server)().Certificate
	known := Admission{Key: keyOf(was), Since: now.Add(-2 * time.Hour)}
	next := storetest.Identity(t, authority, "h2", pki.Server)().Certificate
	if known.Check(was) != nil || known.Check(next) == nil || !known.MayBeOutdated(next) {
		t.Error("a host that joined again two hours after the known admission is refused")
	}
	if later := (Admission{Key: keyOf(next), Since: now}); later.Check(was) == nil || later.MayBeOutdated(was) {
		t.Error("a host that was replaced is accepted")
	}
	if removed := (Admission{Since: now}); removed.Check(next) == nil || removed.MayBeOutdated(next) {
		t.Error("a host that was removed is accepted")
	}
}
