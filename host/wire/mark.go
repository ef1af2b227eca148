package wire

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// role says what a device is for.
type role string

const (
	rolePort   role = "port"
	roleSwitch role = "switch"
	roleCable  role = "cable"  // one end of it
	roleQueue  role = "queue"  // its qdiscs treat frames; its other end: a member, or the other port's queue
	roleMember role = "member" // the switch's end of a queue device
	roleTunnel role = "tunnel" // proxy port of an interface on another machine
	roleTwin   role = "twin"   // its other end
	roleUplink role = "uplink" // leads to the machine's own namespace, with what tunnels carry
)

// mark is what a device's alias says of it:
//
//	pergola port abilene/denver:eth0 digest=1f6c20 ns=4026532511 pid=4711
//
// It is written when the device is complete, and says whose the device is and what it was made from. Qdiscs and records
// are no part of it: they are read from the kernel and the data path. Earlier versions also wrote queue= and again=,
// which are passed over.
type mark struct {
	role   role
	owner  string
	digest string
	ns     uint64 // inode of the namespace in which the other end was put; 0: the substrate
	pid    int    // a process that was in it; whether it is, ns tells

	isolated bool   // of a tunnel, as Tunnel.Isolated
	nics     string // of the uplink: the machine's interfaces at which there may be programs of ours, by index
	raised   bool   // of the uplink: net.ipv6.conf.default.forwarding of the machine may be 1, and is to be 0 again
}

const markWord = "pergola"

// isPort reports whether a device can be wired and shaped as a port.
func (m mark) isPort() bool { return m.role == rolePort || m.role == roleTunnel }

// escape keeps a mark's words apart; url.PathUnescape undoes it.
var escape = strings.NewReplacer("%", "%25", " ", "%20")

func (m mark) String() string {
	words := []string{markWord, string(m.role), escape.Replace(m.owner)}
	add := func(key, value string) {
		if value != "" {
			words = append(words, key+"="+value)
		}
	}
	add("digest", escape.Replace(m.digest))
	if m.ns != 0 {
		add("ns", strconv.FormatUint(m.ns, 10))
	}
	if m.pid != 0 {
		add("pid", strconv.Itoa(m.pid))
	}
	if m.isolated {
		add("isolated", "yes")
	}
	add("nics", m.nics)
	if m.raised {
		add("raised", "yes")
	}
	return strings.Join(words, " ")
}

// newMark shortens an owner of which the kernel could not hold the whole, in the middle: it is for people.
func newMark(r role, owner, digest string) (mark, error) {
	const part = (maxOwner - 3) / 2
	if len(owner) > maxOwner {
		owner = strings.ToValidUTF8(owner[:part], "") + "..." + strings.ToValidUTF8(owner[len(owner)-part:], "")
	}
	m := mark{role: r, owner: owner, digest: digest, ns: 1<<32 - 1, pid: 1 << 22, isolated: r == roleTunnel}
	if n := len(m.String()); n > maxAlias {
		return mark{}, fmt.Errorf("mark device of %s: digest %q is %d bytes too long", owner, digest,
			n-maxAlias)
	}
	return mark{role: r, owner: owner, digest: digest}, nil
}

const (
	maxAlias = 255 // IFALIASZ, less the final zero byte
	maxOwner = 90
)

// parseMark reads an alias. ok is false for devices that are not ours, or not complete.
func parseMark(alias string) (m mark, ok bool) {
	words := strings.Split(alias, " ")
	if len(words) < 3 || words[0] != markWord {
		return mark{}, false
	}
	var err error
	m.role = role(words[1])
	if m.owner, err = url.PathUnescape(words[2]); err != nil {
		return mark{}, false
	}
	for _, word := range words[3:] {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "digest":
			m.digest, err = url.PathUnescape(value)
		case "ns":
			m.ns, err = strconv.ParseUint(value, 10, 64)
		case "pid":
			m.pid, err = strconv.Atoi(value)
		case "isolated":
			m.isolated = value == "yes"
		case "nics":
			m.nics = value
		case "raised":
			m.raised = value == "yes"
		}
		if err != nil {
			return mark{}, false
		}
	}
	return m, true
}
