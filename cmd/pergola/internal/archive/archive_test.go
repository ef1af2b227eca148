package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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

// What is beside the copy is the caller's own, as .ssh is where a log is copied into the home directory.
func TestAnArchiveWritesNothingButTheCopy(t *testing.T) {
	dir := func(name string) *tar.Header { return &tar.Header{Name: name, Typeflag: tar.TypeDir} }
	file := func(name string) *tar.Header { return &tar.Header{Name: name, Typeflag: tar.TypeReg} }
	link := func(name, to string) *tar.Header {
		return &tar.Header{Name: name, Linkname: to, Typeflag: tar.TypeSymlink}
	}
	hard := func(name, to string) *tar.Header {
		return &tar.Header{Name: name, Linkname: to, Typeflag: tar.TypeLink}
	}
	for name, members := range map[string][]*tar.Header{
		"by its name":                                {dir("a/"), file("a/../../out")},
		"beside, by its name":                        {dir("a/"), file("a/../out")},
		"by an absolute name":                        {file("/out")},
		"by a link":                                  {dir("a/"), link("a/up", "../.."), file("a/up/out")},
		"beside, by a link":                          {dir("a/"), link("a/up", ".."), file("a/up/out")},
		"beside, by a link to the place":             {link("a", "."), file("a/out")},
		"by a link that becomes a directory":         {link("a", "."), dir("a/"), file("a/out")},
		"by a link in the place of the directory":    {dir("a/"), link("a", "."), file("a/out")},
		"by a directory that is made through a link": {dir("a/"), link("a/up", ".."), dir("a/up/out")},
		"without its directory":                      {file("a/out")},
		"by a hard link":                             {dir("a/"), hard("a/hard", "../secret")},
		"by a hard link through a link":              {dir("a/"), link("a/up", ".."), hard("a/hard", "a/up/x")},
	} {
		t.Run(name, func(t *testing.T) {
			outside := tree(t, map[string]string{"secret": "mine", "in/x": "mine"})
			if err := Unpack(archived(t, members...), "a", filepath.Join(outside, "in"), "a"); err == nil {
				t.Error("it was taken")
			}
			for _, place := range []string{outside, filepath.Join(outside, "in")} {
				entries, err := os.ReadDir(place)
				for _, e := range entries {
					if !slices.Contains([]string{"secret", "in", "x", "a"}, e.Name()) {
						t.Errorf("in %s is %s", place, e.Name())
					}
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// A link that an earlier copy has brought is not followed by the next one.
func TestALinkInTheWayIsNotFollowed(t *testing.T) {
	to := tree(t, map[string]string{"a": "-> .", "x": ""})
	err := Unpack(archived(t, &tar.Header{Name: "a/", Typeflag: tar.TypeDir},
		&tar.Header{Name: "a/x", Typeflag: tar.TypeReg}), "a", to, "a")
	if err == nil || !strings.Contains(err.Error(), "a is there already, and is no directory") {
		t.Errorf("it says %v", err)
	}
	if text, _ := os.ReadFile(filepath.Join(to, "x")); len(text) > 0 {
		t.Errorf("x is %q", text)
	}
}

func TestADeviceIsNoCopy(t *testing.T) {
	to := t.TempDir()
	header := &tar.Header{Name: "zero", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 5}
	if err := Unpack(archived(t, header), "zero", to, "zero"); !errors.Is(err, errNoFile) {
		t.Errorf("unpacked: %v", err)
	}
	if err := Pack(io.Discard, os.DevNull, "null"); !errors.Is(err, errNoFile) {
		t.Errorf("packed: %v", err)
	}
	if entries, err := os.ReadDir(to); err != nil || len(entries) > 0 {
		t.Errorf("there is %v, %v", entries, err)
	}
}

// All of a node is copied into a directory that is there, whose mode stays.
func TestAllIsUnpackedIntoTheDirectoryItself(t *testing.T) {
	to := t.TempDir()
	if err := os.Chmod(to, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := Unpack(archived(t, &tar.Header{Name: "./", Typeflag: tar.TypeDir},
		&tar.Header{Name: "./etc/", Typeflag: tar.TypeDir},
		&tar.Header{Name: "./etc/motd", Typeflag: tar.TypeReg}), ".", to, "."); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(to, "etc/motd")); err != nil || string(text) != "evil" {
		t.Errorf("%q, %v", text, err)
	}
	if info, err := os.Stat(to); err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("%v, %v", info, err)
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
