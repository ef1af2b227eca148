package sliver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/model/slice"
)

// rootfs is a root file system that can be mounted.
type rootfs struct {
	path  string
	mount func() error // on the launch thread
	image imageConfig  // zero unless it comes from an image
	lower string       // directory of the image, as it came
}

// makeRootfs prepares the directories of a sliver's root, below r.filesDir.
func (r *Runtime) makeRootfs(ctx context.Context, s *Spec) (*rootfs, error) {
	dir := r.filesDir(s.ID)
	if err := os.Mkdir(dir, 0o711); err != nil {
		return nil, fmt.Errorf("make root file system: %w", err)
	}
	if s.Rootfs.FromMachine() {
		return r.hostRootfs(s)
	}
	return r.imageRootfs(ctx, s)
}

// users are the machine's users that routing daemons run as; 0 where there is none.
type users struct {
	frr, frrGroup, frrvty, bird, birdGroup int
	shadow                                 string // shadow(5) for all users of the machine
}

func hostUsers() users {
	uid := func(name string) int {
		if u, err := user.Lookup(name); err == nil {
			if n, err := strconv.Atoi(u.Uid); err == nil && n < manyIDs {
				return n
			}
		}
		return 0
	}
	gid := func(name string) int {
		if g, err := user.LookupGroup(name); err == nil {
			if n, err := strconv.Atoi(g.Gid); err == nil && n < manyIDs {
				return n
			}
		}
		return 0
	}
	return users{uid("frr"), gid("frr"), gid("frrvty"), uid("bird"), gid("bird"), lockedAccounts()}
}

// lockedAccounts is a shadow(5) in which no user has a password. Without an entry there, PAM takes an account for
// expired, and each vtysh prints that before its output.
func lockedAccounts() string {
	passwd, err := os.ReadFile("/etc/passwd")
	if err != nil {
		return ""
	}
	var b strings.Builder
	for line := range strings.Lines(string(passwd)) {
		if name, _, ok := strings.Cut(line, ":"); ok {
			b.WriteString(name + ":*:::::::\n")
		}
	}
	return b.String()
}

// withoutIDs is a passwd(5) or group(5) of the machine in which the users and groups of routing daemons have the id 0,
// where a sliver has no other: FRR's daemons become user frr, and want to be in group frrvty.
func withoutIDs(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		fields := strings.Split(line, ":")
		if slices.Contains([]string{"frr", "frrvty", "bird"}, fields[0]) && len(fields) >= 4 {
			fields[2] = "0"
			if len(fields) > 4 { // a user's group
				fields[3] = "0"
			}
		}
		b.WriteString(strings.Join(fields, ":"))
	}
	return b.String()
}

// entry is a directory or a symbolic link of the skeleton.
type entry struct {
	path     string
	mode     os.FileMode
	uid, gid int
	link     string
}

// skeleton is the root file system of a sliver that uses the machine's programs: the machine's directories in it are
// those that hostRootfs mounts.
func (u users) skeleton() []entry {
	dirs := []entry{
		{path: "usr"}, {path: "opt"}, {path: "etc"}, {path: "proc"}, {path: "sys"}, {path: "dev"},
		{path: "mnt"}, {path: "srv"}, {path: "tmp", mode: 0o777 | os.ModeSticky},
		{path: "home"},
		{path: "root", mode: 0o700},
		{path: "run"}, {path: "run/lock", mode: 0o777 | os.ModeSticky},
		{path: "run/frr", uid: u.frr, gid: u.frrGroup}, {path: "run/bird", uid: u.bird, gid: u.birdGroup},
		{path: "var"}, {path: "var/cache"}, {path: "var/lib"}, {path: "var/log"}, {path: "var/spool"},
		{path: "var/tmp", mode: 0o777 | os.ModeSticky},
		{path: "var/lib/frr", uid: u.frr, gid: u.frrGroup}, {path: "var/log/frr", uid: u.frr, gid: u.frrGroup},
		{path: "var/run", link: "/run"}, {path: "var/lock", link: "/run/lock"},
	}
	for i := range dirs {
		if dirs[i].mode == 0 {
			dirs[i].mode = 0o755
		}
	}
	return dirs
}

// etc is a sliver's own part of /etc. The machine's directories of these names are among those that no sliver sees.
func (u users) etc() []entry {
	return []entry{
		{path: "frr", mode: 0o750, uid: u.frr, gid: u.frrGroup},
		{path: "bird", mode: 0o750, uid: u.bird, gid: u.birdGroup},
	}
}

func makeEntries(root string, base int, entries []entry) error {
	for _, e := range entries {
		path := filepath.Join(root, e.path)
		if e.link != "" {
			if err := os.Symlink(e.link, path); err != nil {
				return err
			}
		} else if err := os.Mkdir(path, 0o700); err != nil {
			return err
		}
		if err := os.Lchown(path, idOf(base, e.uid), idOf(base, e.gid)); err != nil {
			return err
		}
		if e.link == "" && e.mode != 0o700 { // after the change of owner, which clears special bits
			if err := os.Chmod(path, e.mode); err != nil {
				return err
			}
		}
	}
	return nil
}

// hostRootfs is the default: the machine's programs and libraries, read-only, and everything else empty or private. The
// files belong to the machine's root, which is no user of a sliver: slivers read what is readable by all.
func (r *Runtime) hostRootfs(s *Spec) (*rootfs, error) {
	dir, base := r.filesDir(s.ID), uidBase(s.Slice)
	root, upper, work := filepath.Join(dir, "root"), filepath.Join(dir, "etc"), filepath.Join(dir, "work")
	top := []entry{{path: "root", mode: 0o755}, {path: "etc", mode: 0o755}, {path: "work", mode: 0o700}}
	skeleton := r.users.skeleton()
	shown, err := shownDirs(s.Files)
	if err != nil {
		return nil, fmt.Errorf("make root file system: %w", err)
	}
	for _, d := range shown {
		if d.link != "" || d.name != "usr" && d.name != "opt" {
			skeleton = append(skeleton, entry{path: d.name, link: d.link, mode: 0o755})
		}
		if d.private {
			top = append(top,
				entry{path: "upper-" + d.name, mode: 0o755}, entry{path: "work-" + d.name, mode: 0o700})
		}
	}
	for _, part := range []struct {
		root    string
		entries []entry
	}{{dir, top}, {root, skeleton}, {upper, r.users.etc()}} {
		if err := makeEntries(part.root, base, part.entries); err != nil {
			return nil, fmt.Errorf("make root file system: %w", err)
		}
	}
	files := map[string]string{
		"hostname": s.Hostname + "\n", "resolv.conf": "", "shadow": r.users.shadow,
	}
	if isRootless() {
		files["passwd"], files["group"] = withoutIDs("/etc/passwd"), withoutIDs("/etc/group")
	}
	if err := fillEtc(upper, base, files); err != nil {
		return nil, fmt.Errorf("make root file system: %w", err)
	}
	etc, err := r.etcOf(s.Slice)
	if err != nil {
		return nil, fmt.Errorf("make root file system: %w", err)
	}
	return &rootfs{path: root, mount: func() error {
		for _, d := range shown {
			if err := d.mount(dir, root); err != nil {
				return err
			}
		}
		lower := filepath.Join(r.fsDir(s.Slice), "mask") + ":" + etc
		return mountOverlay(lower, upper, work, filepath.Join(root, "etc"))
	}}, nil
}

// shownDir is a directory of the machine that slivers see.
type shownDir struct {
	name    string
	link    string // where it leads to, if it is merged into another
	private bool   // with a layer of the node's own above it
}

// shownNames are the directories of the machine that slivers may see, below the root.
var shownNames = []string{"usr", "opt", "bin", "sbin", "lib", "lib32", "lib64", "libx32"}

// shownDirs finds them on this machine.
func shownDirs(files []slice.File) (all []shownDir, err error) {
	for _, name := range shownNames {
		d := shownDir{name: name}
		fi, err := os.Lstat("/" + name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if fi.Mode()&os.ModeSymlink != 0 { // merged into /usr
			if d.link, err = os.Readlink("/" + name); err != nil {
				return nil, err
			}
		} else {
			d.private = holdsFile(name, files)
		}
		all = append(all, d)
	}
	return all, nil
}

// mount shows the directory below a node's root; dir holds its layers.
func (d shownDir) mount(dir, root string) error {
	switch {
	case d.link != "":
		return nil
	case d.private:
		upper, work := filepath.Join(dir, "upper-"+d.name), filepath.Join(dir, "work-"+d.name)
		return mountOverlay("/"+d.name, upper, work, filepath.Join(root, d.name))
	}
	const attr = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	return bind("/"+d.name, filepath.Join(root, d.name), attr)
}

// holdsFile reports whether a file of the topology lies in a directory of the machine, or in one that is merged into
// it. The directory then needs a layer of its own above the machine's.
func holdsFile(dir string, files []slice.File) bool {
	return slices.ContainsFunc(files, func(f slice.File) bool {
		first, _, _ := strings.Cut(strings.TrimPrefix(path.Clean("/"+f.Path), "/"), "/")
		if to, err := os.Readlink("/" + first); err == nil {
			first = strings.Trim(to, "/")
			first, _, _ = strings.Cut(first, "/")
		}
		return first == dir
	})
}

// fillEtc writes a node's own files of /etc. All may read them: there are no secrets in them, and what reads shadow for
// others is set-group-id, which has no effect in a sliver.
func fillEtc(etc string, base int, files map[string]string) error {
	for name, text := range files {
		path := filepath.Join(etc, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
		if err := os.Chown(path, base, base); err != nil {
			return err
		}
	}
	return nil
}

func mountOverlay(lower, upper, work, target string) error {
	options := "lowerdir=" + lower + ",upperdir=" + upper + ",workdir=" + work
	return mount("overlay", target, "overlay", unix.MS_NOSUID|unix.MS_NODEV, options)
}

// masked are the parts of the machine's /etc that no sliver sees: configurations of the machine's own services, and
// what identifies it. Secrets are protected by their modes; this is for the rest.
var masked = []string{
	"NetworkManager", "X11", "apache2", "apparmor", "apparmor.d", "apt", "audit", "bird", "ca-certificates",
	"cloud", "cni", "containerd", "containers", "cron.d", "cron.daily", "cron.hourly", "cron.monthly",
	"cron.weekly", "crontab", "cups", "dbus-1", "docker", "dovecot", "dpkg", "exim4", "exports", "frr", "fstab",
	"grub.d", "gshadow", "gshadow-", "hosts.allow", "hosts.deny", "init.d", "initramfs-tools", "ipsec.conf",
	"ipsec.d", "ipsec.secrets", "iscsi", "issue", "issue.net", "krb5.keytab", "kubernetes", "ldap",
	"letsencrypt", "libvirt", "logrotate.d", "lvm", "machine-id", "mdadm", "modprobe.d", "motd", "mysql",
	"netplan", "network", "nftables.conf", "nginx", "opasswd", "openvpn", "pergola", "polkit-1", "postfix",
	"postgresql", "ppp", "rancher", "rc0.d", "rc1.d", "rc2.d", "rc3.d", "rc4.d", "rc5.d", "rc6.d", "rcS.d",
	"resolv.conf", "samba", "security/opasswd", "shadow", "shadow-", "ssh", "ssl/private", "sssd",
	"strongswan.d", "sudoers", "sudoers.d", "swanctl", "systemd", "udev", "ufw", "update-motd.d", "wireguard",
	"wpa_supplicant",
}

// makeMask makes the overlay layer that hides them: a whiteout each, which is a character device 0/0 (overlayfs.rst).
func makeMask(dir string) error {
	const done = "done-2" // the second list that there is
	if exists(filepath.Join(dir, done)) {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range append(masked, done) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := unix.Mknod(path, unix.S_IFCHR, 0); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("hide /etc/%s: %w", name, err)
		}
	}
	return nil
}
