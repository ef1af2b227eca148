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
// as. Files belong to the caller. Whatever the archive says, nothing but that is written, neither outside the directory
// nor beside the copy: a directory is filled through an os.Root of its own. Devices and pipes are left out.
func Unpack(r io.Reader, name, dir, as string) error {
	parent, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer parent.Close()
	u := &unpacker{parent: parent, name: path.Clean(name), as: as}
	defer u.close()
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
	return u.setModes()
}

type unpacker struct {
	parent   *os.Root // the directory that the copy is put into
	top      *os.Root // the copy, once it is a directory
	begun    bool
	name, as string
	dirs     []*tar.Header // by the names that they have in top
}

func (u *unpacker) close() {
	if u.top != nil {
		u.top.Close()
	}
}

func (u *unpacker) member(h *tar.Header, data io.Reader) error {
	at, err := u.below(h.Name)
	switch {
	case err != nil:
		return err
	case at == ".":
		return u.first(h, data)
	case u.top == nil:
		return fmt.Errorf("the archive has %q, and not the directory before it", h.Name)
	}
	return u.put(u.top, at, h, data)
}

// below is the name of a member in the copy; "." is the copy itself.
func (u *unpacker) below(member string) (string, error) {
	member = path.Clean(member)
	if member == u.name {
		return ".", nil
	}
	if u.name == "." && member != ".." && !strings.HasPrefix(member, "../") {
		return member, nil
	}
	if below, inside := strings.CutPrefix(member, u.name+"/"); inside {
		return below, nil
	}
	return "", fmt.Errorf("the archive has %q, which is not part of %s", member, u.name)
}

// first makes the copy itself.
func (u *unpacker) first(h *tar.Header, data io.Reader) (err error) {
	if u.begun {
		return fmt.Errorf("the archive has %q twice", h.Name)
	}
	u.begun = true
	switch h.Typeflag {
	case tar.TypeDir:
	case tar.TypeReg, tar.TypeSymlink:
		return u.put(u.parent, u.as, h, data)
	default:
		return fmt.Errorf("%s: %w", h.Name, errNoFile)
	}
	if u.as != "." { // else it is the directory that was given
		if err := u.makeTop(); err != nil {
			return err
		}
		u.dirs = append(u.dirs, &tar.Header{Name: ".", Mode: h.Mode})
	}
	u.top, err = u.parent.OpenRoot(u.as)
	return err
}

// makeTop makes the directory of the copy. A symbolic link is not followed: an earlier copy may have brought it.
func (u *unpacker) makeTop() error {
	err := u.parent.Mkdir(u.as, 0o700)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if info, err := u.parent.Lstat(u.as); err != nil || !info.IsDir() {
		return errors.Join(err, fmt.Errorf("%s is there already, and is no directory", u.as))
	}
	return nil
}

func (u *unpacker) put(root *os.Root, at string, h *tar.Header, data io.Reader) error {
	switch h.Typeflag {
	case tar.TypeDir:
		// Its own mode may not let its files be written.
		u.dirs = append(u.dirs, &tar.Header{Name: at, Mode: h.Mode})
		return root.MkdirAll(at, 0o700)
	case tar.TypeReg:
		return putFile(root, at, perm(h), data)
	case tar.TypeSymlink:
		if err := makeRoom(root, at); err != nil {
			return err
		}
		return root.Symlink(h.Linkname, at)
	case tar.TypeLink:
		first, err := u.below(h.Linkname)
		if err != nil {
			return err
		}
		if err := makeRoom(root, at); err != nil {
			return err
		}
		return root.Link(first, at)
	}
	return nil
}

func perm(h *tar.Header) fs.FileMode { return fs.FileMode(h.Mode).Perm() } //nolint:gosec // nine bits

func putFile(root *os.Root, at string, mode fs.FileMode, data io.Reader) error {
	if info, err := root.Lstat(at); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is there already, and is no plain file", at)
	}
	f, err := root.OpenFile(at, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, data) //nolint:gosec // as long as the file in the node is
	return errors.Join(err, f.Chmod(mode), f.Close())
}

// makeRoom removes what is in the place of a link.
func makeRoom(root *os.Root, at string) error {
	if err := root.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// setModes gives directories their own modes: those below come first.
func (u *unpacker) setModes() error {
	for _, d := range slices.Backward(u.dirs) {
		if err := u.top.Chmod(d.Name, perm(d)); err != nil {
			return err
		}
	}
	return nil
}
