package sliver

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/control/blob"
	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/model/slice"
)

// archive makes a tar stream: a name that ends with / is a directory, a value that starts with -> a symbolic link.
func archive(t testing.TB, entries map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for name, data := range entries {
		h := &tar.Header{Name: name, Mode: 0o755, Size: int64(len(data)), Typeflag: tar.TypeReg}
		if link, ok := strings.CutPrefix(data, "->"); ok {
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, link, 0
		} else if strings.HasSuffix(name, "/") {
			h.Typeflag, h.Size = tar.TypeDir, 0
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := io.WriteString(w, data); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// shell gives the files of a small root file system: sh, cat, stat and their libraries.
func shell(t testing.TB) map[string]string {
	t.Helper()
	files := map[string]string{"etc/motto": "small is beautiful\n", "home/": ""}
	for _, program := range []string{"sh", "cat", "stat", "id"} {
		path, err := exec.LookPath(program)
		if err != nil {
			t.Fatal(err)
		}
		libs, err := exec.Command("ldd", path).Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range append(regexp.MustCompile(`/lib\S+`).FindAllString(string(libs), -1), path) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			files[strings.TrimPrefix(file, "/")] = string(data)
		}
	}
	return files
}

// The same probe in every kind of root: files belong to root, and can be changed without the others seeing it.
const imageProbe = `cat /etc/motto; stat -c %U:%G:%u /etc/motto; echo changed >/etc/motto; cat /etc/motto; id -u`

const imageAnswer = "small is beautiful\nUNKNOWN:UNKNOWN:0\nchanged\n0"

func TestRootFromTar(t *testing.T) {
	r := newRuntime(t)
	prepare(t, r)
	data := archive(t, shell(t))
	sum := sha256.Sum256(data)
	digest := hex.EncodeToString(sum[:])
	if err := os.WriteFile(r.BlobPath(digest), data, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"a", "b"} {
		s := spec(node)
		s.Rootfs = slice.Rootfs{Kind: slice.RootfsTar, Ref: digest}
		id, _ := up(t, r, s)
		if got := sh(t, r, id, imageProbe); got != imageAnswer {
			t.Errorf("inside: %q", got)
		}
	}
}

func TestRootFromDirectory(t *testing.T) {
	r := newRuntime(t)
	prepare(t, r)
	dir := t.TempDir()
	if err := untar(bytes.NewReader(archive(t, shell(t))), dir); err != nil {
		t.Fatal(err)
	}
	s := spec("denver")
	s.Rootfs = slice.Rootfs{Kind: slice.RootfsDir, Ref: dir}
	id, _ := up(t, r, s)
	if got := sh(t, r, id, imageProbe); got != imageAnswer {
		t.Errorf("inside: %q", got)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "etc/motto")); err != nil ||
		string(data) != "small is beautiful\n" {
		t.Errorf("the directory itself: %q, %v", data, err)
	}
}

func TestRootFromShiftedCopy(t *testing.T) {
	testkit.Root(t)
	i := images{dir: t.TempDir()}
	dir := t.TempDir()
	if err := untar(bytes.NewReader(archive(t, map[string]string{"a/b": "data", "c": "->a/b"})), dir); err != nil {
		t.Fatal(err)
	}
	copied, err := i.shifted(dir, uidBase(testSlice))
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("stat", "-c", "%u:%g %a", copied+"/a/b", copied+"/c").Output()
	if want := "1872756736:1872756736 755\n1872756736:1872756736 777\n"; err != nil || string(out) != want {
		t.Errorf("got %s, %v, want %s", out, err, want)
	}
	if err := i.forget(testSlice); err != nil || exists(copied) {
		t.Errorf("copy is left: %v", err)
	}
}

// testImage has two layers, the second of which removes a file of the first.
func testImage(t testing.TB) v1.Image {
	t.Helper()
	image := empty.Image
	files := shell(t)
	files["etc/gone"] = "x"
	files["etc/passwd"], files["etc/group"] = "root:x:0:0::/:/bin/sh\nspeaker:x:123:45::/:/bin/sh\n", "bgp:x:45:\n"
	for _, layer := range []map[string]string{files, {"etc/.wh.gone": ""}} {
		data := archive(t, layer)
		l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(data)), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if image, err = mutate.AppendLayers(image, l); err != nil {
			t.Fatal(err)
		}
	}
	image, err := mutate.Config(image, v1.Config{
		Entrypoint: []string{"sh", "-c"},
		Cmd:        []string{"pwd; echo $FROM; cat /etc/gone; stat -c %u:%g /proc/self/; exec cat"},
		Env:        []string{"FROM=image"}, WorkingDir: "/home", User: "speaker",
	})
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func checkImage(t *testing.T, r *Runtime, from slice.Rootfs) {
	t.Helper()
	s := spec("denver")
	s.Rootfs = from
	id, _ := up(t, r, s)
	await(t, "output of the image's command", func() bool {
		data, _ := os.ReadFile(r.Log(id))
		return string(data) == "/home\nimage\ncat: /etc/gone: No such file or directory\n123:45\n"
	})
	if err := r.Delete(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	os.Remove(r.Log(id))
}

func TestRootFromLayout(t *testing.T) {
	r := newRuntime(t)
	prepare(t, r)
	dir := t.TempDir()
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := path.AppendImage(testImage(t)); err != nil {
		t.Fatal(err)
	}
	checkImage(t, r, slice.Rootfs{Kind: slice.RootfsLayout, Ref: dir})
}

// A directory may hold other layers than its manifest, or that of a registry's image, says.
func TestALayoutStandsForNoOtherImage(t *testing.T) {
	i := images{dir: t.TempDir()}
	roots := map[string]bool{}
	for range 2 {
		dir := t.TempDir()
		path, err := layout.Write(dir, empty.Index)
		if err != nil {
			t.Fatal(err)
		}
		if err := path.AppendImage(empty.Image); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			root, err := i.fromLayout(dir)
			if err != nil {
				t.Fatal(err)
			}
			roots[root] = true
		}
	}
	root, err := i.fromImage("registry/image", empty.Image, "")
	if err != nil {
		t.Fatal(err)
	}
	if roots[root] = true; len(roots) != 3 {
		t.Errorf("three images are in %v", roots)
	}
}

func TestRootFromRegistry(t *testing.T) {
	r := newRuntime(t)
	prepare(t, r)
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	ref := strings.TrimPrefix(server.URL, "http://") + "/lab/small:1"
	parsed, err := name.ParseReference(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(parsed, testImage(t)); err != nil {
		t.Fatal(err)
	}
	checkImage(t, r, slice.Rootfs{Kind: slice.RootfsRegistry, Ref: ref})
	server.Close() // what was pulled once is here
	checkImage(t, r, slice.Rootfs{Kind: slice.RootfsRegistry, Ref: ref})
	s := spec("boston")
	s.Rootfs = slice.Rootfs{Kind: slice.RootfsRegistry, Ref: ref + "0"}
	if _, err := r.Create(t.Context(), s); err == nil || !strings.Contains(err.Error(), "lab/small:10") {
		t.Errorf("unreachable registry: %v", err)
	}
}

func TestAvailableTellsMissingImages(t *testing.T) {
	r := &Runtime{images: images{dir: t.TempDir()}}
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	ref := strings.TrimPrefix(server.URL, "http://") + "/lab/small"
	parsed, err := name.ParseReference(ref + ":1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(parsed, empty.Image); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, c := range []struct {
		from slice.Rootfs
		says string // empty: it can be had
	}{
		{slice.Rootfs{}, ""},
		{slice.Rootfs{Kind: slice.RootfsRegistry, Ref: ref + ":1"}, ""},
		{slice.Rootfs{Kind: slice.RootfsRegistry, Ref: ref + ":2"}, "pull image " + ref + ":2"},
		{slice.Rootfs{Kind: slice.RootfsRegistry, Ref: "no such name"}, "use image no such name"},
		{slice.Rootfs{Kind: slice.RootfsDir, Ref: dir}, ""},
		{slice.Rootfs{Kind: slice.RootfsDir, Ref: dir + "/none"}, "not a directory"},
		{slice.Rootfs{Kind: slice.RootfsLayout, Ref: dir}, "use OCI image layout"},
	} {
		err := r.Available(t.Context(), c.from)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %v, want %q", c.from, err, c.says)
		}
	}
	if left, err := os.ReadDir(r.images.dir); err != nil || len(left) > 0 {
		t.Errorf("to ask is not to fetch: %v, %v", left, err)
	}
}

// TestSilentRegistry checks that the caller's context ends the wait.
func TestSilentRegistry(t *testing.T) {
	r := newRuntime(t)
	prepare(t, r)
	quiet := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-quiet }))
	defer server.Close()
	defer close(quiet)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	s := spec("denver")
	s.Rootfs = slice.Rootfs{
		Kind: slice.RootfsRegistry, Ref: strings.TrimPrefix(server.URL, "http://") + "/lab/small:1",
	}
	if _, err := r.Create(ctx, s); err == nil {
		t.Error("no error")
	}
}

func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("pergola-test", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestArchiveDoesNotFillTheDisk(t *testing.T) {
	testkit.Root(t)
	dir := smallDisk(t, "300m") // of which 256 MiB are the reserve
	data := archive(t, map[string]string{"etc/motto": "small is beautiful\n", "large": strings.Repeat("x", 60<<20)})
	i := images{dir: dir}
	sum := sha256.Sum256(data)
	_, err := i.unpacked(hex.EncodeToString(sum[:]), imageConfig{}, func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(data)), nil
	})
	if !errors.Is(err, blob.ErrFull) {
		t.Errorf("got %v", err)
	}
	if left, err := os.ReadDir(i.roots()); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestUntarStaysInside(t *testing.T) {
	testkit.Root(t)
	outside := filepath.Join(t.TempDir(), "outside")
	for name, entries := range map[string][]tar.Header{
		"dots":     {{Name: "../../../../../../.." + outside, Typeflag: tar.TypeReg}},
		"absolute": {{Name: outside, Typeflag: tar.TypeReg}},
		"link": {
			{Name: "l", Typeflag: tar.TypeSymlink, Linkname: filepath.Dir(outside)}, {Name: "l/outside", Typeflag: tar.TypeReg},
		},
		"up": {
			{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "../../../../../.." + filepath.Dir(outside)},
			{Name: "l/outside", Typeflag: tar.TypeReg},
		},
		"final": {{Name: "l", Typeflag: tar.TypeSymlink, Linkname: outside}, {Name: "l", Typeflag: tar.TypeReg}},
		"hard":  {{Name: "p", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"}},
	} {
		root := t.TempDir()
		var data bytes.Buffer
		w := tar.NewWriter(&data)
		for _, h := range entries {
			h.Mode = 0o644
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
		}
		w.Close()
		err := untar(&data, root)
		if exists(outside) {
			t.Fatalf("%s: escaped", name)
		}
		if fi, statErr := os.Stat(filepath.Join(root, "p")); statErr == nil && fi.Size() > 0 {
			t.Errorf("%s: linked the machine's file, %v", name, err)
		}
	}
}
