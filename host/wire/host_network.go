package wire

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/kernel/netns"
)

// make mounts what is not mounted; made says whether there was no namespace. A plain network needs no bpf file system.
func (p paths) make(plain bool) (made bool, err error) {
	if err := os.MkdirAll(p.nsDir, 0o700); err != nil {
		return false, fmt.Errorf("make directory: %w", err)
	}
	if !netns.Mounted(p.ns) {
		made = true
		if err := p.makeNamespace(); err != nil {
			return made, err
		}
	}
	if plain {
		return made, nil
	}
	if err := os.MkdirAll(p.bpf, 0o700); err != nil {
		return made, fmt.Errorf("make directory: %w", err)
	}
	if !isBPF(p.bpf) {
		const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
		if err := unix.Mount("bpf", p.bpf, "bpf", flags, "mode=0700"); err != nil {
			return made, fmt.Errorf("mount bpf file system at %s: %w", p.bpf, err)
		}
	}
	return made, nil
}

func (p paths) makeNamespace() error {
	file, err := os.OpenFile(p.ns, os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return fmt.Errorf("make mount point: %w", err)
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("make mount point: %w", err)
	}
	return netns.New(func() error {
		quiet() // before anybody can see it
		if err := unix.Mount("/proc/thread-self/ns/net", p.ns, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount network namespace at %s: %w", p.ns, err)
		}
		return nil
	})
}

// quiet keeps the substrate's own stack out of what passes through: no IPv6, whose neighbour discovery and MLD
// reports of each device would cross all bridges, and no firewall on bridges.
func quiet() {
	for _, s := range []sysctl{
		{"net/ipv6/conf/all/disable_ipv6", "1"},
		{"net/ipv6/conf/default/disable_ipv6", "1"},
		{"net/ipv4/ip_forward", "0"}, // inherited from the machine
		{"net/bridge/bridge-nf-call-iptables", "0"},
		{"net/bridge/bridge-nf-call-ip6tables", "0"},
		{"net/bridge/bridge-nf-call-arptables", "0"},
	} {
		_ = s.set() // absent where the kernel has no such thing to silence
	}
}

// Remove removes the host network below the state directory, or what is left of one: devices, mounts, files, and
// programs at the interfaces of the machine, whose namespace is the caller's.
func Remove(ctx context.Context, stateDir string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p := pathsOf(stateDir)
	return errors.Join(
		p.undoNoted(), p.removeDevices(),
		unmount(p.ns), remove(p.ns), remove(p.nsDir),
		p.unpin(), unmount(p.bpf), remove(p.bpf),
	)
}

// undoNoted undoes what the data path's notes say was done to the machine.
func (p paths) undoNoted() error {
	nics, err := datapath.PinnedNotes(p.bpf, datapath.NoteNIC)
	if err != nil {
		return err
	}
	set, err := datapath.PinnedNotes(p.bpf, datapath.NoteForwarding)
	if err != nil {
		return err
	}
	threaded, err := datapath.PinnedNotes(p.bpf, datapath.NoteThreaded)
	if err != nil {
		return err
	}
	for index, how := range threaded {
		if err := unthread(index, how); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			return err
		}
	}
	return undoNoted(slices.Collect(maps.Keys(nics)), len(set) > 0)
}

func undoNoted(nics []int, forwarding bool) error {
	for _, index := range nics {
		if err := new(datapath.DataPath).DetachUnderlay(index); err != nil { // needs nothing of an open one
			return err
		}
	}
	if !forwarding {
		return nil
	}
	return resetForwardingDefault()
}

// removeDevices empties the namespace: the kernel dismantles namespaces in the background, but an uplink's end on the
// host's side should be gone now.
func (p paths) removeDevices() error {
	ns, err := netns.Open(p.ns)
	if errors.Is(err, netns.ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }()
	nl, err := dial(ns)
	if err != nil {
		return err
	}
	defer nl.close()
	all, err := nl.devices()
	if err != nil {
		return err
	}
	for _, d := range all {
		if d.was != nil { // of an earlier version
			if err := undoNoted(d.was.nics, d.was.raised); err != nil {
				return err
			}
		}
	}
	all = slices.DeleteFunc(all, func(d device) bool { return !d.ofOurKind() })
	return nl.deleteDevices(all)
}

// unpin deletes pins first: the bpf file system may also be mounted in a namespace that someone copied from ours.
func (p paths) unpin() error {
	if !isBPF(p.bpf) {
		return nil
	}
	// The kernel has files of its own there.
	for _, pattern := range []string{"abi*", "nodes", "xdp-*", "nic-*", "handover-*", "claims"} {
		pins, err := filepath.Glob(filepath.Join(p.bpf, pattern))
		if err != nil {
			return err
		}
		for _, pin := range pins {
			if err := os.RemoveAll(pin); err != nil {
				return fmt.Errorf("unpin data path: %w", err)
			}
		}
	}
	return nil
}

// unmount takes away every mount at path.
func unmount(path string) error {
	for {
		err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		switch {
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT): // not a mount point
			return nil
		case err != nil:
			return fmt.Errorf("unmount %s: %w", path, err)
		}
	}
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err // names the path
	}
	return nil
}

func isBPF(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Type == unix.BPF_FS_MAGIC
}
