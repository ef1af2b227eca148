package outside

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/vishvananda/netlink"

	"github.com/pergola-net/pergola/model/slice"
)

// The machine's own settings that change while slivers reach the outside.
const (
	forwarding    = "/proc/sys/net/ipv4/ip_forward"
	reservedPorts = "/proc/sys/net/ipv4/ip_local_reserved_ports"
	// Whoever writes ip_forward makes the kernel write this one, too.
	redirects = "/proc/sys/net/ipv4/conf/all/accept_redirects"
)

// saved is the file of what the settings were before.
type saved struct{ path string }

type settings struct {
	Forwarding string `json:"ip_forward"`
	Reserved   string `json:"ip_local_reserved_ports"`
	Redirects  string `json:"accept_redirects,omitempty"`
}

func savedIn(stateDir string) saved { return saved{filepath.Join(stateDir, "outside.json")} }

func (s saved) exists() bool {
	_, err := os.Stat(s.path)
	return err == nil
}

func (s saved) read() (was settings, err error) {
	text, err := os.ReadFile(s.path)
	if err == nil {
		err = json.Unmarshal(text, &was)
	}
	if err != nil {
		return was, fmt.Errorf("read the machine's settings: %w", err)
	}
	return was, nil
}

// guards reports whether the machine forwarded nothing before: then it is to forward nothing but what slivers send and
// get.
func (s saved) guards() bool {
	was, err := s.read()
	return err == nil && was.Forwarding == "0"
}

// reserve changes which ports are given to processes. What all settings were is in the file before.
func (s saved) reserve(there []device) error {
	if !s.exists() {
		var was settings
		for path, value := range map[string]*string{
			forwarding: &was.Forwarding, reservedPorts: &was.Reserved, redirects: &was.Redirects,
		} {
			text, err := os.ReadFile(path)
			if err != nil {
				return fmt.Errorf("read a setting: %w", err)
			}
			*value = strings.TrimSpace(string(text))
		}
		text, err := json.Marshal(was)
		if err != nil {
			return fmt.Errorf("encode the machine's settings: %w", err)
		}
		err = renameio.WriteFile(s.path, text, 0o600, renameio.WithTempDir(filepath.Dir(s.path)))
		if err != nil {
			return fmt.Errorf("save the machine's settings: %w", err)
		}
	}
	was, err := s.read()
	if err != nil {
		return err
	}
	return write(reservedPorts, reserve(was.Reserved, there))
}

// reserve lists the ports that the kernel gives to no process of the machine that asks for any port.
func reserve(own string, there []device) string {
	ports := []string{fmt.Sprintf("%d-%d", slice.FirstNATPort, slice.LastNATPort)}
	if own != "" {
		ports = append(ports, own)
	}
	for _, d := range there {
		for _, p := range d.node.Ports {
			ports = append(ports, fmt.Sprint(p.Port))
		}
	}
	slices.Sort(ports)
	return strings.Join(slices.Compact(ports), ",")
}

// bridges begin the names of bridges of programs that forward: Docker, Podman, libvirt, LXD, Incus.
var bridges = []string{"docker0", "podman", "virbr", "lxdbr", "incusbr"}

// forwarder names a bridge of another program that needs the machine to forward; "": there is none.
func forwarder() (name string, err error) {
	var links []netlink.Link
	err = again(func() (err error) { links, err = netlink.LinkList(); return err })
	if err != nil {
		return "", fmt.Errorf("list devices: %w", err)
	}
	for _, l := range links {
		of := func(prefix string) bool { return strings.HasPrefix(l.Attrs().Name, prefix) }
		if l.Type() == "bridge" && slices.ContainsFunc(bridges, of) {
			return l.Attrs().Name, nil
		}
	}
	return "", nil
}

// restore makes the settings what they were. But the machine goes on to forward if a program that needs it, and found
// it so, has begun since.
func (s saved) restore(log *slog.Logger) error {
	if !s.exists() {
		return nil
	}
	was, err := s.read()
	if err != nil {
		return err
	}
	if other, err := forwarder(); err != nil {
		return err
	} else if other != "" && was.Forwarding == "0" {
		was.Forwarding = "1"
		log.Warn("net.ipv4.ip_forward stays 1, which was 0: another program forwards", "bridge", other)
	}
	err = errors.Join(write(forwarding, was.Forwarding), write(reservedPorts, was.Reserved))
	if err == nil && was.Redirects != "" { // a file of an earlier version has none
		err = write(redirects, was.Redirects)
	}
	if err != nil {
		return err
	}
	if err := os.Remove(s.path); err != nil {
		return fmt.Errorf("forget the machine's settings: %w", err)
	}
	return nil
}

// write writes a setting where it is another one: to write ip_forward resets settings of all devices. An empty list of
// ports is a line without any.
func write(path, value string) error {
	is, err := os.ReadFile(path)
	if err == nil && strings.TrimSpace(string(is)) != value {
		err = os.WriteFile(path, []byte(value+"\n"), 0)
	}
	if err != nil {
		return fmt.Errorf("set %s to %q: %w", path, value, err)
	}
	return nil
}
