// Package testbed makes several machines out of one, to try and test a cluster.
//
// A machine of the testbed is a set of namespaces (network, mount, PID, UTS, cgroup) with a first process of its own,
// with its own /run, /var, /proc, /sys, cgroup hierarchies and BPF file system; the rest of the file system is that
// of the real machine. In it runs one Pergola process, as a child of the first process: it can be killed and started
// again, and what it left running lives on, as on a real machine. A veth pair, the machine's wire, leads from its
// eth0 into a switch, a bridge in a namespace that belongs to the testbed.
//
//	machine h1          │ switch                   │ machine h2
//	init ── pergola     │                          │ pergola ── init
//	         eth0 ──────┼── h1 ── bridge ── h2 ────┼── eth0
//
// All that a testbed is made of lies below one directory or bears its mark:
//
//	DIR/bed.json        what the testbed consists of
//	DIR/switch          the switch's network namespace, mounted
//	DIR/hosts           /etc/hosts of the machines
//	DIR/NAME/run        /run of a machine; its first process listens on machine.sock in it
//	DIR/NAME/var        /var of a machine
//	pergola-dev-HASH    the cgroup of the testbed, in each hierarchy, with one below it for each machine
//
// No process watches over a testbed. A command that makes or changes it may be killed at any moment; Remove finds
// everything by these names, and nothing else.
package testbed

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// ErrNone means that there is no testbed in a directory.
var ErrNone = errors.New("no testbed is there")

// MaxMachines is how many a testbed can have.
const MaxMachines = 64

// What wires can carry (RFC 8200 wants 1280 for IPv6; 65535 is the veth driver's limit).
const (
	MinMTU     = 1280
	MaxMTU     = 65535
	DefaultMTU = 1500
)

// Config describes a testbed.
type Config struct {
	Machines []string // names, which become host names and those of the switch's ports
	MTU      int      // of all wires
}

// Testbed is one that was made.
type Testbed struct {
	dir string
	Config
}

const stateFile = "bed.json"

// Create makes a testbed in a directory that must be empty or not exist: its switch, and no machine yet.
func Create(dir string, c Config) (*Testbed, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	b := &Testbed{Config: c}
	for _, step := range []func() error{
		func() error { return b.makeDir(dir) }, b.save, b.writeHosts, b.makeGroups, b.makeSwitch,
	} {
		if err := step(); err != nil {
			return nil, fmt.Errorf("make testbed: %w", err)
		}
	}
	return b, nil
}

func (b *Testbed) makeDir(dir string) (err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if b.dir, err = resolve(dir); err != nil {
		return err
	}
	entries, err := os.ReadDir(b.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "."+stateFile) { // a temporary file of save, left by a crash
			return fmt.Errorf("%s is not empty", b.dir)
		}
	}
	return nil
}

// save writes the state file. It is written first, so that whatever a crash leaves can be recognised as a testbed's.
func (b *Testbed) save() error {
	text, err := json.Marshal(b.Config)
	if err != nil {
		return err
	}
	return renameio.WriteFile(b.path(stateFile), text, 0o644, renameio.WithTempDir(b.dir))
}

// resolve gives a directory its one name: the testbed's mark is made of it.
func resolve(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(dir)
}

func (c *Config) check() error {
	if len(c.Machines) < 1 || len(c.Machines) > MaxMachines {
		return fmt.Errorf("make testbed: it has 1 to %d machines, not %d", MaxMachines, len(c.Machines))
	}
	if c.MTU < MinMTU || c.MTU > MaxMTU {
		return fmt.Errorf("make testbed: wires carry frames of %d to %d bytes, not %d", MinMTU, MaxMTU, c.MTU)
	}
	return nil
}

// Open finds the testbed of a directory.
func Open(dir string) (*Testbed, error) {
	b := &Testbed{}
	var text []byte
	var err error
	if b.dir, err = resolve(dir); err == nil {
		text, err = os.ReadFile(b.path(stateFile))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("find testbed in %s: %w", dir, ErrNone)
	}
	if err != nil {
		return nil, fmt.Errorf("find testbed: %w", err)
	}
	if err := json.Unmarshal(text, &b.Config); err != nil {
		return nil, fmt.Errorf("read %s: %w", b.path(stateFile), err)
	}
	return b, nil
}

// Lock keeps others from making, changing or removing the testbed of a directory at the same time. The lock goes with
// the process.
func Lock(dir string) (unlock func(), err error) {
	// The directory's own inode would go with the testbed; its parent's stays.
	f, err := os.Open(filepath.Dir(filepath.Clean(dir)))
	if err != nil {
		return nil, fmt.Errorf("lock testbed: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = errors.New("another command makes or removes it: wait until that has ended")
		}
		return nil, fmt.Errorf("lock testbed: %w", err)
	}
	return func() { _ = f.Close() }, nil
}

func (b *Testbed) path(below ...string) string {
	return filepath.Join(append([]string{b.dir}, below...)...)
}

// digest distinguishes the testbed from others, in so many hexadecimal digits.
func (b *Testbed) digest(digits int) string {
	sum := sha256.Sum256([]byte(b.dir))
	return hex.EncodeToString(sum[:])[:digits]
}

// The machines' networks: of the range for benchmarks (RFC 2544), and unique local addresses (RFC 4193).
var (
	network4 = netip.MustParsePrefix("198.18.0.0/24")
	network6 = netip.MustParsePrefix("fd00:198:18::/64")
)

// Addresses gives those of the machine with a number, from 1, with the length of its network's prefix.
func Addresses(number int) (v4, v6 netip.Prefix) {
	four, six := network4.Addr().As4(), network6.Addr().As16()
	four[3], six[15] = byte(number), byte(number)
	return netip.PrefixFrom(netip.AddrFrom4(four), network4.Bits()),
		netip.PrefixFrom(netip.AddrFrom16(six), network6.Bits())
}

// writeHosts lets the machines find each other by name.
func (b *Testbed) writeHosts() error {
	text := "127.0.0.1 localhost\n::1 localhost\n"
	for i, name := range b.Config.Machines {
		v4, v6 := Addresses(i + 1)
		text += fmt.Sprintf("%s %s\n%s %s\n", v4.Addr(), name, v6.Addr(), name)
	}
	return os.WriteFile(b.path("hosts"), []byte(text), 0o644)
}

// Machines gives all machines in order, whether they run or not.
func (b *Testbed) Machines() []*Machine {
	var all []*Machine
	for i, name := range b.Config.Machines {
		all = append(all, &Machine{testbed: b, Name: name, Number: i + 1})
	}
	return all
}

// Machine finds one by its name.
func (b *Testbed) Machine(name string) (*Machine, bool) {
	for _, m := range b.Machines() {
		if m.Name == name {
			return m, true
		}
	}
	return nil, false
}

// findMarked finds a testbed whose files were removed, by its cgroups. Machines without cgroups are not found.
func findMarked(dir string) (b *Testbed, found bool, err error) {
	b = &Testbed{}
	if b.dir, err = resolve(dir); errors.Is(err, fs.ErrNotExist) {
		b.dir, err = filepath.Abs(dir)
	}
	if err == nil {
		found, err = b.readGroups()
	}
	return b, found, err
}

// Remove ends all machines of the testbed in a directory and removes all that belongs to it, whatever state it is in.
func Remove(ctx context.Context, dir string) error {
	b, err := Open(dir)
	whole := err == nil
	if errors.Is(err, ErrNone) {
		marked, found, failed := findMarked(dir)
		if failed != nil {
			return fmt.Errorf("find testbed: %w", failed)
		}
		if found {
			b, err = marked, nil
		}
	}
	if err != nil {
		return err
	}
	if err := b.removeGroups(ctx); err != nil {
		return fmt.Errorf("end the machines of the testbed: %w", err)
	}
	if err := unix.Unmount(b.path("switch"), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil &&
		!errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove the testbed's switch: %w", err)
	}
	left, err := mountsBelow(b.dir)
	if err == nil && len(left) > 0 { // never walk into it: it could be anything
		err = fmt.Errorf("something is mounted at %v", left)
	}
	if err != nil {
		return fmt.Errorf("remove testbed: %w", err)
	}
	if err := b.removeFiles(whole); err != nil {
		return fmt.Errorf("remove testbed: %w", err)
	}
	return nil
}

// removeFiles removes the directory; where it does not say that it is a testbed's, only what is certainly the
// testbed's.
func (b *Testbed) removeFiles(whole bool) error {
	entries, err := os.ReadDir(b.dir)
	if !whole && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if name := e.Name(); whole && name != stateFile ||
			!whole && slices.Contains(append(b.Config.Machines, "switch", "hosts"), name) {
			err = errors.Join(err, os.RemoveAll(b.path(name)))
		}
	}
	switch {
	case err != nil:
		return err
	case whole: // last, as long as it is there the rest can be found
		return os.RemoveAll(b.dir)
	}
	if err := os.Remove(b.dir); !errors.Is(err, unix.ENOTEMPTY) {
		return err
	}
	return nil
}
