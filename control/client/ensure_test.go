package client

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A script that runs pergola may hold a lock: it is released when the script ends, whether a server goes on or not.
func TestServerDoesNotInheritFilesOfItsStarter(t *testing.T) {
	dir := t.TempDir()
	lock, err := os.Create(filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	inherited, err := syscall.Dup(int(lock.Fd())) // as a shell opens it: without close-on-exec
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(inherited)
	err = startServer(t.Context(), EnsureOptions{
		Command: []string{"/bin/sh", "-c", "echo its files:; ls -l /proc/$$/fd; exit 3"},
		LogFile: filepath.Join(dir, "log"),
	})
	if err == nil || !strings.Contains(err.Error(), "its files:") || strings.Contains(err.Error(), lock.Name()) {
		t.Errorf("it says %v", err)
	}
}
