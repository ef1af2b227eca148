package sliver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/model/slice"
)

// What nodes have written is read in bounds, and whatever symbolic links they have made, nothing outside of them is.

// ErrTooLarge means that a file of a sliver is larger than the caller takes, or that there are more of them.
var ErrTooLarge = errors.New("too large")

// ReadFile reads a regular file of a sliver that runs, of at most so many bytes.
func (r *Runtime) ReadFile(id ID, name string, most int64) (f slice.File, err error) {
	root, err := r.rootOf(id)
	if err != nil {
		return f, err
	}
	defer unix.Close(root)
	f, err = readIn(root, name, most)
	if err != nil {
		return f, fmt.Errorf("read %s of node %s: %w", name, id.Node, err)
	}
	return f, nil
}

// rootOf opens the root directory of a sliver, as the sliver sees it.
func (r *Runtime) rootOf(id ID) (int, error) {
	rec, err := r.readRecord(id)
	if err != nil {
		return -1, err
	}
	if !rec.Process.alive() {
		return -1, fmt.Errorf("node %s: %w", id.Node, ErrNotRunning)
	}
	return openRoot(rec.Process)
}

// readIn reads a regular file. It is looked at before it is opened: a FIFO would block its reader.
func readIn(root int, name string, most int64) (out slice.File, err error) {
	fd, err := openIn(root, name, unix.O_PATH)
	if err != nil {
		return out, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return out, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return out, errors.New("not a regular file")
	}
	if err := refuseUnkept(fd); err != nil {
		return out, err
	}
	// Not to wait for a lease that the sliver has on the file (F_SETLEASE in fcntl(2)).
	f, err := os.OpenFile("/proc/self/fd/"+strconv.Itoa(fd), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return out, err
	}
	defer f.Close()
	data, err := readAll(f, most)
	return slice.File{Path: path.Clean("/" + name), Mode: st.Mode & 0o7777, Data: data}, err
}

// unkept are file systems whose files are answers of the kernel, or of a process: to read one may wait for ever
// (/proc/kmsg), and as root it says more than the sliver may know.
var unkept = map[int64]string{
	unix.PROC_SUPER_MAGIC: "proc", unix.SYSFS_MAGIC: "sysfs", unix.CGROUP_SUPER_MAGIC: "cgroup",
	unix.CGROUP2_SUPER_MAGIC: "cgroup2", unix.DEBUGFS_MAGIC: "debugfs", unix.TRACEFS_MAGIC: "tracefs",
	unix.SECURITYFS_MAGIC: "securityfs", unix.FUSE_SUPER_MAGIC: "fuse",
}

func refuseUnkept(fd int) error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return err
	}
	if name := unkept[fs.Type]; name != "" {
		return fmt.Errorf("it is a file of %s, which is not read", name)
	}
	return nil
}

func readAll(f io.Reader, most int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("%w: more than %d bytes", ErrTooLarge, most)
	}
	return data, err
}

// mostNames is how many names a directory of a sliver may have.
const mostNames = 1000

// ReadDir gives the names in a directory of a sliver that runs, sorted; none where there is no such directory.
func (r *Runtime) ReadDir(id ID, name string) (names []string, err error) {
	root, err := r.rootOf(id)
	if err != nil {
		return nil, err
	}
	defer unix.Close(root)
	fd, err := openIn(root, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list %s of node %s: %w", name, id.Node, err)
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	if names, err = f.Readdirnames(mostNames + 1); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("list %s of node %s: %w", name, id.Node, err)
	}
	if len(names) > mostNames {
		return nil, fmt.Errorf("list %s of node %s: %w: more than %d names", name, id.Node, ErrTooLarge,
			mostNames)
	}
	slices.Sort(names)
	return names, nil
}

// Dial connects to a stream socket in the file system of a sliver that runs.
func (r *Runtime) Dial(ctx context.Context, id ID, name string) (net.Conn, error) {
	root, err := r.rootOf(id)
	if err != nil {
		return nil, err
	}
	defer unix.Close(root)
	fd, err := openIn(root, name, unix.O_PATH)
	if err != nil {
		return nil, fmt.Errorf("connect to %s of node %s: %w", name, id.Node, err)
	}
	defer unix.Close(fd)
	c, err := new(net.Dialer).DialContext(ctx, "unix", "/proc/self/fd/"+strconv.Itoa(fd))
	if err != nil {
		return nil, fmt.Errorf("connect to %s of node %s: %w", name, id.Node, missing(err))
	}
	return c, nil
}

// EtcFiles gives the files below /etc that were written to a sliver since it was made, by its creator or by itself,
// sorted: those that are in the sliver's own layer above the machine's, or the image's. All have at most so many bytes
// together. What skip says is left out; it is given paths such as /etc/passwd.
func (r *Runtime) EtcFiles(id ID, most int64, skip func(name string) bool) (all []slice.File, err error) {
	root, err := r.openEtc(id)
	if errors.Is(err, fs.ErrNotExist) { // nothing was written there
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list /etc of node %s: %w", id.Node, err)
	}
	defer root.Close()
	seen := 0
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		full := path.Join("/etc", name)
		switch seen++; {
		case errors.Is(err, fs.ErrNotExist): // removed meanwhile
			return nil
		case err != nil:
			return err
		case seen > mostNames:
			return fmt.Errorf("%w: more than %d files", ErrTooLarge, mostNames)
		case name != "." && skip(full):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case !d.Type().IsRegular(): // links, and what is no file: whiteouts, sockets
			return nil
		}
		f, err := readBelow(root, name, most)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", full, err)
		}
		f.Path = full
		most -= int64(len(f.Data))
		all = append(all, f)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list /etc of node %s: %w", id.Node, err)
	}
	return all, nil
}

// openEtc opens the layer of a sliver's own /etc.
func (r *Runtime) openEtc(id ID) (*os.Root, error) {
	root, err := os.OpenRoot(filepath.Join(r.filesDir(id), "etc"))
	if !errors.Is(err, fs.ErrNotExist) {
		return root, err
	}
	upper, err := os.OpenRoot(filepath.Join(r.filesDir(id), "upper"))
	if err != nil {
		return nil, err
	}
	defer upper.Close()
	return upper.OpenRoot("etc")
}

func readBelow(root *os.Root, name string, most int64) (out slice.File, err error) {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return out, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return out, err
	}
	if !info.Mode().IsRegular() {
		return out, fs.ErrNotExist
	}
	data, err := readAll(f, most)
	return slice.File{Mode: uint32(info.Mode().Perm()), Data: data}, err
}
