package sliver

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/lab/testkit"
)

func TestLogIsTrimmed(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	write := func(text string) {
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	write(strings.Repeat("old\n", 1000) + "recent\n")
	if err := trimLog(name, 7); err != nil {
		t.Fatal(err)
	}
	write("new\n")
	kept, _ := os.ReadFile(name + ".1")
	now, _ := os.ReadFile(name)
	if string(kept) != "recent\n" || string(now) != "new\n" {
		t.Errorf("kept %q, now %q", kept, now)
	}
}

func TestLogIsEmptiedOnAFullDisk(t *testing.T) {
	testkit.Root(t)
	name := filepath.Join(smallDisk(t, "1m"), "log")
	if err := os.WriteFile(name, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := trimLog(name, 1<<19); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("got %v", err)
	}
	if fi, err := os.Stat(name); err != nil || fi.Size() > 0 || exists(name+".1") {
		t.Errorf("the log has %d bytes, %v", fi.Size(), err)
	}
}

func TestLogsThatGrowFastAreTrimmedOften(t *testing.T) {
	const bound = 4 << 20
	pause, size, largest := trimSeldom, int64(0), int64(0)
	const rate = 64 << 20 // a second
	for range 100 {
		size += int64(pause.Seconds() * rate)
		longest := size
		if size > bound {
			size = 0
		}
		largest = max(largest, longest)
		pause = nextTrim(pause, longest, bound)
	}
	if pause > trimSeldom/10 || largest > rate {
		t.Errorf("pause %v, the log had %d MiB", pause, largest>>20)
	}
	for range 20 {
		pause = nextTrim(pause, 0, bound)
	}
	if pause != trimSeldom {
		t.Errorf("pause %v when nothing grows", pause)
	}
}
