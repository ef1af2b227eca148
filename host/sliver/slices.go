package sliver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// sliceRecord is the record of a slice in the state directory.
type sliceRecord struct {
	Name string `json:"name"`
}

// PrepareSlice makes what the slivers of a slice share: a tmpfs for what they write, their cgroup, and /etc/hosts.
// It may be called any number of times; nodes see changed hosts at once.
func (r *Runtime) PrepareSlice(_ context.Context, id uint16, name string, hosts []byte) error {
	defer r.lock(ID{Slice: id})()
	if err := checkName("slice", name); err != nil {
		return err
	}
	if err := r.prepareSlice(id, name, hosts); err != nil {
		return fmt.Errorf("prepare network %d: %w", id, err)
	}
	return nil
}

func (r *Runtime) prepareSlice(id uint16, name string, hosts []byte) error {
	if err := mountTmpfs(r.sliceDir(id), "50%", 0); err != nil {
		return err
	}
	if err := mountTmpfs(r.fsDir(id), strconv.FormatInt(r.cfg.SliceBytes, 10), unix.MS_NODEV); err != nil {
		return err
	}
	if device := r.tunDevice(id); device != tunDevice {
		if err := makeTun(device); err != nil {
			return err
		}
	}
	for _, dir := range []string{filepath.Join(r.sliceDir(id), "nodes"), filepath.Join(r.fsDir(id), "nodes")} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return err
		}
	}
	if err := makeMask(filepath.Join(r.fsDir(id), "mask")); err != nil {
		return err
	}
	data, err := json.Marshal(sliceRecord{name})
	if err != nil {
		return err
	}
	if err := replaceFile(filepath.Join(r.sliceDir(id), "slice.json"), data); err != nil {
		return err
	}
	if err := r.makeLogDir(name); err != nil {
		return err
	}
	if err := rewrite(filepath.Join(r.sliceDir(id), "hosts"), hosts); err != nil {
		return err
	}
	if err := r.markGroups(); err != nil {
		return err
	}
	if err := r.groups.make(r.groupOfSlice(id)); err != nil {
		return err
	}
	// Enables controllers for the nodes' groups (version 2).
	return r.groups.delegate(r.groupOfSlice(id))
}

// mountTmpfs mounts a tmpfs, unless it is mounted already.
func mountTmpfs(dir, size string, flags uintptr) error {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return err
	}
	if mounted, err := isMountPoint(dir); mounted || err != nil {
		return err
	}
	return mount("pergola", dir, "tmpfs", unix.MS_NOSUID|flags, "mode=0711,size="+size)
}

const tunDevice = "/dev/net/tun"

// tunDevice is what slivers open to make tun and tap devices. Root in a sliver has no rights on the machine, so the
// device must be open to all users, as udev makes it. Where it is not (no udev: a container, a small image), the slice
// has one of its own, unless this process may make none.
func (r *Runtime) tunDevice(id uint16) string {
	if info, err := os.Stat(tunDevice); err != nil || info.Mode().Perm()&0o006 == 0o006 || isRootless() {
		return tunDevice
	}
	return filepath.Join(r.sliceDir(id), "tun")
}

func makeTun(path string) error {
	device := unix.Mkdev(10, 200) // Documentation/admin-guide/devices.txt
	if err := unix.Mknod(path, unix.S_IFCHR, int(device)); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("make %s: %w", path, err)
	}
	return os.Chmod(path, 0o666)
}

func isMountPoint(dir string) (bool, error) {
	var s unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, dir, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_TYPE, &s); err != nil {
		return false, fmt.Errorf("examine %s: %w", dir, err)
	}
	return s.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
}

// rewrite changes a file in place: it is bind-mounted, so nodes would not see a new file of its name.
func rewrite(path string, data []byte) error {
	if old, err := os.ReadFile(path); err == nil && string(old) == string(data) {
		return nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteAt(data, 0); err != nil {
		return err
	}
	if err := f.Truncate(int64(len(data))); err != nil {
		return err
	}
	return f.Close()
}

// RemoveSlice deletes all slivers of a slice and what they shared, in any state. Logs stay.
func (r *Runtime) RemoveSlice(ctx context.Context, id uint16) error {
	if err := r.deleteAll(ctx, id); err != nil {
		return err
	}
	defer r.lock(ID{Slice: id})()
	defer r.weights.forget(id)
	if err := r.removeSlice(id); err != nil {
		return fmt.Errorf("remove network %d: %w", id, err)
	}
	return nil
}

// deleteAll deletes the slivers that have a record, and those of which nothing but a cgroup is left.
func (r *Runtime) deleteAll(ctx context.Context, id uint16) error {
	ids, err := r.sliversOf(id)
	if err != nil {
		return err
	}
	groups, err := r.groups.children(r.groupOfSlice(id))
	if err != nil {
		return err
	}
	for _, node := range groups {
		if n := (ID{id, node}); !exists(r.nodeDir(n)) {
			ids = append(ids, n)
		}
	}
	g := new(errgroup.Group)
	g.SetLimit(parallel())
	for _, n := range ids {
		g.Go(func() error { return r.Delete(ctx, n) })
	}
	return g.Wait()
}

func (r *Runtime) removeSlice(id uint16) error {
	if err := r.groups.remove(r.groupOfSlice(id)); err != nil {
		return err
	}
	_ = r.groups.remove(r.groupRoot()) // fails while other slices are there
	dir := r.sliceDir(id)
	for { // with what is mounted below it
		err := unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) { // not mounted
			break
		}
		if err != nil {
			return fmt.Errorf("unmount %s: %w", dir, err)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	r.maps.drop(id)
	return r.images.forget(id)
}

// sliceName gives the name of a slice that is prepared.
func (r *Runtime) sliceName(id uint16) (string, error) {
	data, err := os.ReadFile(filepath.Join(r.sliceDir(id), "slice.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("network %d: %w", id, ErrNoSlice)
	}
	var rec sliceRecord
	if err == nil {
		err = json.Unmarshal(data, &rec)
	}
	if err != nil {
		return "", fmt.Errorf("read record of network %d: %w", id, err)
	}
	return rec.Name, nil
}
