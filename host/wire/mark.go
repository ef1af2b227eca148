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

	roleHandover role = "handover" // one end of the way from XDP to tc
	roleSlow     role = "slowpath" // of a node with a packet program: see OpenSlowPath
)

// mark is what a device's alias says of it:
//
//	pergola port abilene/denver:eth0 digest=1f6c20
//
// It is written when the device is complete, and says whose the device is and what it was made from, and nothing else.
// All other state is read from where it is: from the kernel, from the data path's records, from its notes.
type mark struct {
	role   role
	owner  string
	digest string
}

// earlier is what marks of versions before said besides, and what adopt moves to the data path's notes. That a tunnel's
// mark said that it is isolated, that a port's had the namespace of its node, and what those before had of queues, is
// read from the kernel.
type earlier struct {
	pid    int   // of a port: a process in the namespace of its node
	nics   []int // of the uplink: the machine's interfaces at which there may be programs of ours
	raised bool  // of the uplink: net.ipv6.conf.default.forwarding of the machine may be set by us
}

const markWord = "pergola"

// isPort reports whether a device can be wired and shaped as a port.
func (m mark) isPort() bool { return m.role == rolePort || m.role == roleTunnel }

// escape keeps a mark's words apart; url.PathUnescape undoes it.
var escape = strings.NewReplacer("%", "%25", " ", "%20")

func (m mark) String() string {
	words := []string{markWord, string(m.role), escape.Replace(m.owner)}
	if m.digest != "" {
		words = append(words, "digest="+escape.Replace(m.digest))
	}
	return strings.Join(words, " ")
}

// newMark shortens an owner of which the kernel could not hold the whole, in the middle: it is for people.
func newMark(r role, owner, digest string) (mark, error) {
	const part = (maxOwner - 3) / 2
	if len(owner) > maxOwner {
		owner = strings.ToValidUTF8(owner[:part], "") + "..." + strings.ToValidUTF8(owner[len(owner)-part:], "")
	}
	m := mark{role: r, owner: owner, digest: digest}
	if n := len(m.String()); n > maxAlias {
		return mark{}, fmt.Errorf("mark device of %s: digest %q is %d bytes too long", owner, digest,
			n-maxAlias)
	}
	return m, nil
}

const (
	maxAlias = 255 // IFALIASZ, less the final zero byte
	maxOwner = 90
)

// parseMark reads an alias. was is not nil for a mark of an earlier version, which says more than one of today. ok is
// false for devices that are not ours, or not complete.
func parseMark(alias string) (m mark, was *earlier, ok bool) {
	words := strings.Split(alias, " ")
	if len(words) < 3 || words[0] != markWord {
		return mark{}, nil, false
	}
	var err error
	m.role = role(words[1])
	if m.owner, err = url.PathUnescape(words[2]); err != nil {
		return mark{}, nil, false
	}
	for _, word := range words[3:] {
		key, value, _ := strings.Cut(word, "=")
		if key == "digest" {
			m.digest, err = url.PathUnescape(value)
		} else {
			if was == nil {
				was = new(earlier)
			}
			err = was.parse(key, value)
		}
		if err != nil {
			return mark{}, nil, false
		}
	}
	return m, was, true
}

func (e *earlier) parse(key, value string) (err error) {
	switch key {
	case "pid":
		e.pid, err = strconv.Atoi(value)
	case "raised":
		e.raised = value == "yes"
	case "nics":
		for text := range strings.SplitSeq(value, ",") {
			index, err := strconv.Atoi(text)
			if err != nil {
				return err
			}
			e.nics = append(e.nics, index)
		}
	}
	return err
}
