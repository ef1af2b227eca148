package answers

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"
)

func TestLeaseThatIsNotRenewedIsSeen(t *testing.T) {
	const ttl, old = 10 * time.Second, 9 * time.Second
	dirs := map[string]string{"h1": t.TempDir(), "h2": t.TempDir()}
	renewed := func(host string, at time.Duration) {
		t.Helper()
		err := os.MkdirAll(filepath.Join(dirs[host], "fence"), 0o700)
		if err == nil {
			err = os.WriteFile(filepath.Join(dirs[host], "fence", "until"),
				[]byte(strconv.FormatInt(int64(at+ttl), 10)), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	now := uptime()
	leases, last := FollowLeases(dirs, ttl), map[string]time.Duration{}
	var r Renewals
	renewed("h1", now-3*time.Second)
	renewed("h2", now-old)
	for range 2 {
		if err := leases.look(&r, last); err != nil {
			t.Fatal(err)
		}
	}
	if len(r.Apart) > 0 || r.Longest < old {
		t.Errorf("without a renewal: %+v", r)
	}
	renewed("h1", now-time.Second)
	if err := leases.look(&r, last); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(r.Apart, []time.Duration{2 * time.Second}) {
		t.Errorf("after a renewal: %+v", r)
	}
	if _, err := FollowLeases(map[string]string{"h3": t.TempDir()}, ttl).Follow(time.Millisecond,
		nil); err == nil {
		t.Error("a host that has written nothing down is none")
	}
}

func TestTimeStopsAtAnError(t *testing.T) {
	asked := 0
	took, err := Time(5, 0, func() error { asked++; return nil })
	if err != nil || len(took) != 5 || asked != 5 {
		t.Errorf("%v, %v after %d", took, err, asked)
	}
	if _, err := Time(5, 0, func() error { return errors.New("no") }); err == nil {
		t.Error("no error")
	}
}
