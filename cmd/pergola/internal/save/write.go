package save

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/pergola-net/pergola/model/topology"
)

// FileName is the name of the topology in its directory.
const FileName = "topology.yaml"

// parts are the names of what is in such a directory: nothing else is removed with it.
var parts = []string{FileName, "nodes", "programs", "rootfs"}

// mostBytes is what `up` takes of all files together, archives apart.
const mostBytes = 256 << 20

// Archives gives a root file system by its SHA-256.
type Archives interface {
	GetBlob(ctx context.Context, sum string, to io.Writer) error
}

// ErrExists means that there is something at the place where a directory is to be.
var ErrExists = errors.New("it is there already")

// Write makes the directory, whole or not at all: it is written beside its place, and renamed. With replace, it takes
// the place of one that Write has made. missing names the archives that could not be had, each with the reason.
func (saved *Saved) Write(ctx context.Context, dir string, replace bool, from Archives) (missing []string, err error) {
	old, err := examine(dir, replace)
	if err != nil {
		return nil, fmt.Errorf("save to %s: %w", dir, err)
	}
	temporary, err := os.MkdirTemp(filepath.Dir(filepath.Clean(dir)), "."+filepath.Base(filepath.Clean(dir))+"-*")
	if err != nil {
		return nil, fmt.Errorf("save to %s: %w", dir, err)
	}
	defer os.RemoveAll(temporary) // nothing is there after success
	if missing, err = saved.fill(ctx, temporary, from); err == nil {
		err = move(temporary, dir, old)
	}
	if err != nil {
		return nil, fmt.Errorf("save to %s: %w", dir, err)
	}
	return missing, nil
}

// examine reports whether there is a directory that is to be replaced: one that is empty, or that Write has made.
func examine(dir string, replace bool) (old bool, err error) {
	info, err := os.Lstat(filepath.Clean(dir))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case !info.IsDir():
		return false, fmt.Errorf("%w, and is no directory", ErrExists)
	}
	if here, err := os.Stat("."); err == nil && os.SameFile(info, here) {
		return false, errors.New("it is the current directory: name one in it")
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false, err
	}
	if len(entries) > 0 && !replace {
		return false, ErrExists
	}
	for _, e := range entries {
		if !slices.Contains(parts, e.Name()) {
			return false, fmt.Errorf("%w, with %s in it, which is not replaced", ErrExists, e.Name())
		}
	}
	return true, nil
}

// move puts the new directory in its place. The old one is there until then, and comes back if that fails.
func move(temporary, dir string, old bool) error {
	if !old {
		return os.Rename(temporary, dir)
	}
	aside := temporary + ".old"
	if err := os.Rename(dir, aside); err != nil {
		return err
	}
	if err := os.Rename(temporary, dir); err != nil {
		return errors.Join(err, os.Rename(aside, dir))
	}
	return os.RemoveAll(aside)
}

func (saved *Saved) fill(ctx context.Context, dir string, from Archives) (missing []string, err error) {
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir) // names come from nodes: nothing is written elsewhere
	if err != nil {
		return nil, err
	}
	defer root.Close()
	text, err := topology.Marshal(saved.Topology)
	if err != nil {
		return nil, err
	}
	text = append([]byte("# Written by `pergola save`: the network as it ran.\n"), text...)
	written := map[string][]byte{FileName: text}
	total := len(text)
	for _, f := range saved.Topology.Sources() {
		if f.SHA256 != "" {
			continue
		}
		if was, twice := written[f.Path]; twice && !bytes.Equal(was, f.Data) {
			return nil, fmt.Errorf("two files are to be %s", f.Path)
		}
		written[f.Path] = f.Data
		if total += len(f.Data); total > mostBytes {
			return nil, fmt.Errorf("the files have more than %d MiB together, which no `up` takes",
				mostBytes>>20)
		}
	}
	for name, data := range written {
		mode := fs.FileMode(0o600) // configurations may have passwords
		if name == FileName {
			mode = 0o644
		}
		if err := writeIn(root, name, mode, func(w io.Writer) error {
			_, err := w.Write(data)
			return err
		}); err != nil {
			return nil, err
		}
	}
	return saved.fetch(ctx, root, from)
}

// fetch writes the archives of root file systems.
func (saved *Saved) fetch(ctx context.Context, root *os.Root, from Archives) (missing []string, err error) {
	for _, f := range saved.Archives {
		if _, err := root.Stat(f.Path); err == nil {
			continue
		}
		var why error
		err := writeIn(root, f.Path, 0o600, func(w io.Writer) error {
			why = from.GetBlob(ctx, f.SHA256, w)
			return nil
		})
		switch {
		case err != nil:
			return nil, err
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case why != nil:
			if err := root.Remove(f.Path); err != nil {
				return nil, err
			}
			missing = append(missing, fmt.Sprintf("%s (SHA-256 %s): %v", f.Path, f.SHA256, why))
		}
	}
	return missing, nil
}

func writeIn(root *os.Root, name string, mode fs.FileMode, fill func(io.Writer) error) error {
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	err = fill(f)
	return errors.Join(err, f.Close())
}
