package answers

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

func TestLeaseThatIsNotRenewedIsSeen(t *testing.T) {
	const ttl = 10 * time.Second
	dirs := map[string]string{"h1": t.TempDir(), "h2": t.TempDir()}
	for host, age := range map[string]time.Duration{"h1": time.Second, "h2": 9 * time.Second} {
		if err := os.Mkdir(filepath.Join(dirs[host], "fence"), 0o700); err != nil {
			t.Fatal(err)
		}
		until := strconv.FormatInt(int64(uptime()-age+ttl), 10)
		if err := os.WriteFile(filepath.Join(dirs[host], "fence", "until"), []byte(until), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := FollowLeases(dirs, ttl).Longest(50*time.Millisecond, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got["h1"] < time.Second || got["h2"] < 9*time.Second || got["h2"]-got["h1"] < 7*time.Second {
		t.Errorf("not renewed for %v", got)
	}
	if _, err := FollowLeases(map[string]string{"h3": t.TempDir()}, ttl).Longest(time.Millisecond,
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
