// Package sliver runs the nodes of a slice as containers of one machine.
//
// A sliver is an OCI container in a user namespace of its own. The runtime makes its network namespace, which starts
// empty: call Create, put ports into it by its process id, then call Start. No server process is needed for a running
// sliver. Its state is in three places that survive the server: the record in the state directory, the cgroup in which
// all of its processes started, and the kernel's process table. When the first process ends, the kernel removes the
// network namespace and all devices in it.
//
// The mounts of a sliver exist only in its own mount namespace (launch.go); on the machine there is one tmpfs per
// slice.
package sliver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pergola-net/pergola/model/slice"
)

// Config has the directories and limits of a Runtime. Directories that are missing are made.
type Config struct {
	StateDir string // empty after a reboot: records, the runtime's state, the slices' file systems
	LogDir   string // what first processes print; kept when slivers go
	BlobDir  string // archives and unpacked images
	// VolumeDir has the volumes of nodes: SLICE/NODE/VOLUME. They outlive slivers and slices.
	VolumeDir string
	Runtime   string // path or name of the OCI runtime; empty: crun, else runc

	SliceBytes int64 // size of each slice's tmpfs; 0: an eighth of the machine's memory
	LogBytes   int64 // a log that grows beyond is cut; 0: 4 MiB
}

// ID names a sliver on this machine.
type ID struct {
	Slice uint16 `json:"slice"`
	Node  string `json:"node"`
}

// String gives the form for messages.
func (id ID) String() string { return fmt.Sprintf("%d/%s", id.Slice, id.Node) }

// Spec is the blueprint of a sliver.
type Spec struct {
	ID
	SliceName string
	Digest    string // of the blueprint, given back by List: the caller's means to see a difference
	Hostname  string // empty: the node's name
	Rootfs    slice.Rootfs
	Command   []string // empty: that of the image; without an image, a process that does nothing but reap
	Args      []string // of the image's entrypoint; empty: the image's own
	User      string   // of the first process; empty: that of the image, else root
	Stdin     bool     // standard input of the first process stays open and empty
	Env       map[string]string
	Files     []slice.File
	Binds     []slice.Bind
	Volumes   []slice.Volume
	Devices   []slice.Device
	CapAdd    []string // capabilities of its root user, beside slice.Capabilities
	// Named are sources of Devices that the machine's operator has named: they may be such as no sliver gets
	// otherwise. It is no part of the blueprint.
	Named []string `json:"-"`
	// Beneath has, by path of the machine that the sliver sees, the directory that the path must not lead out of.
	// It is no part of the blueprint.
	Beneath   map[string]string `json:"-"`
	CPU       float64           // cores; 0: no limit
	CPUPeriod time.Duration     // in which it is; 0: slice.DefaultCPUPeriod
	Memory    int64             // bytes; 0: no limit
	PIDs      int64             // 0: slice.DefaultPIDs
	Sysctls   map[string]string // net.* and what else the kernel keeps per namespace
	Socket    bool              // the sliver has the directory of a control socket (Runtime.Listen)
	// Notes are set before anything runs in the sliver (Runtime.Note). They are no part of the blueprint.
	Notes map[string]string `json:"-"`
}

// State is the stage of a sliver's life.
type State string

// The states of a sliver.
const (
	Broken  State = "broken"  // half made: an interrupted Create or Delete; Delete it
	Created State = "created" // namespaces are there, the command does not run yet
	Running State = "running"
	Paused  State = "paused"
	Exited  State = "exited"
)

// Observed is the present state of a sliver.
type Observed struct {
	ID
	SliceName string
	Digest    string
	State     State
	PID       int // of the first process, as the machine counts; 0 when it does not live
	CreatedAt time.Time
	StartedAt time.Time
	ExitedAt  time.Time
	ExitCode  int // 128 + signal for a killed process; -1: not known, because no server watched
	Notes     map[string]string

	// OutOfMemory is set for an exited sliver in which the kernel killed a process at the memory limit.
	OutOfMemory bool
}

// Causes that callers distinguish.
var (
	ErrNotFound   = errors.New("no such node on this host")
	ErrExists     = errors.New("it exists already")
	ErrNotRunning = errors.New("it is not running")
	ErrNoSlice    = errors.New("it is not prepared on this machine")
)

const featureContainers = "containers"

// Unsupported is the error of a machine that cannot run slivers. It has the remedy.
type Unsupported struct {
	Feature string
	Cause   error
	Do      string
}

func (e *Unsupported) Error() string {
	return fmt.Sprintf("use %s: %v (%s)", e.Feature, e.Cause, e.Do)
}

func (e *Unsupported) Unwrap() error { return e.Cause }

// Runtime makes and removes slivers. Its methods may be called concurrently.
type Runtime struct {
	cfg    Config
	oci    engine
	init   string // catatonit of this machine
	groups cgroups
	launch launcher
	users  users
	images images
	maps   namespaces

	seccomp   atomic.Pointer[string] // the compiled filter, base64, once the runtime has compiled it
	compiling sync.Mutex             // held by a Create that has it compiled

	weights weights

	locks sync.Map // ID -> *sync.Mutex; held while a record changes
	watch watcher
	done  context.CancelFunc
}

// New examines the machine, adopts the slivers that run under cfg.StateDir, and watches them. An error of type
// *Unsupported names what the machine lacks.
//
// The calling process becomes the child subreaper of the slivers, so that it receives their exit status.
func New(ctx context.Context, cfg Config) (*Runtime, error) {
	if cfg.SliceBytes == 0 {
		cfg.SliceBytes = totalMemory() / 8
	}
	if cfg.LogBytes == 0 {
		cfg.LogBytes = 4 << 20
	}
	// go-runc writes its temporary files there, and the variable of the caller may name no directory.
	if err := os.Unsetenv("XDG_RUNTIME_DIR"); err != nil {
		return nil, err
	}
	r := &Runtime{cfg: cfg}
	for _, step := range []func(context.Context) error{
		r.needRoot, r.findPrograms, r.makeDirs, r.findCgroups, r.removeOrphans, r.probeLaunch,
	} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	r.users = hostUsers()
	r.images.dir = cfg.BlobDir
	r.images.removeHalfMade()
	r.removeHalfRemoved()
	r.watch.nested = !r.oci.detachExec
	if err := r.watch.start(); err != nil {
		return nil, err
	}
	if err := r.adopt(); err != nil {
		return nil, err
	}
	ctx, r.done = context.WithCancel(context.Background())
	go r.trimLogs(ctx)
	return r, nil
}

// Close stops watching. Slivers continue to run.
func (r *Runtime) Close() {
	r.done()
	r.watch.stop()
	r.watch.reapOrphans()
}

// Exits receives each sliver whose first process ended otherwise than by Delete.
func (r *Runtime) Exits() <-chan ID { return r.watch.exits }

// adopt watches the slivers that an earlier process made.
func (r *Runtime) adopt() error {
	ids, err := r.slivers()
	if err != nil {
		return fmt.Errorf("adopt nodes: %w", err)
	}
	for _, id := range ids {
		if rec, err := r.readRecord(id); err == nil && rec.Exit == nil {
			r.watchProcess(id, rec.Process)
		}
	}
	return nil
}

func (r *Runtime) lock(id ID) (unlock func()) {
	m, _ := r.locks.LoadOrStore(id, new(sync.Mutex))
	mu := m.(*sync.Mutex)
	mu.Lock()
	return mu.Unlock
}

// Names become parts of paths and of the runtime's arguments.
var nameOK = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.+-]{0,127}$`)

func checkName(what, name string) error {
	if !nameOK.MatchString(name) {
		return fmt.Errorf("use %q as name of a %s: only letters, digits, and _ . + - after the first", name,
			what)
	}
	return nil
}

// needRoot: root of a user namespace will do (package rootless).
func (r *Runtime) needRoot(context.Context) error {
	if os.Geteuid() != 0 {
		return &Unsupported{featureContainers, errors.New("not root"), "run the server as root"}
	}
	return nil
}

// makeDirs makes the directories. The runtime reaches a sliver's root with the rights of the sliver's root user, so all
// directories above it must be searchable, though not readable, by all users. (An ordinary user's server and its
// slivers are one user.)
func (r *Runtime) makeDirs(context.Context) error {
	if strings.ContainsAny(r.cfg.StateDir+r.cfg.BlobDir, ":,\\") {
		return fmt.Errorf("use %s and %s: overlay file systems cannot name a path with : , or \\",
			r.cfg.StateDir, r.cfg.BlobDir)
	}
	for _, d := range []struct {
		path string
		mode os.FileMode
	}{{r.slicesDir(), 0o711}, {r.cfg.LogDir, 0o755}, {r.cfg.BlobDir, 0o700}} {
		if !filepath.IsAbs(d.path) {
			return fmt.Errorf("use directory %q: not an absolute path", d.path)
		}
		if err := os.MkdirAll(d.path, d.mode); err != nil {
			return fmt.Errorf("make directory %s: %w", d.path, err)
		}
	}
	for dir := r.slicesDir(); dir != "/" && !isRootless(); dir = filepath.Dir(dir) {
		fi, err := os.Stat(dir)
		if err != nil {
			return fmt.Errorf("use directory %s: %w", dir, err)
		}
		if fi.Mode()&0o001 == 0 {
			return fmt.Errorf("use directory %s: not searchable by others, "+
				"so containers cannot reach their roots (chmod o+x %s)",
				r.cfg.StateDir, dir)
		}
	}
	return nil
}

// parallel is how many launches and removals run at a time: they are system time for the most part.
func parallel() int { return max(4, 2*runtime.NumCPU()) }
