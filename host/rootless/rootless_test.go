package rootless

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestSafe(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "own")
	if err := Safe(dir); err != nil {
		t.Errorf("one that is not there: %v", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Safe(dir); err != nil {
		t.Error(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil { // whatever the umask
		t.Fatal(err)
	}
	if Safe(dir) == nil {
		t.Error("others may write there")
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	if Safe(link) == nil {
		t.Error("a symbolic link leads where somebody else wants")
	}
	if os.Getuid() != 0 {
		return
	}
	if err := errors.Join(os.Chmod(dir, 0o700), os.Chown(dir, 61501, 61501)); err != nil {
		t.Fatal(err)
	}
	if Safe(dir) == nil {
		t.Error("another user has made it")
	}
}

// TestDeadHolderIsNone: the number of a process that ended may be another's by now.
func TestDeadHolderIsNone(t *testing.T) {
	dir := t.TempDir()
	for text, held := range map[string]bool{"": false, "1": false, "x y 1\n": false, "1 x 2\n": false,
		"999999999 5 2\n": false} {
		if err := os.WriteFile(noteIn(dir), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if Held(dir) != held {
			t.Errorf("%q: held is %v", text, !held)
		}
	}
	begun, err := startOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	note := fmt.Sprintf("%d %s 1\n", os.Getpid(), begun)
	if err := os.WriteFile(noteIn(dir), []byte(note), 0o600); err != nil {
		t.Fatal(err)
	}
	if !Held(dir) {
		t.Error("this process is not found")
	}
	if err := Leave(dir); err != nil || !Held(dir) {
		t.Errorf("left namespaces that this process is not in: %v", err)
	}
}

func TestDeniedHasARemedy(t *testing.T) {
	var d *DeniedError
	if err := denied(unix.EPERM); !errors.As(err, &d) || d.Remedy == "" || !errors.Is(err, unix.EPERM) {
		t.Errorf("%v", err)
	}
	if err := denied(unix.EINVAL); !errors.As(err, &d) || !strings.Contains(d.Remedy, "CONFIG_USER_NS") {
		t.Errorf("%v", err)
	}
	if err := denied(unix.ENOENT); errors.As(err, &d) {
		t.Errorf("a missing program is taken for denied namespaces: %v", err)
	}
}
