package sliver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/model/slice"
)

// Paths of the machine that a node sees are resolved first: their targets must lie where the spec says (Spec.Beneath).
// From then on none of their parts may be a symbolic link: a node that writes below the same directory could put one
// there at any moment.

// resolved gives the spec with all symbolic links in the machine's paths resolved.
func (s Spec) resolved() (Spec, error) {
	if k := s.Rootfs.Kind; k == slice.RootfsDir || k == slice.RootfsLayout {
		path, err := s.resolve(s.Rootfs.Ref)
		if err != nil {
			return s, fmt.Errorf("use root file system %s: %w", s.Rootfs.Ref, err)
		}
		s.Rootfs.Ref = path
	}
	s.Binds = slices.Clone(s.Binds)
	for i := range s.Binds {
		path, err := s.resolve(s.Binds[i].Source)
		if err != nil {
			return s, fmt.Errorf("bind %s: %w", s.Binds[i].Source, err)
		}
		s.Binds[i].Source = path
	}
	return s, nil
}

func (s *Spec) resolve(path string) (string, error) {
	plain, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", missing(err)
	}
	dir, bound := s.Beneath[path]
	if !bound {
		return plain, nil
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return "", missing(err)
	}
	if plain != dir && !strings.HasPrefix(plain, strings.TrimSuffix(dir, "/")+"/") {
		return "", fmt.Errorf("it leads to %s, out of %s, of which networks may have something", plain, dir)
	}
	return plain, nil
}

// missing drops the path from an error: the caller's message has it.
func missing(err error) error {
	var at *os.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

// openPlain opens a path of which no part is a symbolic link.
func openPlain(path string) (int, error) {
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	fd, err := unix.Openat2(unix.AT_FDCWD, path, how)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", path, err)
	}
	return fd, nil
}

// makeStages makes the mount points of the machine's paths, on the launch thread, where the OCI runtime finds them.
func (r *Runtime) makeStages(s *Spec) error {
	for i, b := range s.Binds {
		fi, err := os.Stat(b.Source)
		if err == nil && fi.IsDir() {
			err = os.Mkdir(r.stage(s.ID, i), 0o711)
		} else if err == nil {
			err = os.WriteFile(r.stage(s.ID, i), nil, 0o644)
		}
		if err != nil {
			return fmt.Errorf("bind %s: %w", b.Source, err)
		}
	}
	return nil
}

func (r *Runtime) stage(id ID, bind int) string {
	return filepath.Join(r.filesDir(id), "bind-"+strconv.Itoa(bind))
}

// mountStages mounts the machine's paths; it runs on the launch thread.
func (r *Runtime) mountStages(s *Spec) error {
	for i, b := range s.Binds {
		attr := uint64(unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV)
		if b.ReadOnly { // the runtime makes so the uppermost mount alone
			attr |= unix.MOUNT_ATTR_RDONLY
		}
		if err := bindPlain(b.Source, r.stage(s.ID, i), attr); err != nil {
			return err
		}
	}
	return nil
}

func bindPlain(source, target string, attr uint64) error {
	fd, err := openPlain(source)
	if err != nil {
		return fmt.Errorf("bind %s: %w", source, err)
	}
	defer unix.Close(fd)
	return bindAt(fd, "", source, target, attr)
}
