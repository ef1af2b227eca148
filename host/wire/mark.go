package wire

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/pergola-net/pergola/model/slice"
)

// role says what a device is for.
type role string

const (
	rolePort   role = "port"
	roleSwitch role = "switch"
	roleCable  role = "cable"  // one end of it
	roleQueue  role = "queue"  // holds what a node sends to a switch until its turn has come
	roleMember role = "member" // the switch's end of a queue
	roleTunnel role = "tunnel" // stands for an interface on another machine
	roleTwin   role = "twin"   // its other end
	roleUplink role = "uplink" // leads to the machine's own namespace, with what tunnels carry
	// A queue's other end is a member, or the queue of the port that its port is joined with.
)

// mark is what a device's alias says of it:
//
//	pergola port abilene/denver:eth0 digest=1f6c20 ns=4026532511 pid=4711 queue=rate=1000000,delay=20000000
//
// It is written when the device is complete. It holds what the kernel cannot be asked in one go, so that Observe can compare
// a thousand ports with a single dump.
type mark struct {
	role   role
	owner  string
	digest string
	ns     uint64 // inode of the namespace in which the other end was put; 0: the substrate
	pid    int    // a process that was in it; whether it is, ns tells
	queue  Queue
	again  bool // of a queue with a member: what the switch sends enters the data path by it; see Reenter

	isolated bool   // of a tunnel, as Tunnel.Isolated
	nics     string // of the uplink: the machine's interfaces at which there may be programs of ours, by index
	raised   bool   // of the uplink: net.ipv6.conf.default.forwarding of the machine may be 1, and is to be 0 again
}

// Queue is the shape of what a device sends.
type Queue struct {
	slice.Shape
	// Unsure is set while the kernel's queue is being changed, and stays if that was cut short.
	Unsure bool
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
	add("queue", m.queue.String())
	if m.again {
		add("again", "yes")
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
	m := mark{role: r, owner: owner, digest: digest, ns: 1<<32 - 1, pid: 1 << 22, queue: longestQueue, isolated: r == roleTunnel}
	if n := len(m.String()); n > maxAlias {
		return mark{}, fmt.Errorf("mark device of %s: digest %q is %d bytes too long", owner, digest, n-maxAlias)
	}
	return mark{role: r, owner: owner, digest: digest}, nil
}

const (
	maxAlias = 255 // IFALIASZ, less the final zero byte
	maxOwner = 90
)

// longestQueue is the longest that checkShape lets pass, near enough.
var longestQueue = Queue{Shape: slice.Shape{Rate: maxRate, Delay: maxDelay, Jitter: maxDelay, Loss: 100.0 / 3, Queue: maxQueue}}

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
		case "queue":
			m.queue, err = parseQueue(value)
		case "again":
			m.again = value == "yes"
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

// String is empty for a device without a queue of its own.
func (q Queue) String() string {
	if q.Unsure {
		return "unsure"
	}
	var words []string
	add := func(key string, set bool, value string) {
		if set {
			words = append(words, key+"="+value)
		}
	}
	add("rate", q.Rate != 0, strconv.FormatUint(q.Rate, 10))
	add("delay", q.Delay != 0, strconv.FormatInt(int64(q.Delay), 10))
	add("jitter", q.Jitter != 0, strconv.FormatInt(int64(q.Jitter), 10))
	add("loss", q.Loss != 0, strconv.FormatFloat(q.Loss, 'g', -1, 64))
	add("queue", q.Shape.Queue != 0, strconv.Itoa(q.Shape.Queue))
	return strings.Join(words, ",")
}

func parseQueue(text string) (q Queue, err error) {
	if text == "unsure" {
		return Queue{Unsure: true}, nil
	}
	for _, word := range strings.Split(text, ",") {
		key, value, _ := strings.Cut(word, "=")
		var n int64
		switch key {
		case "rate":
			q.Rate, err = strconv.ParseUint(value, 10, 64)
		case "delay":
			n, err = strconv.ParseInt(value, 10, 64)
			q.Delay = time.Duration(n)
		case "jitter":
			n, err = strconv.ParseInt(value, 10, 64)
			q.Jitter = time.Duration(n)
		case "loss":
			q.Loss, err = strconv.ParseFloat(value, 64)
		case "queue":
			q.Shape.Queue, err = strconv.Atoi(value)
		default:
			err = fmt.Errorf("parse queue %q: unknown word", text)
		}
		if err != nil {
			return Queue{}, err
		}
	}
	return q, nil
}
