package sliver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/model/slice"
)

// WriteFiles puts files into a sliver, each as a whole or not at all, with directories as needed. Whatever symbolic
// links the sliver has made, nothing outside its root is touched. A file gets the owner of its directory if that is a
// user of the sliver, else the sliver's root.
func (r *Runtime) WriteFiles(_ context.Context, id ID, files []slice.File) error {
	defer r.lock(id)()
	rec, err := r.readRecord(id)
	if err != nil {
		return err
	}
	if !rec.Process.alive() {
		return fmt.Errorf("write files of node %s: %w", id.Node, ErrNotRunning)
	}
	if err := writeFiles(rec.Process, id.Slice, files); err != nil {
		return fmt.Errorf("write files of node %s: %w", id.Node, err)
	}
	return nil
}

func writeFiles(p process, slice uint16, files []slice.File) error {
	if len(files) == 0 {
		return nil
	}
	root, err := openRoot(p)
	if err != nil {
		return err
	}
	defer unix.Close(root)
	for _, f := range files {
		if err := writeFile(root, uidBase(slice), f); err != nil {
			return fmt.Errorf("write %s: %w", f.Path, err)
		}
	}
	return nil
}

// openRoot opens the root directory of a sliver as the sliver sees it.
func openRoot(p process) (int, error) {
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/root", p.PID), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open root of process %d: %w", p.PID, err)
	}
	if !p.alive() {
		unix.Close(fd)
		return -1, ErrNotRunning
	}
	return fd, nil
}

// openIn opens a path as a process chrooted to root would; magic links (/proc/*/fd, symlink(7)) are not followed.
func openIn(root int, name string, flags int) (int, error) {
	how := unix.OpenHow{
		Flags:   uint64(flags) | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	}
	relative := strings.TrimPrefix(path.Clean("/"+name), "/")
	if relative == "" {
		relative = "."
	}
	for {
		fd, err := unix.Openat2(root, relative, &how)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) { // a rename elsewhere disturbed the walk
			continue
		}
		return fd, err
	}
}

func writeFile(root, base int, f slice.File) error {
	name := path.Clean("/" + f.Path)
	if !path.IsAbs(f.Path) || name == "/" {
		return errors.New("not an absolute path of a file")
	}
	dir, err := makeDirIn(root, base, path.Dir(name))
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	temporary := ".pergola-" + rand.Text()
	fd, err := unix.Openat(dir, temporary, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC,
		0o600)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := fill(fd, dir, base, f); err != nil {
		_ = unix.Unlinkat(dir, temporary, 0)
		return err
	}
	if err := unix.Renameat(dir, temporary, dir, path.Base(name)); err != nil {
		_ = unix.Unlinkat(dir, temporary, 0)
		return err
	}
	return nil
}

func fill(fd, dir, base int, f slice.File) error {
	for data := f.Data; len(data) > 0; {
		n, err := unix.Write(fd, data)
		if err != nil {
			return err
		}
		data = data[n:]
	}
	uid, gid := ownerIn(dir, base)
	if err := unix.Fchown(fd, uid, gid); err != nil {
		return err
	}
	mode := f.Mode & 0o7777
	if mode == 0 {
		mode = 0o644
	}
	return unix.Fchmod(fd, mode)
}

// ownerIn gives the owner of a new file in a directory.
func ownerIn(dir, base int) (uid, gid int) {
	var st unix.Stat_t
	if unix.Fstat(dir, &st) != nil || int(st.Uid) < base || int(st.Uid) >= base+uids() ||
		int(st.Gid) < base || int(st.Gid) >= base+uids() {
		return base, base
	}
	return int(st.Uid), int(st.Gid)
}

// makeDirIn opens a directory below root and makes what is missing on the way.
func makeDirIn(root, base int, name string) (int, error) {
	flags := unix.O_PATH | unix.O_DIRECTORY
	fd, err := openIn(root, name, flags)
	if !errors.Is(err, unix.ENOENT) {
		return fd, err
	}
	parent, err := makeDirIn(root, base, path.Dir(name))
	if err != nil {
		return -1, err
	}
	defer unix.Close(parent)
	if err := unix.Mkdirat(parent, path.Base(name), 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, err
	}
	if err := unix.Fchownat(parent, path.Base(name), base, base, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return -1, err
	}
	return openIn(root, name, flags)
}
