package sliver

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// noGroups is a machine without cgroups of slices.
type noGroups struct{ cgroups }

func (noGroups) children(string) ([]string, error) { return nil, nil }

func TestLogsOfSlicesThatAreGoneStayForAWeekAndWithinABound(t *testing.T) {
	now := time.Now()
	r := &Runtime{cfg: Config{StateDir: t.TempDir(), LogDir: t.TempDir()}, groups: noGroups{}}
	if err := os.MkdirAll(r.slicesDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(slice string, bytes int64, age time.Duration) {
		dir := filepath.Join(r.cfg.LogDir, slice)
		name := filepath.Join(dir, "a.log")
		if err := r.makeLogDir(slice); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(name, bytes); err != nil { // sparse
			t.Fatal(err)
		}
		for _, path := range []string{name, filepath.Join(dir, ownerFile), dir} {
			if err := os.Chtimes(path, time.Time{}, now.Add(-age)); err != nil {
				t.Fatal(err)
			}
		}
	}
	write("recent", 100<<20, time.Hour)
	write("week", 100, oldLogsAge-time.Minute)
	write("older", 100, oldLogsAge+time.Minute)
	write("big", 200<<20, 2*time.Hour)
	write("of another server", 100, 2*oldLogsAge)
	another := filepath.Join(r.cfg.LogDir, "of another server", ownerFile)
	if err := os.WriteFile(another, []byte("/run/another"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(r.cfg.LogDir, "apt"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(filepath.Join(r.cfg.LogDir, "apt"), time.Time{}, now.Add(-2*oldLogsAge)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.cfg.LogDir, "server.log"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.dropOldLogs(now); err != nil {
		t.Fatal(err)
	}
	var left []string
	entries, err := os.ReadDir(r.cfg.LogDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := []string{"apt", "of another server", "recent", "server.log"}; !slices.Equal(left, want) {
		t.Errorf("left are %v, want %v: what is older than a log that does not fit goes, too", left, want)
	}
}
