package sliver

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/control/blob"
)

// decompressed reads a tar archive that may be gzipped.
func decompressed(r io.Reader) (io.ReadCloser, error) {
	b := bufio.NewReader(r)
	if magic, err := b.Peek(2); err == nil && bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return gzip.NewReader(b)
	}
	return io.NopCloser(b), nil
}

// untar unpacks an untrusted archive: names and links resolve as in a chroot, so nothing outside root is touched.
// Devices are left out: a sliver gets its own.
func untar(r io.Reader, root string) error {
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", root, err)
	}
	defer unix.Close(fd)
	var dirs []*tar.Header
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read archive: %w", err)
		}
		if h.Typeflag == tar.TypeReg { // what an archive holds has no bound but this
			if err := blob.Room(root, h.Size); err != nil {
				return fmt.Errorf("unpack %s: %w", h.Name, err)
			}
		}
		if err := untarEntry(fd, h, archive); err != nil {
			return fmt.Errorf("unpack %s: %w", h.Name, err)
		}
		if h.Typeflag == tar.TypeDir {
			dirs = append(dirs, h)
		}
	}
	// At the end: on some file systems, a directory without write permission takes no files of an unprivileged
	// owner.
	for _, h := range dirs {
		if err := setDir(fd, h); err != nil {
			return fmt.Errorf("unpack %s: %w", h.Name, err)
		}
	}
	return nil
}

func untarEntry(root int, h *tar.Header, data io.Reader) error {
	name := path.Clean("/" + h.Name)
	if name == "/" {
		return nil
	}
	dir, err := makeDirIn(root, 0, path.Dir(name))
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	base := path.Base(name)
	uid, gid := clamp(h.Uid), clamp(h.Gid)
	if h.Typeflag != tar.TypeDir {
		if err := unix.Unlinkat(dir, base, 0); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	switch h.Typeflag {
	case tar.TypeDir:
		if err := unix.Mkdirat(dir, base, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
		return nil
	case tar.TypeReg:
		return untarFile(dir, base, h, data)
	case tar.TypeSymlink:
		if err := unix.Symlinkat(h.Linkname, dir, base); err != nil {
			return err
		}
		return unix.Fchownat(dir, base, uid, gid, unix.AT_SYMLINK_NOFOLLOW)
	case tar.TypeLink:
		target := path.Clean("/" + h.Linkname)
		from, err := openIn(root, path.Dir(target), unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			return err
		}
		defer unix.Close(from)
		return unix.Linkat(from, path.Base(target), dir, base, 0)
	case tar.TypeFifo:
		if err := unix.Mknodat(dir, base, unix.S_IFIFO|uint32(h.Mode&0o777), 0); err != nil {
			return err
		}
		return unix.Fchownat(dir, base, uid, gid, unix.AT_SYMLINK_NOFOLLOW)
	}
	return nil
}

func untarFile(dir int, base string, h *tar.Header, data io.Reader) error {
	fd, err := unix.Openat(dir, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), base)
	defer f.Close()
	if _, err := io.Copy(f, data); err != nil {
		return err
	}
	if err := f.Chown(clamp(h.Uid), clamp(h.Gid)); err != nil {
		return err
	}
	if err := unix.Fchmod(fd, uint32(h.Mode&0o7777)); err != nil {
		return err
	}
	return f.Close()
}

func setDir(root int, h *tar.Header) error {
	fd, err := openIn(root, h.Name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOENT) {
		return nil // replaced by a later entry
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Fchown(fd, clamp(h.Uid), clamp(h.Gid)); err != nil {
		return err
	}
	return unix.Fchmod(fd, uint32(h.Mode&0o7777))
}
