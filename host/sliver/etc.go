package sliver

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/prometheus/procfs"
)

// etcOf is the directory that is the lowest layer of the /etc of a slice's slivers: the machine's own. An ordinary user
// may not have one as a layer in which something is mounted, as is in containers (the kernel would show what the mount
// hides): then it is a copy of what the user can read.
func (r *Runtime) etcOf(slice uint16) (string, error) {
	const own = "/etc"
	if !isRootless() || !mountedBelow(own) {
		return own, nil
	}
	dir := filepath.Join(r.fsDir(slice), "etc")
	defer r.lock(ID{Slice: slice, Node: own})() // no node has such a name
	if exists(dir) {
		return dir, nil
	}
	if err := copyReadable(own, dir+".new"); err != nil {
		return "", fmt.Errorf("copy %s: %w", own, err)
	}
	return dir, os.Rename(dir+".new", dir)
}

// mountedBelow reports whether something is mounted below a directory.
func mountedBelow(dir string) bool {
	mounts, err := procfs.GetMounts()
	return err == nil && slices.ContainsFunc(mounts, func(m *procfs.MountInfo) bool {
		return strings.HasPrefix(m.MountPoint, dir+"/")
	})
}

// copyReadable copies directories, files and symbolic links, but for those that this process may not read.
func copyReadable(from, to string) error {
	if err := os.RemoveAll(to); err != nil { // of a process that was killed
		return err
	}
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		target := to + strings.TrimPrefix(path, from)
		switch {
		case err != nil: // it cannot be read, or has gone
			return nil
		case d.IsDir():
			return os.Mkdir(target, 0o755)
		case d.Type() == fs.ModeSymlink:
			link, err := os.Readlink(path)
			if err != nil {
				return nil
			}
			return os.Symlink(link, target)
		case !d.Type().IsRegular():
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return nil
		}
		return os.WriteFile(target, data, 0o644)
	})
}
