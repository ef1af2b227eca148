package server

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

// Versions before this one had the offline cache in another directory.
func TestOfflineCacheOfAnOlderVersionIsAdopted(t *testing.T) {
	s := &server{Config: Config{StateDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}}
	write := func(dir, text string) {
		t.Helper()
		path := filepath.Join(s.StateDir, dir)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(path, "names"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.adoptOfflineCache() // nothing to do
	write("memory", "old")
	s.adoptOfflineCache()
	write("memory", "older")
	s.adoptOfflineCache() // what is there stays
	if text, err := os.ReadFile(filepath.Join(s.offlineCache(), "names")); err != nil || string(text) != "old" {
		t.Errorf("%q, %v", text, err)
	}
	// A machine that joins another cluster keeps neither.
	if err := s.dropOfflineCache(); err != nil {
		t.Fatal(err)
	}
	s.adoptOfflineCache()
	if left, err := os.ReadDir(s.StateDir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
