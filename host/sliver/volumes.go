package sliver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/model/slice"
)

// Volume is one that is on this machine.
type Volume struct {
	Slice, Node, Name string
	Bytes             int64 // on the disk
}

// addVolumes makes the volumes of a sliver that are not there, and shows them to it as paths of the machine.
func (r *Runtime) addVolumes(s *Spec) error {
	for _, v := range s.Volumes {
		dir, err := r.makeVolume(s, v)
		if err != nil {
			return fmt.Errorf("make volume %s: %w", v.Name, err)
		}
		s.Binds = append(s.Binds, slice.Bind{Source: dir, Target: v.Target, ReadOnly: v.ReadOnly})
	}
	return nil
}

// makeVolume makes a volume, or gives one that is there to the sliver's user ids: those of a slice may be others than
// when it last ran.
func (r *Runtime) makeVolume(s *Spec, v slice.Volume) (string, error) {
	if r.cfg.VolumeDir == "" {
		return "", errors.New("this server has no directory for volumes")
	}
	for what, name := range map[string]string{"slice": s.SliceName, "node": s.Node, "volume": v.Name} {
		if err := checkName(what, name); err != nil {
			return "", err
		}
	}
	parent := filepath.Join(r.cfg.VolumeDir, s.SliceName, s.Node)
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return "", err
	}
	// The bind wants a path without symbolic links; above the volume, only root of the machine could make some.
	parent, err := filepath.EvalSymlinks(parent)
	if err != nil {
		return "", err
	}
	dir, base := filepath.Join(parent, v.Name), uidBase(s.Slice)
	switch err := os.Mkdir(dir, 0o755); {
	case errors.Is(err, fs.ErrExist):
		return dir, shiftTree(dir, base)
	case err != nil:
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // whatever the umask
		return "", err
	}
	return dir, os.Lchown(dir, base, base)
}

// shiftTree gives all that belongs to the users of one slice to those of another one. No process of a node may have
// access meanwhile. The top comes last: it says which slice all of it is for.
func shiftTree(top string, base int) error {
	old, err := baseOf(top)
	if err != nil || old == base {
		return err
	}
	shift := func(path string) error {
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		return os.Lchown(path, shifted(st.Uid, old, base), shifted(st.Gid, old, base))
	}
	err = filepath.WalkDir(top, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || path == top {
			return err
		}
		return shift(path)
	})
	if err != nil {
		return err
	}
	return shift(top)
}

// baseOf gives the first user id of the slice that a directory belongs to.
func baseOf(dir string) (int, error) {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return 0, &fs.PathError{Op: "examine", Path: dir, Err: err}
	}
	if st.Uid < firstUID { // a crash between its making and its owner
		return 0, nil
	}
	return firstUID + (int(st.Uid)-firstUID)/manyIDs*manyIDs, nil
}

func shifted(id uint32, old, base int) int {
	if n := int(id); n >= old && n < old+manyIDs {
		return n - old + base
	}
	return int(id)
}

// Volumes lists the volumes that are on this machine, sorted.
func (r *Runtime) Volumes() (all []Volume, err error) {
	if r.cfg.VolumeDir == "" {
		return nil, nil
	}
	paths, err := fs.Glob(os.DirFS(r.cfg.VolumeDir), "[^.]*/*/*") // the directory itself may have such characters
	if err != nil {
		return nil, err
	}
	slices.Sort(paths)
	for _, path := range paths {
		parts := strings.Split(path, "/")
		all = append(all, Volume{
			Slice: parts[0], Node: parts[1], Name: parts[2],
			Bytes: sizeOf(filepath.Join(r.cfg.VolumeDir, path)),
		})
	}
	return all, nil
}

// sizeOf is what a directory takes of its disk, but for what is removed meanwhile.
func sizeOf(dir string) (bytes int64) {
	_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil && unix.Lstat(path, &st) == nil {
			bytes += st.Blocks * 512
		}
		return nil
	})
	return bytes
}

// RemoveVolumes removes the volumes of a slice, of which nothing may run here.
func (r *Runtime) RemoveVolumes(name string) error {
	if err := checkName("slice", name); err != nil {
		return err
	}
	ids, err := r.Slices()
	if err != nil {
		return err
	}
	for _, id := range ids {
		if has, err := r.sliceName(id); err == nil && has == name {
			return fmt.Errorf("remove volumes of %s: it is on this machine", name)
		}
	}
	if r.cfg.VolumeDir == "" {
		return nil
	}
	// The removal can take long: a slice of this name that comes meanwhile has volumes of its own.
	aside := filepath.Join(r.cfg.VolumeDir, asidePrefix+name)
	err = os.RemoveAll(aside) // a crash may have left it
	if err == nil {
		err = os.Rename(filepath.Join(r.cfg.VolumeDir, name), aside)
	}
	if err == nil {
		err = os.RemoveAll(aside)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove volumes of %s: %w", name, err)
	}
	return nil
}

// asidePrefix is that of directories whose volumes are being removed. No slice has such a name.
const asidePrefix = ".removed-"

// removeHalfRemoved goes on with removals that a crash has ended.
func (r *Runtime) removeHalfRemoved() {
	if r.cfg.VolumeDir == "" {
		return
	}
	left, _ := fs.Glob(os.DirFS(r.cfg.VolumeDir), asidePrefix+"*") // the pattern is well formed
	for _, name := range left {
		os.RemoveAll(filepath.Join(r.cfg.VolumeDir, name)) // in the way of nothing
	}
}
