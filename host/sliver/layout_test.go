package sliver

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/model/slice"
)

// newLayout makes one with a small image below a directory, and gives the file of the image's layer.
func newLayout(t *testing.T, dir string, image v1.Image) (layer string) {
	t.Helper()
	path, err := layout.Write(dir, empty.Index)
	if err == nil {
		err = path.AppendImage(image)
	}
	if err != nil {
		t.Fatal(err)
	}
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	digest, err := layers[len(layers)-1].Digest()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "blobs", "sha256", digest.Hex)
}

// A node that writes into a layout has the machine's root read it.
func TestLayoutsLeadNowhereElse(t *testing.T) {
	image := testImage(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	// replace moves a file or directory, and puts something in its place.
	replace := func(path, to string, with func(path, moved string) error) error {
		if err := os.Rename(path, to); err != nil {
			return err
		}
		return with(path, to)
	}
	absolute := func(path, moved string) error { return os.Symlink(moved, path) }
	relative := func(path, moved string) error {
		to, err := filepath.Rel(filepath.Dir(path), moved)
		if err != nil {
			return err
		}
		return os.Symlink(to, path)
	}
	fifo := func(path, _ string) error { return unix.Mkfifo(path, 0o644) }
	large := func(path, _ string) error {
		return errors.Join(os.WriteFile(path, nil, 0o644), os.Truncate(path, 1<<40))
	}
	itself := func(path, _ string) error {
		index := `{"schemaVersion": 2, "manifests": [{` +
			`"mediaType": "application/vnd.oci.image.index.v1+json", "size": 1, ` +
			`"digest": "sha256:` + strings.Repeat("a", 64) + `"}]}`
		return errors.Join(os.WriteFile(path, []byte(index), 0o644),
			os.WriteFile(filepath.Join(filepath.Dir(path), "blobs", "sha256", strings.Repeat("a", 64)),
				[]byte(index), 0o644))
	}
	for name, c := range map[string]struct {
		what   string // in the layout; empty: its layer
		within bool   // moved to another place in the layout
		with   func(path, moved string) error
		want   string // empty: it can be had
	}{
		"the index is a link":                {"index.json", false, absolute, "path escapes"},
		"the index is a relative link":       {"index.json", false, relative, "path escapes"},
		"blobs are behind a link":            {"blobs", false, absolute, "path escapes"},
		"a directory of them is":             {"blobs/sha256", false, relative, "path escapes"},
		"the layer is a link":                {"", false, absolute, "path escapes"},
		"the layer is a relative link":       {"", false, relative, "path escapes"},
		"a link to its own files":            {"blobs/sha256", true, relative, ""},
		"the index keeps its reader waiting": {"index.json", false, fifo, "not a regular file"},
		"the layer keeps its reader waiting": {"", false, fifo, "not a regular file"},
		"the index has no end":               {"index.json", false, large, "longer than 4 MiB"},
		"the index holds itself":             {"index.json", false, itself, "find image: none for"},
	} {
		t.Run(name, func(t *testing.T) {
			top, err := filepath.EvalSymlinks(t.TempDir())
			must(err)
			dir := filepath.Join(top, "layout")
			path := newLayout(t, dir, image)
			if c.what != "" {
				path = filepath.Join(dir, c.what)
			}
			to := filepath.Join(top, "elsewhere")
			if c.within {
				to = filepath.Join(dir, "elsewhere")
			}
			must(replace(path, to, c.with))
			r := &Runtime{images: images{dir: filepath.Join(top, "images")}}
			_, err = r.images.fromLayout(dir)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			err = r.Available(t.Context(), slice.Rootfs{Kind: slice.RootfsLayout, Ref: dir})
			if c.what != "" && (err == nil) != (c.want == "") {
				t.Errorf("it is said to be available: %v", err)
			}
			if left, err := filepath.Glob(filepath.Join(r.images.roots(), ".new-*")); err != nil ||
				len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

func TestTheWayToALayoutIsNoLinkAnyMore(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	newLayout(t, filepath.Join(top, "real"),
		mutate.MediaType(testImage(t), "application/vnd.oci.image.manifest.v1+json"))
	link := filepath.Join(top, "link")
	if err := os.Symlink("real", link); err != nil {
		t.Fatal(err)
	}
	if err := hasLayout(link); err != nil {
		t.Errorf("root may say a link: %v", err)
	}
	i := images{dir: filepath.Join(top, "images")}
	if _, err := i.fromLayout(link); !errors.Is(err, unix.ELOOP) {
		t.Errorf("what has become a link since it was resolved: %v", err)
	}
	if err := hasLayout(filepath.Join(top, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
