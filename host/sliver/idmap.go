package sliver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/control/blob"
	"github.com/pergola-net/pergola/model/slice"
)

// imageRootfs makes a root file system of a directory, an archive or an image: an overlay whose lower layer shows the
// files with the ids of the slice.
func (r *Runtime) imageRootfs(ctx context.Context, s *Spec) (*rootfs, error) {
	lower, config, err := r.images.get(ctx, s.Rootfs)
	if err != nil {
		return nil, err
	}
	base := uidBase(s.Slice)
	show, err := r.withIDs(ctx, s, lower)
	if err != nil {
		return nil, err
	}
	dir := r.filesDir(s.ID)
	if err := makeEntries(dir, base, []entry{
		{path: "root", mode: 0o755}, {path: "upper", mode: 0o755}, {path: "work", mode: 0o700},
		{path: "lower", mode: 0o700},
	}); err != nil {
		return nil, fmt.Errorf("make root file system: %w", err)
	}
	root := filepath.Join(dir, "root")
	return &rootfs{path: root, image: config, lower: lower, mount: func() error {
		lower, err := show(filepath.Join(dir, "lower"))
		if err != nil {
			return err
		}
		return mountOverlay(lower, filepath.Join(dir, "upper"), filepath.Join(dir, "work"), root)
	}}, nil
}

// withIDs finds the way in which files of an image get the ids of a slice: by a mount that maps them, else by a copy.
// show mounts them at a target, on the launch thread, and says where they are.
func (r *Runtime) withIDs(ctx context.Context, s *Spec, lower string) (
	show func(target string) (string, error), err error) {
	asIs := func(dir string) func(string) (string, error) {
		return func(string) (string, error) { return dir, nil }
	}
	if isRootless() { // the one id is the same inside and outside
		return asIs(lower), nil
	}
	ids, err := r.userNamespace(ctx, s.Slice)
	if err != nil {
		return nil, err
	}
	open := openAny
	if s.Rootfs.Kind == slice.RootfsDir {
		open = openPlain
	}
	err = idmap(open, lower, "", ids)
	switch {
	case err == nil:
		return func(target string) (string, error) {
			return target, idmap(open, lower, target, ids)
		}, nil
	case !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EPERM):
		return nil, err
	case s.Rootfs.Kind == slice.RootfsDir && len(s.Beneath) > 0: // while it is copied, it could be changed
		return nil, fmt.Errorf("use root directory %s, as a network may that was applied on another machine: "+
			"its file system does not map ids: %w", lower, err)
	}
	// The file system cannot do it: overlayfs, NFS ...
	copied, err := r.images.shifted(lower, uidBase(s.Slice))
	return asIs(copied), err
}

// idmap mounts source at target with its ids mapped by a user namespace. With an empty target it only tries.
func idmap(open func(string) (int, error), source, target string, userns *os.File) error {
	fd, err := open(source)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	tree, err := unix.OpenTree(fd, "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("bind %s: %w", source, err)
	}
	defer unix.Close(tree)
	set := unix.MountAttr{
		Attr_set: unix.MOUNT_ATTR_IDMAP | unix.MOUNT_ATTR_RDONLY |
			unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV,
		Userns_fd: uint64(userns.Fd()),
	}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &set); err != nil {
		return fmt.Errorf("map ids of %s: %w", source, err)
	}
	if target == "" {
		return nil
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("bind %s on %s: %w", source, target, err)
	}
	return nil
}

func openAny(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", path, err)
	}
	return fd, nil
}

// namespaces are user namespaces that only carry an id mapping: one per slice, without processes.
type namespaces struct {
	mu sync.Mutex // guards of
	of map[uint16]*os.File
}

func (n *namespaces) drop(slice uint16) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if f := n.of[slice]; f != nil {
		f.Close()
		delete(n.of, slice)
	}
}

// userNamespace gives a user namespace with the ids of a slice.
func (r *Runtime) userNamespace(ctx context.Context, slice uint16) (*os.File, error) {
	r.maps.mu.Lock()
	defer r.maps.mu.Unlock()
	if f := r.maps.of[slice]; f != nil {
		return f, nil
	}
	var f *os.File
	err := r.launch.run(ctx, func() error { return nil }, func(func()) error {
		ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: uidBase(slice), Size: uids()}}
		c := exec.CommandContext(ctx, r.init, "-P") // sleeps
		c.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids,
			Pdeathsig: syscall.SIGKILL,
		}
		if err := c.Start(); err != nil {
			return err
		}
		defer func() {
			_, _ = c.Process.Kill(), c.Wait()
		}()
		var err error
		f, err = os.Open("/proc/" + strconv.Itoa(c.Process.Pid) + "/ns/user")
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("make user namespace: %w", err)
	}
	if r.maps.of == nil {
		r.maps.of = map[uint16]*os.File{}
	}
	r.maps.of[slice] = f
	return f, nil
}

// shifted gives a copy of a root file system with the ids of a slice, for file systems that cannot map them. It is
// removed with the slice.
func (i *images) shifted(root string, base int) (string, error) {
	sum := sha256.Sum256([]byte(root))
	name := "shifted-" + strconv.Itoa(base) + "-" + hex.EncodeToString(sum[:8])
	final := filepath.Join(i.roots(), name)
	_, err, _ := i.flight.Do(name, func() (any, error) {
		if exists(final) {
			return nil, nil
		}
		if err := os.MkdirAll(i.roots(), 0o700); err != nil {
			return nil, err
		}
		dir, err := os.MkdirTemp(i.roots(), ".new-")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
		if err := copyShifted(root, filepath.Join(dir, "rootfs"), base); err != nil {
			return nil, err
		}
		return nil, os.Rename(filepath.Join(dir, "rootfs"), final)
	})
	if err != nil {
		return "", fmt.Errorf("copy root file system %s: %w", root, err)
	}
	return final, nil
}

func (i *images) forget(slice uint16) error {
	pattern := filepath.Join(i.roots(), "shifted-"+strconv.Itoa(uidBase(slice))+"-*")
	copies, _ := filepath.Glob(pattern) // the pattern is well formed
	for _, dir := range copies {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove copy of root file system: %w", err)
		}
	}
	return nil
}

func copyShifted(from, to string, base int) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		target := filepath.Join(to, path[len(from):])
		switch {
		case d.IsDir():
			err = os.Mkdir(target, 0o700)
		case d.Type() == fs.ModeSymlink:
			var link string
			if link, err = os.Readlink(path); err == nil {
				err = os.Symlink(link, target)
			}
		case d.Type().IsRegular():
			err = copyFile(path, target)
		default: // devices, sockets: of no use in a copy
			return nil
		}
		if err != nil {
			return err
		}
		st := fi.Sys().(*syscall.Stat_t)
		if err := os.Lchown(target, base+clamp(int(st.Uid)), base+clamp(int(st.Gid))); err != nil {
			return err
		}
		if d.Type() == fs.ModeSymlink {
			return nil
		}
		return unix.Chmod(target, st.Mode&0o7777)
	})
}

func copyFile(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	fi, err := source.Stat()
	if err != nil {
		return err
	}
	if err := blob.Room(filepath.Dir(to), fi.Size()); err != nil {
		return err
	}
	target, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer target.Close()
	if _, err := io.Copy(target, source); err != nil {
		return err
	}
	return target.Close()
}
