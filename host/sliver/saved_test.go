package sliver

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/pergola-net/pergola/model/slice"
)

// saved puts images, as `docker save` writes them, where archives that were sent are.
func saved(t *testing.T, r *Runtime, gzipped bool, images ...v1.Image) slice.Rootfs {
	t.Helper()
	all := map[name.Reference]v1.Image{}
	for i, image := range images {
		tag, err := name.NewTag(fmt.Sprintf("lab/small:%d", i+1))
		if err != nil {
			t.Fatal(err)
		}
		all[tag] = image
	}
	var out bytes.Buffer
	if err := tarball.MultiRefWrite(all, &out); err != nil {
		t.Fatal(err)
	}
	data := out.Bytes()
	if gzipped {
		var small bytes.Buffer
		w := gzip.NewWriter(&small)
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		data = small.Bytes()
	}
	sum := sha256.Sum256(data)
	digest := hex.EncodeToString(sum[:])
	if err := os.WriteFile(r.BlobPath(digest), data, 0o600); err != nil {
		t.Fatal(err)
	}
	return slice.Rootfs{Kind: slice.RootfsTar, Ref: digest}
}

func TestRootFromSavedImage(t *testing.T) {
	r := newRuntime(t)
	prepare(t, r)
	for _, gzipped := range []bool{false, true} {
		checkImage(t, r, saved(t, r, gzipped, testImage(t)))
	}
}

func TestAnArchiveOfSeveralImagesIsRefused(t *testing.T) {
	r := &Runtime{cfg: Config{BlobDir: t.TempDir()}}
	r.images.dir = r.cfg.BlobDir
	from := saved(t, r, false, testImage(t), testImage(t))
	_, err := r.images.fetch(t.Context(), from)
	if err == nil || !strings.Contains(err.Error(), "one image alone") {
		t.Errorf("got %v", err)
	}
}

// The image's entrypoint gets other arguments, and another user.
func TestFirstProcessOfTheCaller(t *testing.T) {
	r := newRuntime(t)
	prepare(t, r)
	from := saved(t, r, false, testImage(t))
	s := spec("denver")
	s.Rootfs, s.User = from, "0:bgp"
	s.Args = []string{`echo "$0 $FROM"; stat -c %u:%g /proc/self/; exec cat`, "mine"}
	id, _ := up(t, r, s)
	await(t, "output of the entrypoint", func() bool {
		data, _ := os.ReadFile(r.Log(id))
		return string(data) == "mine image\n0:45\n"
	})
}

// A shell whose standard input is open does not end; with another it does.
func TestStandardInputStaysOpen(t *testing.T) {
	r := newRuntime(t)
	prepare(t, r)
	logOf := map[string]func() string{}
	for _, node := range []string{"open", "ended"} { // the open one begins first, and has more time
		s := spec(node)
		s.Command = []string{"sh", "-c", "echo begun; read line; echo ended; sleep 1000"}
		s.Stdin = node == "open"
		id, _ := up(t, r, s)
		logOf[node] = func() string { data, _ := os.ReadFile(r.Log(id)); return string(data) }
		await(t, "begin of "+node, func() bool { return strings.HasPrefix(logOf[node](), "begun\n") })
	}
	await(t, "end of the input", func() bool { return logOf["ended"]() == "begun\nended\n" })
	if got := logOf["open"](); got != "begun\n" {
		t.Errorf("the shell has read an end: %q", got)
	}
}

// An init system has to be process 1.
func TestInitSystemsAreProcessOne(t *testing.T) {
	r := newRuntime(t)
	prepare(t, r)
	files := shell(t)
	program, err := exec.LookPath("sh") // where shell puts it
	if err != nil {
		t.Fatal(err)
	}
	files["sbin/init"] = "#!" + program + "\necho I am $$\nexec cat\n"
	data := archive(t, files)
	sum := sha256.Sum256(data)
	digest := hex.EncodeToString(sum[:])
	if err := os.WriteFile(r.BlobPath(digest), data, 0o600); err != nil {
		t.Fatal(err)
	}
	s := spec("denver")
	s.Rootfs, s.Command, s.Stdin = slice.Rootfs{Kind: slice.RootfsTar, Ref: digest}, []string{"/sbin/init"}, true
	id, _ := up(t, r, s)
	await(t, "output of init", func() bool {
		data, _ := os.ReadFile(r.Log(id))
		return string(data) == "I am 1\n"
	})
}
