package archive

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// Unpack writes the member called name of an archive, with all that is below it, into a directory, where it is called
// as. Files belong to the caller. Whatever the archive says, nothing outside the directory is written: os.Root sees to
// that. Devices and pipes are left out.
func Unpack(r io.Reader, name, dir, as string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	u := &unpacker{root: root, name: path.Clean(name), as: as}
	t := tar.NewReader(r)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read the archive: %w", err)
		}
		if err := u.member(h, t); err != nil {
			return err
		}
	}
	if _, err := io.Copy(io.Discard, r); err != nil { // the padding of its end
		return err
	}
	return u.closeDirs()
}

type unpacker struct {
	root     *os.Root
	name, as string
	dirs     []*tar.Header // under the names that they have here
}

func (u *unpacker) member(h *tar.Header, data io.Reader) error {
	at, err := u.here(h.Name)
	if err != nil {
		return err
	}
	mode := fs.FileMode(h.Mode).Perm() //nolint:gosec // nine bits
	switch h.Typeflag {
	case tar.TypeDir:
		if at == "." { // the directory that was given
			return nil
		}
		// Its own mode may not let its files be written.
		u.dirs = append(u.dirs, &tar.Header{Name: at, Mode: int64(mode)})
		return u.root.MkdirAll(at, 0o700)
	case tar.TypeReg:
		return u.file(at, mode, data)
	case tar.TypeSymlink:
		if err := u.clear(at); err != nil {
			return err
		}
		return u.root.Symlink(h.Linkname, at)
	case tar.TypeLink:
		first, err := u.here(h.Linkname)
		if err != nil {
			return err
		}
		if err := u.clear(at); err != nil {
			return err
		}
		return u.root.Link(first, at)
	}
	return nil
}

// here is the name that a member has here.
func (u *unpacker) here(member string) (string, error) {
	member = path.Clean(member)
	below, inside := strings.CutPrefix(member, u.name+"/")
	switch {
	case member == u.name:
		return u.as, nil
	case u.name == "." && member != ".." && !strings.HasPrefix(member, "../"):
		below, inside = member, true
	}
	if !inside {
		return "", fmt.Errorf("the archive has %q, which is not part of %s", member, u.name)
	}
	return path.Join(u.as, below), nil
}

func (u *unpacker) file(at string, mode fs.FileMode, data io.Reader) error {
	if info, err := u.root.Lstat(at); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is there already, and is no plain file", at)
	}
	f, err := u.root.OpenFile(at, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, data) //nolint:gosec // as long as the file in the node is
	return errors.Join(err, f.Chmod(mode), f.Close())
}

// clear makes room for a link.
func (u *unpacker) clear(at string) error {
	if err := u.root.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (u *unpacker) closeDirs() error {
	for _, d := range slices.Backward(u.dirs) {
		if err := u.root.Chmod(d.Name, fs.FileMode(d.Mode).Perm()); err != nil { //nolint:gosec // nine bits
			return err
		}
	}
	return nil
}
