package sliver

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/model/slice"
)

func TestPathsDoNotLeadOutOfWhatIsAllowed(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	allowed, secret := filepath.Join(top, "allowed"), filepath.Join(top, "secret")
	for _, dir := range []string{filepath.Join(allowed, "lab"), secret} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{
		"lab/out": secret, "lab/up": "../..", "lab/in": allowed + "/lab", "lab/loop": "loop",
	} {
		if err := os.Symlink(to, filepath.Join(allowed, link)); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		allowed:                    "",
		allowed + "/lab":           "",
		allowed + "/lab/in":        "",
		allowed + "/lab/out":       "it leads to " + secret + ", out of " + allowed,
		allowed + "/lab/up/secret": "it leads to " + secret,
		allowed + "/lab/in/out":    "it leads to " + secret,
		allowed + "/lab/loop":      "too many links",
		allowed + "/lab/none":      "no such file or directory",
	} {
		for _, s := range []Spec{
			{Binds: []slice.Bind{{Source: path}}}, {Rootfs: slice.Rootfs{Kind: slice.RootfsDir, Ref: path}},
			{Rootfs: slice.Rootfs{Kind: slice.RootfsLayout, Ref: path}},
		} {
			free, err := s.resolved()
			if out := strings.HasPrefix(want, "it leads"); (want == "" || out) != (err == nil) {
				t.Errorf("%s, to be anywhere: %v", path, err)
			}
			s.Beneath = map[string]string{path: allowed}
			bound, err := s.resolved()
			if want == "" && (err != nil || bound.Rootfs != free.Rootfs) ||
				want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s: %v, want %q", path, err, want)
			}
		}
	}
	// What was resolved must not have become a link since.
	if _, err := openPlain(allowed + "/lab/in"); !errors.Is(err, unix.ELOOP) {
		t.Errorf("a link is opened: %v", err)
	}
	fd, err := openPlain(allowed + "/lab")
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
}
