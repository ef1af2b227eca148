package sliver

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/model/slice"
)

// A sliver sees no device of the machine's /dev: its root has no rights on the machine, and who may open a device there
// is for the machine's own users. For each device of its spec it has one of its own with the same number, which belongs
// to the machine's root. So the sliver's users are "others" to it, whatever their capabilities, and its mode says how
// they may open it. The sliver can neither change that nor make devices: both take rights in the machine's own user
// namespace. No rules of a cgroup are needed for that; an OCI runtime that makes some is told the same.

// number is what the kernel knows a device by.
type number struct {
	block        bool
	major, minor uint32
}

func (n number) kind() string {
	if n.block {
		return "b"
	}
	return "c"
}

func (n number) mode() uint32 {
	if n.block {
		return unix.S_IFBLK
	}
	return unix.S_IFCHR
}

// statDevice finds the number of a device of the machine.
func statDevice(path string) (number, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return number{}, fmt.Errorf("device %s: %w", path, err)
	}
	n := number{st.Mode&unix.S_IFMT == unix.S_IFBLK, unix.Major(st.Rdev), unix.Minor(st.Rdev)}
	if !n.block && st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return n, fmt.Errorf("device %s: it is not a device", path)
	}
	return n, nil
}

// bringer names the module that brings a device, for a person.
func bringer(path string) string {
	for _, m := range []struct{ path, module string }{
		{"/dev/fuse", "fuse"}, {"/dev/kvm", "kvm_intel or kvm_amd"}, {"/dev/net/tun", "tun"},
		{"/dev/ppp", "ppp_generic"}, {"/dev/vfio/vfio", "vfio-pci"}, {"/dev/vhost-net", "vhost_net"},
		{"/dev/vhost-vsock", "vhost_vsock"},
	} {
		if m.path == path {
			return " (modprobe " + m.module + " brings it)"
		}
	}
	return ""
}

// Refuses says why no sliver gets a device unless the machine's operator has named it; empty where it may, or where
// there is no such device.
func Refuses(d slice.Device, named []string) string {
	n, err := statDevice(d.Source)
	if err == nil {
		err = n.check(d, named)
	}
	var refused *refusedDevice
	if errors.As(err, &refused) {
		return refused.Error()
	}
	return ""
}

type refusedDevice struct{ path, why string }

func (e *refusedDevice) Error() string {
	return fmt.Sprintf("device %s %s: no node gets it unless this machine allows it by its name "+
		"(pergola server --host-paths %[1]s; this replaces what the flag allows now)", e.path, e.why)
}

func (n number) check(d slice.Device, named []string) error {
	if why := n.danger(); why != "" && !slices.Contains(named, d.Source) {
		return &refusedDevice{d.Source, why}
	}
	return nil
}

// dangerousClasses are those of drivers whose numbers are not fixed, as /sys names them.
var dangerousClasses = []string{
	"bsg", "dax", "gpio", "hidraw", "i2c-dev", "ipmi", "mei", "mtd", "nvme", "nvme-generic", "scsi_tape", "tpm",
	"tpmrm", "watchdog",
}

// danger says what makes a device one by which a node could get at the machine itself; empty: nothing that is known.
// The numbers are those of Documentation/admin-guide/devices.txt; some drivers have none there.
func (n number) danger() string {
	if n.block {
		return "is a disk, whose files all users and the kernel rely on"
	}
	const memory, terminals, ttys, consoles, misc, input, scsi, msr = 1, 4, 5, 7, 10, 13, 21, 202
	switch {
	case n.major == memory && slices.Contains([]uint32{1, 2, 4, 12}, n.minor):
		return "is the machine's memory, or its ports"
	case n.major == memory && n.minor == 11:
		return "is the machine's kernel log"
	case n.major == terminals && n.minor < 64, n.major == ttys && n.minor == 1, n.major == consoles,
		slices.Contains(activeConsoles(), n.name()):
		return "is a console of the machine"
	case n.major == misc && slices.Contains([]uint32{130, 144, 203, 223, 231, 234, 236, 237, 239, 240}, n.minor):
		return "rules the machine: its disks, devices, input, watchdog, or memory at sleep"
	case n.major == input:
		return "is the machine's keyboard, mouse, or the like"
	case n.major == scsi:
		return "sends commands to disks"
	case n.major == msr:
		return "rules the machine's processors"
	}
	class, _ := filepath.EvalSymlinks(n.sys() + "/subsystem")
	if slices.Contains(dangerousClasses, filepath.Base(class)) {
		return "rules the machine's disks, board or memory, or reads its keyboard"
	}
	return ""
}

// sys is where /sys has a character device.
func (n number) sys() string { return fmt.Sprintf("/sys/dev/char/%d:%d", n.major, n.minor) }

// name is that which the kernel gives a character device; empty: there is none.
func (n number) name() string {
	path, err := filepath.EvalSymlinks(n.sys())
	if err != nil {
		return ""
	}
	return filepath.Base(path)
}

// activeConsoles names the terminals that are consoles: also serial ones, and those of hypervisors.
func activeConsoles() []string {
	text, _ := os.ReadFile("/sys/class/tty/console/active")
	return strings.Fields(string(text))
}

func (r *Runtime) device(id ID, i int) string {
	return filepath.Join(r.nodeDir(id), "device-"+strconv.Itoa(i))
}

// deviceStage is where the OCI runtime finds a device, on the launch thread.
func (r *Runtime) deviceStage(id ID, i int) string {
	return filepath.Join(r.filesDir(id), "device-"+strconv.Itoa(i))
}

// makeDevices makes the devices of a sliver where none of the machine's users reaches them.
func (r *Runtime) makeDevices(s *Spec) error {
	for i, d := range s.Devices {
		if d.InEveryNode() {
			continue
		}
		n, err := statDevice(d.Source)
		if err == nil {
			err = n.check(d, s.Named)
		}
		if err != nil {
			return err
		}
		path, mode := r.device(s.ID, i), modeOf(d)
		if isRootless() { // it may make none: the node gets the machine's, with this user's rights
			if d.Access != "" {
				return fmt.Errorf("make device %s: this host is an ordinary user's, whose nodes open "+
					"devices as the user may: leave out %q", d.Source, d.Access)
			}
			err = os.Symlink(d.Source, path)
		} else if err = unix.Mknod(path, n.mode()|mode, int(unix.Mkdev(n.major, n.minor))); err == nil {
			err = unix.Chmod(path, mode) // whatever the umask
		}
		if err == nil {
			err = os.WriteFile(r.deviceStage(s.ID, i), nil, 0o644)
		}
		if err != nil {
			return fmt.Errorf("make device %s: %w", d.Source, err)
		}
	}
	return nil
}

// modeOf gives others, as which the sliver's users count, the access of a device.
func modeOf(d slice.Device) uint32 {
	return map[string]uint32{"r": 0o004, "w": 0o002, "": 0o006}[d.Access]
}

// mountDevices mounts them; it runs on the launch thread.
func (r *Runtime) mountDevices(s *Spec) error {
	for i, d := range s.Devices {
		if d.InEveryNode() {
			continue
		}
		const attr = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC
		if err := bind(r.device(s.ID, i), r.deviceStage(s.ID, i), attr); err != nil {
			return err
		}
	}
	return nil
}

// deviceRules are for an OCI runtime that manages the cgroup. It adds the devices that every container has.
func deviceRules(s *Spec) (*specs.LinuxResources, error) {
	if len(s.Devices) == 0 {
		return nil, nil
	}
	rules := []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}
	for _, d := range s.Devices {
		n, err := statDevice(d.Source)
		if err != nil {
			return nil, err
		}
		major, minor := int64(n.major), int64(n.minor)
		rules = append(rules, specs.LinuxDeviceCgroup{
			Allow: true, Type: n.kind(), Major: &major, Minor: &minor, Access: cmp.Or(d.Access, "rw"),
		})
	}
	return &specs.LinuxResources{Devices: rules}, nil
}
