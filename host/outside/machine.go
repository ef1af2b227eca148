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
	"golang.org/x/sys/unix"

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
	Redirects  string `json:"accept_redirects,omitempty"`
	// Reserved is what ip_local_reserved_ports was; Added is what is there of ours, and not of the administrator.
	// An earlier version wrote no Added: what was not there before is ours then.
	Reserved string  `json:"ip_local_reserved_ports"`
	Added    *string `json:"added_reserved_ports,omitempty"`
	// Forwarding6 is empty while IPv6 is as it was. AcceptRA has the devices that accepted router advertisements.
	Forwarding6 string   `json:"ipv6_forwarding,omitempty"`
	AcceptRA    []string `json:"accept_ra,omitempty"`
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

// guards says of which families the machine forwarded nothing before: then it is to forward nothing but what slivers
// send and get.
func (s saved) guards() (guard, error) {
	was, err := s.read()
	if errors.Is(err, os.ErrNotExist) { // nothing was changed
		return guard{}, nil
	}
	return guard{ipv4: was.Forwarding == "0", ipv6: was.Forwarding6 == "0"}, err
}

func (s saved) save(was settings) error {
	text, err := json.Marshal(was)
	if err != nil {
		return fmt.Errorf("encode the machine's settings: %w", err)
	}
	err = renameio.WriteFile(s.path, text, 0o600, renameio.WithTempDir(filepath.Dir(s.path)))
	if err != nil {
		return fmt.Errorf("save the machine's settings: %w", err)
	}
	return nil
}

// currentSettings reads what the machine's settings are. Those of IPv6 are noted when they are to change.
func currentSettings() (is settings, err error) {
	for path, value := range map[string]*string{
		forwarding: &is.Forwarding, reservedPorts: &is.Reserved, redirects: &is.Redirects,
	} {
		text, err := os.ReadFile(path)
		if err != nil {
			return is, fmt.Errorf("read a setting: %w", err)
		}
		*value = strings.TrimSpace(string(text))
	}
	is.Added = new(string)
	return is, nil
}

// before makes of settings that have changed what they were: the machine forwarded nothing of a family that is
// guarded, and of the ports that are reserved those that we reserve are ours. What cannot be told is left as it is.
func (s *settings) before(guarded guard, ours portSet) error {
	is, err := parsePortSet(s.Reserved)
	if err != nil {
		return fmt.Errorf("read %s: %w", reservedPorts, err)
	}
	others := is.minus(ours)
	added := is.minus(others).String()
	s.Reserved, s.Added, s.Redirects = others.String(), &added, ""
	if guarded.ipv4 {
		s.Forwarding = "0"
	}
	if guarded.ipv6 {
		s.Forwarding6 = "0"
	}
	return nil
}

// setReserved makes ip_local_reserved_ports what the administrator has there, now, and these. The file says what is
// ours before it is there, and after it has gone.
func (s saved) setReserved(ours portSet) error {
	was, err := s.read()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(reservedPorts)
	if err != nil {
		return fmt.Errorf("read a setting: %w", err)
	}
	is, err := parsePortSet(strings.TrimSpace(string(text)))
	if err != nil {
		return fmt.Errorf("read %s: %w", reservedPorts, err)
	}
	added := is
	if was.Added != nil {
		added, err = parsePortSet(*was.Added)
	} else if own, err2 := parsePortSet(was.Reserved); err2 == nil {
		added = is.minus(own)
	}
	if err != nil {
		return fmt.Errorf("read the machine's settings: %w", err)
	}
	others := is.minus(added)
	next := ours.minus(others)
	note := func(p portSet) error {
		if text := p.String(); was.Added == nil || *was.Added != text {
			was.Added = &text
			return s.save(was)
		}
		return nil
	}
	if err := note(added.plus(next)); err != nil {
		return err
	}
	if want := others.plus(ours); want != is {
		err := os.WriteFile(reservedPorts, []byte(want.String()+"\n"), 0)
		if err != nil {
			return fmt.Errorf("set %s to %q: %w", reservedPorts, want, err)
		}
	}
	return note(next)
}

// portsOf lists the ports that the kernel is to give to no process of the machine that asks for any port.
func portsOf(there []device) (ports portSet) {
	for p := uint16(slice.FirstNATPort); p <= slice.LastNATPort; p++ {
		ports.add(p)
	}
	for _, d := range there {
		for _, p := range d.node.Ports {
			ports.add(p.Port)
		}
	}
	return ports
}

// bridges begin the names of bridges of programs that forward: Docker, Podman, libvirt, LXD, Incus.
var bridges = []string{"docker0", "podman", "virbr", "lxdbr", "incusbr"}

// forwarders names bridges of other programs that need the machine to forward a family: those that have an address of
// it which is not that of the link alone. Of IPv4 all: they get one when they are used first.
func forwarders() (ipv4, ipv6 []string, err error) {
	var links []netlink.Link
	err = again(func() (err error) { links, err = netlink.LinkList(); return err })
	if err != nil {
		return nil, nil, fmt.Errorf("list devices: %w", err)
	}
	for _, l := range links {
		name := l.Attrs().Name
		of := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
		if l.Type() != "bridge" || !slices.ContainsFunc(bridges, of) {
			continue
		}
		ipv4 = append(ipv4, name)
		var addresses []netlink.Addr
		err := again(func() (err error) { addresses, err = netlink.AddrList(l, netlink.FAMILY_V6); return err })
		if err != nil {
			return nil, nil, fmt.Errorf("list addresses of %s: %w", name, err)
		}
		wide := func(a netlink.Addr) bool { return a.Scope == unix.RT_SCOPE_UNIVERSE }
		if slices.ContainsFunc(addresses, wide) {
			ipv6 = append(ipv6, name)
		}
	}
	return ipv4, ipv6, nil
}

// restore makes the settings what they were. But the machine goes on to forward a family if a program that needs it,
// and found it so, has begun since.
func (s saved) restore(log *slog.Logger) error {
	if !s.exists() {
		return nil
	}
	was, err := s.read()
	if err != nil {
		return err
	}
	ipv4, ipv6, err := forwarders()
	if err != nil {
		return err
	}
	if len(ipv4) > 0 && was.Forwarding == "0" {
		was.Forwarding = "1"
		log.Warn("net.ipv4.ip_forward stays 1, which was 0: another program forwards", "bridges", ipv4)
	}
	if len(ipv6) > 0 && was.Forwarding6 == "0" {
		was.Forwarding6 = ""
		log.Warn("net.ipv6.conf.all.forwarding stays 1, which was 0: another program forwards", "bridges", ipv6)
	}
	err = errors.Join(write(forwarding, was.Forwarding), s.setReserved(portSet{}), s.restoreIPv6(was))
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

// write writes a setting where it is another one: to write ip_forward resets settings of all devices.
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
