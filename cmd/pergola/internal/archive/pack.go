// Package archive makes tar archives of files and directories, and reads them back: what `pergola cp` sends to the tar
// of a node, and what it gets from it.
package archive

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// errNoFile means that there is nothing to copy: a device, a pipe, a socket.
var errNoFile = errors.New("not a file, a directory or a symbolic link")

// Pack writes the file or the directory at source as an archive in which it is called name. All of it belongs to root
// there. A symbolic link stays one, but for source itself. Sockets, devices and pipes are left out.
func Pack(w io.Writer, source, name string) error {
	source, err := filepath.EvalSymlinks(source)
	if err != nil {
		return err
	}
	if info, err := os.Stat(source); err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		return fmt.Errorf("%s: %w", source, errNoFile)
	}
	t := tar.NewWriter(w)
	err = filepath.WalkDir(source, func(at string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(source, at)
		if err != nil {
			return err
		}
		return pack(t, at, path.Join(name, filepath.ToSlash(below)), d)
	})
	if err != nil {
		return err
	}
	return t.Close()
}

func pack(t *tar.Writer, at, name string, d fs.DirEntry) error {
	if kind := d.Type(); !kind.IsRegular() && !kind.IsDir() && kind != fs.ModeSymlink {
		return nil
	}
	info, err := d.Info()
	if err != nil {
		return err
	}
	target := ""
	if d.Type() == fs.ModeSymlink {
		if target, err = os.Readlink(at); err != nil {
			return err
		}
	}
	h, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	h.Name, h.Uid, h.Gid, h.Uname, h.Gname = name, 0, 0, "", ""
	if d.IsDir() {
		h.Name += "/"
	}
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	if !d.Type().IsRegular() {
		return nil
	}
	f, err := os.Open(at)
	if err != nil {
		return err
	}
	defer f.Close()
	// A file that grows meanwhile is copied as long as it was.
	if _, err := io.CopyN(t, f, info.Size()); err != nil {
		return fmt.Errorf("read %s: %w", at, err)
	}
	return nil
}
