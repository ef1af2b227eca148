package archive

import (
	"archive/tar"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tree makes files below a directory: names that end in / are directories, "-> x" is a link to x.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, isLink := strings.CutPrefix(content, "-> "); isLink {
			err = os.Symlink(target, at)
		} else {
			err = os.WriteFile(at, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestWhatIsPackedIsUnpackedTheSame(t *testing.T) {
	from := tree(t, map[string]string{"etc/frr/frr.conf": "hostname a\n", "etc/run.sh": "#!/bin/sh\n",
		"etc/link": "-> frr"})
	if err := os.Chmod(filepath.Join(from, "etc/run.sh"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(from, "etc/frr"), 0o555); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := Pack(&b, filepath.Join(from, "etc"), "etc"); err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	if err := Unpack(&b, "etc", to, "copy"); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]fs.FileMode{"copy/frr/frr.conf": 0o644, "copy/run.sh": 0o755,
		"copy/frr": fs.ModeDir | 0o555} {
		info, err := os.Stat(filepath.Join(to, name))
		if err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v; want %v", name, info, err, mode)
		}
	}
	text, err := os.ReadFile(filepath.Join(to, "copy/link/frr.conf"))
	if err != nil || string(text) != "hostname a\n" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestPackedFilesBelongToRoot(t *testing.T) {
	from := tree(t, map[string]string{"a": "text"})
	if err := os.Chown(filepath.Join(from, "a"), os.Getuid(), os.Getgid()); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := Pack(&b, filepath.Join(from, "a"), "b"); err != nil {
		t.Fatal(err)
	}
	h, err := tar.NewReader(&b).Next()
	if err != nil || h.Name != "b" || h.Uid != 0 || h.Gid != 0 || h.Uname != "" {
		t.Errorf("%+v, %v", h, err)
	}
}

// archived makes an archive that a node could send.
func archived(t *testing.T, members ...*tar.Header) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range members {
		h.Mode = 0o644
		if h.Typeflag == tar.TypeReg {
			h.Size = 4
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := w.Write([]byte("evil")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

func TestAnArchiveDoesNotLeadOutOfTheDirectory(t *testing.T) {
	for name, members := range map[string][]*tar.Header{
		"by its name":         {{Name: "a/../../out", Typeflag: tar.TypeReg}},
		"by an absolute name": {{Name: "/out", Typeflag: tar.TypeReg}},
		"by a link": {{Name: "a/", Typeflag: tar.TypeDir}, {Name: "a/up", Linkname: "../..", Typeflag: tar.TypeSymlink},
			{Name: "a/up/out", Typeflag: tar.TypeReg}},
		"by a hard link": {{Name: "a/", Typeflag: tar.TypeDir},
			{Name: "a/hard", Linkname: "../secret", Typeflag: tar.TypeLink}},
	} {
		t.Run(name, func(t *testing.T) {
			outside := tree(t, map[string]string{"secret": "mine", "in/x": ""})
			if err := Unpack(archived(t, members...), "a", filepath.Join(outside, "in"), "a"); err == nil {
				t.Error("it was taken")
			}
			entries, err := os.ReadDir(outside)
			if err != nil || len(entries) != 2 {
				t.Errorf("beside the directory are %v, %v", entries, err)
			}
		})
	}
}

func TestNothingButFilesIsOverwritten(t *testing.T) {
	to := tree(t, map[string]string{"a": "-> b", "b": "kept"})
	if err := Unpack(archived(t, &tar.Header{Name: "a", Typeflag: tar.TypeReg}), "a", to, "a"); err == nil {
		t.Error("a link was overwritten")
	}
	if text, _ := os.ReadFile(filepath.Join(to, "b")); string(text) != "kept" {
		t.Errorf("b is %q", text)
	}
}
