// Package message has the messages of a sliver's control socket, as JSON. Both ends use it: the agent, and package node
// in the sliver. docs/slowpath.md describes them for other languages.
//
// The socket is of type SOCK_SEQPACKET (unix(7)): a message is one send, and one JSON object.
//
//	{"id": 1, "do": "counters"}
//	{"id": 1, "ok": {"counters": {"forwarded": 12}, "platform": {"frames in": 14}}}
package message

import "encoding/json"

const (
	// Version is that of the protocol. What is added to it does not change the version.
	Version = 1
	// MaxSize is how long a message can be, in bytes.
	MaxSize = 128 << 10
	// Path is where a sliver finds the socket.
	Path = "/run/pergola/node.sock"
)

// What a request asks for.
const (
	DoHello          = "hello"           // Hello
	DoCounters       = "counters"        // Counters
	DoMemory         = "memory"          // Memory, with a file descriptor
	DoQueues         = "queues"          // Queues
	DoSlowPath       = "slow_path"       // SlowPath, with a file descriptor
	DoFilters        = "filters"         // Filters, in one or more messages
	DoChangeFilters  = "change_filters"  // deletes Delete and then inserts Insert: all, or nothing
	DoReplaceFilters = "replace_filters" // makes Insert all filters that there are: all, or nothing
	DoSetQueues      = "set_queues"      // changes, adds or removes Queues of Interface: all, or nothing
	DoReservations   = "reservations"    // Reservations
	DoReserve        = "reserve"         // reserves Ports and Bandwidth: all, or nothing
	DoRelease        = "release"         // releases Ports, and what Interfaces have of bandwidth: all, or nothing
)

// Request is a message to the agent. A connection has one request at a time: the next is read when the answer is sent.
type Request struct {
	ID   uint64 `json:"id"`             // returned in the answer
	Do   string `json:"do"`             // one of the constants above
	Node string `json:"node,omitempty"` // of the same slice, on the same host; empty: the socket's own

	Delete []string `json:"delete,omitempty"` // filters: [table N] [priority N] FIELD=VALUE[/MASK]...
	Insert []string `json:"insert,omitempty"` // filters: the same, and -> VERDICT

	Interface string        `json:"interface,omitempty"` // its name in the sliver
	Queues    []QueueChange `json:"queues,omitempty"`

	Ports      []string          `json:"ports,omitempty"`      // of the machine's addresses: tcp/8080
	Bandwidth  map[string]uint64 `json:"bandwidth,omitempty"`  // bit/s of the machine's card, by interface
	Interfaces []string          `json:"interfaces,omitempty"` // whose bandwidth is released
}

// QueueChange changes one queue of an interface. What is nil, or empty, stays as it is.
type QueueChange struct {
	Queue   int     `json:"queue"`             // its number; that after the last one adds a queue
	Share   *int    `json:"share,omitempty"`   // weight, 1 to 100
	Length  string  `json:"length,omitempty"`  // frames, such as 200, or bytes, such as 64KiB
	Rate    *uint64 `json:"rate,omitempty"`    // bit/s at most; 0: the link's
	Reserve *uint64 `json:"reserve,omitempty"` // bit/s that it gets whenever it wants them; 0: none
	Remove  bool    `json:"remove,omitempty"`  // the queue is removed: the last one, with what waits in it

	Priority *int `json:"priority,omitempty"` // 1: served first, to 8
}

// Reservations is what the node has reserved of its machine, by the topology or by DoReserve.
type Reservations struct {
	Ports     []string          `json:"ports"`
	Bandwidth map[string]uint64 `json:"bandwidth"` // bit/s, by interface
}

// Answer is a message from the agent: OK or Error.
type Answer struct {
	ID     uint64          `json:"id"` // of the request; 0 if it could not be read
	OK     json.RawMessage `json:"ok,omitempty"`
	More   bool            `json:"more,omitempty"` // another message of the same answer follows
	Error  string          `json:"error,omitempty"`
	Code   Code            `json:"code,omitempty"`   // of the error
	Advice string          `json:"advice,omitempty"` // what to do about it
}

// Code says what kind of error it is.
type Code string

// The codes.
const (
	Invalid    Code = "invalid"     // the request makes no sense: repeating it does not help
	Missing    Code = "missing"     // it names what is not there
	Exists     Code = "exists"      // it adds what is there already
	Full       Code = "full"        // the host, or the slice, has no more of it
	Busy       Code = "busy"        // somebody else has it; too many connections
	Forbidden  Code = "forbidden"   // root of the machine does not allow it
	NotRunning Code = "not running" // the node has no packet program that runs, or is on another host
	Failed     Code = "failed"      // all else
)

// Hello says whom the agent takes the caller for.
type Hello struct {
	Version    int      `json:"version"`
	Slice      string   `json:"slice"`
	Node       string   `json:"node"`
	Program    string   `json:"program"`    // the file that the topology names
	State      string   `json:"state"`      // running; older version: the wanted one was refused; none
	Interfaces []string `json:"interfaces"` // their names in the sliver: that of interface 1 first
}

// Counters count frames since the program was first set.
type Counters struct {
	Counters map[string]uint64 `json:"counters"` // of PERGOLA_COUNTERS
	Platform map[string]uint64 `json:"platform"` // what became of the node's frames
}

// Queues are those by which the node sends.
type Queues struct {
	Queues []Queue `json:"queues"`
}

// Queue is what went through one queue of an interface since it was made.
type Queue struct {
	Interface    string `json:"interface"` // its name in the sliver
	Queue        string `json:"queue"`     // number, or a class's name; empty: the only queue of a link with a rate
	Frames       uint64 `json:"frames"`    // sent
	Bytes        uint64 `json:"bytes"`     // sent
	Dropped      uint64 `json:"dropped"`   // frames: the queue was full
	Waiting      uint64 `json:"waiting"`   // frames, now
	WaitingBytes uint64 `json:"waiting_bytes"`
}

// Memory is PERGOLA_MEMORY. The message has a file descriptor beside it (SCM_RIGHTS, unix(7)), to be mapped with
// mmap(2), shared, from offset 0: element i begins at i*Stride.
type Memory struct {
	Element int    `json:"element"` // bytes
	Stride  int    `json:"stride"`  // bytes from one element to the next
	Count   int    `json:"count"`   // elements
	Number  uint32 `json:"number"`  // of the block: another one after a replacement with memory of another size
}

const (
	// SlowVersion is that of the header before frames of a slow path: PERGOLA_SLOW_VERSION in pergola/slow.h.
	SlowVersion = 1
	// SlowHeader is the header's length, in bytes.
	SlowHeader = 128
)

// SlowPath describes the frames of a slow path. The message has a file descriptor beside it (SCM_RIGHTS, unix(7)): a
// read is a frame that the packet program punted, a write is one that the slow path sends, each with a header.
type SlowPath struct {
	Version int `json:"version"` // of the header
	Header  int `json:"header"`  // bytes
}

// Filters are those of a program, by tables; in each, the first one that matches wins.
type Filters struct {
	Key     []KeyField `json:"key"` // in the first message alone
	Filters []Filter   `json:"filters"`
}

// KeyField is a field of the key that a program looks up.
type KeyField struct {
	Name  string `json:"name"`
	Bytes int    `json:"bytes"`
}

// Filter is one filter with its hits.
type Filter struct {
	Table    uint32 `json:"table"`
	Priority uint32 `json:"priority"`
	Match    string `json:"match"`  // such as destination=10.0.0.0/8
	Result   string `json:"result"` // such as send 2
	Hits     uint64 `json:"hits"`   // frames, since it was inserted
}
