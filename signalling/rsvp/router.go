// Package rsvp is a router's part of RSVP-TE (RFC 2205, 2209, 3209) without I/O and without a clock: a state machine.
//
// Inputs are messages with the interface that they came by, ticks when Next says so, and requests of the router's
// owner; each has the time. What a Router wants to be done is fetched by Take after each input: messages to send,
// labels to install and to remove, events. Nothing is called but the routes and the random numbers of Config.
//
// Built: LSPs with a bandwidth along strict and loose explicit routes, or without one; soft state with jitter and
// expiry; teardown from both ends, and from a link that is down; errors in both directions; admission by priority, and
// pre-emption; affinities; SE style and make-before-break; RECORD_ROUTE with labels, and loops that it shows; Hello;
// graceful restart; refresh reduction; authentication, but no challenge to a peer; fast reroute by facility backup.
//
// Not built: see docs/decisions/027 and 034.
package rsvp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

// Interface is a link of the router.
type Interface struct {
	Index     int          // above 0
	Prefix    netip.Prefix // the router's own address on the link, and its length
	Bandwidth uint64       // that LSPs can reserve, in bytes a second
	Groups    uint32       // administrative groups, a bit each (resource classes of RFC 3209)
	// Keys authenticate messages (RFC 2747): the first signs, each is accepted; none: nothing is signed. Where a
	// link has more than two routers, each signs by a key ID of its own: sequence numbers are followed by it.
	Keys []message.Key
	// GTSM is for a link on which all routers send by TTL 255 what goes from neighbour to neighbour (RFC 5082),
	// which is all but Path, PathTear and ResvConf: this one does so, too, and takes nothing of it that has another
	// TTL.
	GTSM bool
	Down bool // see SetLink
	MTU  int  // of IP; 0: 1500
}

// Config is what a Router is made with.
type Config struct {
	ID         netip.Addr // of the router, not of one of its interfaces
	Interfaces []Interface
	// Route gives the way to an address that is on no link of the router.
	Route func(netip.Addr) (index int, next netip.Addr, ok bool)
	// Random gives random bits: for jitter.
	Random func() uint64
	// Refresh is the mean period of refreshes (R of RFC 2205, section 3.7); 0: 30 s.
	Refresh time.Duration
	// FirstLabel and LastLabel are the labels to give; 0: all that are not reserved.
	FirstLabel, LastLabel message.Label
	// Egress is which label this router asks for where it is the egress; 0: implicit null.
	Egress EgressLabel
	// Hello is the interval of Hellos to the neighbours that LSPs come from and go to; 0: none are sent. Instance
	// is above 0, and another one after each restart; 0: Hellos are not answered.
	Hello    time.Duration
	Instance uint32
	// Restart is how long neighbours keep the state of this router when it is silent, in whole milliseconds (RFC
	// 3473, section 9); 0: they are not asked to. Recovery is how long Adopt keeps entries; 0: four times Refresh.
	Restart, Recovery time.Duration
	// Reduce sends refreshes as lists of numbers to neighbours that take them (RFC 2961).
	Reduce bool
	// MaxLSPs is how many LSPs a Path of another router may add up to, since a neighbour can send any number of
	// them; 0: 100,000.
	MaxLSPs int
	// MaxBytes bounds the memory for what Paths and Resvs of other routers have in any length: routes, records, and
	// objects that are passed on. Each LSP has a fixed size besides. 0: 512 MiB.
	MaxBytes int
	// Keys are as Interface.Keys, and for messages between the two ends of a bypass, which are no neighbours. Their
	// IDs are others than those of interfaces, since sequence numbers of neighbours are followed by ID. Where an
	// interface has keys and the router none, such messages are refused at it.
	Keys []message.Key
	// Sequence is where sequence numbers of signed messages begin: above those of before a restart. The time in
	// nanoseconds will do.
	Sequence uint64
}

// Key names an LSP.
type Key struct {
	Session message.Session
	Sender  netip.Addr
	LSP     uint16
}

func (k Key) String() string { return fmt.Sprintf("LSP %d of %s, %s", k.LSP, k.Sender, k.Session) }

// Send is a message to send.
type Send struct {
	Interface int
	Next      netip.Addr // the neighbour to send it to
	// Source and Dest are addresses for the IP header.
	Source, Dest netip.Addr
	RouterAlert  bool
	// Through is a bypass that begins here and ends at Dest, by whose labels the message goes. Without Through,
	// Interface may be 0: the message goes as packets to Dest are routed.
	Through Key
	Message []byte

	of      []*lsp          // of a Resv or ResvConf: whose labels it tells of
	link    *link           // to a neighbour, of what is not encoded yet
	message message.Message // that is to be encoded
}

// Entry is what packets of an LSP meet here; Operation says what to do. Without HasIn the LSP begins here, without
// HasOut it ends here. Labels may be reserved ones: implicit null stands for none.
type Entry struct {
	Key           Key
	HasIn, HasOut bool
	In, Out       message.Label
	From          int // interface by which packets come; by another one, they are not of the LSP; 0: by any
	// Bypass is pushed above Out: packets go round a failure by another LSP, by which Interface and Next are, too;
	// 0: nothing is pushed.
	Bypass    message.Label
	Interface int        // to the next router
	Next      netip.Addr // its address
	Bandwidth uint64     // bytes a second, reserved at Interface
	// Rate is what packets of the LSP have reserved on their way here, in bytes a second: also where the LSP ends,
	// or goes round a failure.
	Rate   uint64
	Shared bool // it is reserved with the other LSPs of the session that share
}

// Output is what is to be done, each list in its order.
type Output struct {
	Send   []Send
	Labels []LabelChange
	Events []Event
	// Bandwidth has each interface of which something else is unreserved than the last Take said; the first Take
	// has all of them.
	Bandwidth []Bandwidth
}

// LabelChange installs an entry, in the place of the one of the same LSP, or removes it.
type LabelChange struct {
	Remove bool
	Entry  Entry
}

// What an Event says.
const (
	Up       = "up"       // the LSP carries packets; its ends are told
	Down     = "down"     // it does not any more
	Failed   = "failed"   // a router reported an error; Error has it
	Replaced = "replaced" // make before break has torn the LSP down
	// Repaired is told at the ingress: a router on the way, or this one, sends the LSP round a failure, for which
	// Error.Node stands. It is up, but another way should be asked for.
	Repaired = "repaired"
	// Of a neighbour, which is Error.Node:
	Restarted  = "restarted"  // it has lost its state
	Restarting = "restarting" // it is silent, and its state is kept for the time that it needs to restart
	Lost       = "lost"       // it is silent, and its reservations are taken back
)

// Event is something that the owner of the ends of an LSP wants to know.
type Event struct {
	Kind  string
	Key   Key
	Error message.ErrorSpec
	Said  string           // of Failed: what the router said more of it, for people, whatever bytes these are
	Route []message.Record // of Up, at the ingress: the routers on the way
}

// Counters count messages that had no effect.
type Counters struct {
	Malformed uint64 // not decoded, or without an object that they need
	Foreign   uint64 // not from the neighbour that the LSP has there
	Distant   uint64 // not from a router on the link, as the TTL shows
	Stateless uint64 // for an LSP that is not here
	Forged    uint64 // without a digest, or with a wrong one
	Replayed  uint64 // with a sequence number that was seen, or is too old
}

// Router is the state of one router.
type Router struct {
	Counters   Counters
	config     Config
	now        time.Duration
	shift      time.Duration // from the caller's time to now: the sum of all jumps back
	interfaces map[int]*link
	lsps       map[Key]*lsp
	sessions   map[message.Session]map[Key]*lsp
	labels     *labels
	neighbours map[place]*neighbour
	sequence   uint64
	// Of refresh reduction: numbers are those of the epoch, which is another one after a restart.
	epoch    uint32
	nextID   uint32
	sentIDs  map[uint32]numbered
	heardIDs map[heard]numbered
	timers   timers
	changed  []*link            // see link.changed
	bypasses map[int][]*lsp     // by the interface that they go round
	windows  map[signer]*window // of routers that are no neighbours
	// nextTimer is the number of the last timer that was made.
	nextTimer uint64
	out       Output
	stored    int // bytes, of all LSPs, see footprint.go
	// adopted is entries of before a restart that no LSP is bound to yet; recovery is when they are removed.
	adopted  map[Key]*Entry
	recovery timer
}

const (
	defaultRefresh = 30 * time.Second
	defaultMaxLSPs = 100_000
	defaultBytes   = 512 << 20
	multiplier     = 3 // K: of so many refreshes, one has to come
	maxPeriod      = time.Hour
	ttl            = 255
	firstLabel     = 16 // those below are reserved
	neverPreempts  = 7
	// recoveryPeriods is how many periods of refreshes a router has to recover, if it is not told.
	recoveryPeriods = 4
)

// New makes a router without LSPs.
func New(c Config) (*Router, error) {
	if c.Refresh == 0 {
		c.Refresh = defaultRefresh
	}
	if c.MaxLSPs == 0 {
		c.MaxLSPs = defaultMaxLSPs
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = defaultBytes
	}
	if c.Recovery == 0 {
		c.Recovery = recoveryPeriods * c.Refresh
	}
	if c.LastLabel == 0 {
		c.FirstLabel, c.LastLabel = firstLabel, message.MaxLabel
	}
	switch {
	case !c.ID.IsValid() || c.Random == nil:
		return nil, errors.New("new RSVP router: no identifier, or no random numbers")
	case c.Hello < 0 || c.Hello > 0 && c.Instance == 0:
		return nil, errors.New("new RSVP router: Hellos without an instance")
	case c.Refresh < time.Millisecond || c.Refresh > maxPeriod:
		return nil, fmt.Errorf("new RSVP router: a refresh period of %s; 1 ms to %s", c.Refresh, maxPeriod)
	case c.Restart < 0 || c.Restart > maxPeriod || c.Recovery < 0 || c.Recovery > 2*recoveryPeriods*maxPeriod:
		return nil, fmt.Errorf("new RSVP router: %s to restart and %s to recover; up to %s and %s", c.Restart,
			c.Recovery, maxPeriod, 2*recoveryPeriods*maxPeriod)
	case c.Egress > OwnLabel:
		return nil, fmt.Errorf("new RSVP router: a last label of kind %d", c.Egress)
	case c.FirstLabel < firstLabel || c.LastLabel > message.MaxLabel || c.FirstLabel > c.LastLabel:
		return nil, fmt.Errorf("new RSVP router: labels %d to %d; %d to %d", c.FirstLabel, c.LastLabel,
			firstLabel,
			message.MaxLabel)
	}
	r := &Router{config: c, interfaces: make(map[int]*link), lsps: make(map[Key]*lsp),
		sessions: make(map[message.Session]map[Key]*lsp), labels: newLabels(c.FirstLabel, c.LastLabel),
		neighbours: make(map[place]*neighbour), sequence: c.Sequence,
		epoch: uint32(c.Random()) & epochMask, sentIDs: make(map[uint32]numbered),
		heardIDs: make(map[heard]numbered), adopted: make(map[Key]*Entry), bypasses: make(map[int][]*lsp),
		windows: make(map[signer]*window)}
	for _, i := range c.Interfaces {
		if i.Index <= 0 || !i.Prefix.IsValid() || r.interfaces[i.Index] != nil {
			return nil, fmt.Errorf("new RSVP router: interface %d with %s: wrong, or twice", i.Index,
				i.Prefix)
		}
		if slices.ContainsFunc(i.Keys, c.hasKey) {
			return nil, fmt.Errorf("new RSVP router: interface %d has a key with the ID of a router's one",
				i.Index)
		}
		r.interfaces[i.Index] = newLink(i)
		r.mark(r.interfaces[i.Index])
	}
	return r, nil
}

func (c Config) hasKey(k message.Key) bool {
	return slices.ContainsFunc(c.Keys, func(o message.Key) bool { return o.ID == k.ID })
}

// Take gives what is to be done since the last call.
func (r *Router) Take() Output {
	out := r.out
	out.Send = r.seal(out.Send)
	out.Bandwidth = r.bandwidth()
	r.out = Output{}
	return out
}

// Packet is an IP packet with a message of RSVP.
type Packet struct {
	Interface int // by which it came
	Source    netip.Addr
	Dest      netip.Addr // of the packet
	TTL       uint8      // with which it came
	Message   []byte
}

// Receive takes a message that came.
func (r *Router) Receive(now time.Duration, p Packet) {
	r.advance(now)
	in := r.interfaces[p.Interface]
	if in == nil || in.Down {
		return
	}
	m, beyond, err := r.decode(in, p.Message)
	if errors.Is(err, errUnauthentic) {
		return
	}
	if !beyond && in.distant(m, p.TTL) {
		r.Counters.Distant++
		return
	}
	if err != nil {
		r.Counters.Malformed++
		r.refuse(in, m, err)
		return
	}
	if !beyond {
		in.reduces = m.Flags&message.RefreshReduction != 0
	}
	for _, inner := range m.Bundled {
		if _, beyond := r.beyond(inner); beyond { // other keys are for these, and nobody bundles them
			r.Counters.Forged++
			continue
		}
		r.dispatch(in, p, inner)
	}
	r.dispatch(in, p, m)
}

func (r *Router) dispatch(in *link, p Packet, m message.Message) {
	r.receiveAcks(in, m)
	switch m.Type {
	case message.Path:
		r.receivePath(in, m)
	case message.Resv:
		r.receiveResv(in, m)
	case message.PathTear:
		r.receivePathTear(in, m)
	case message.ResvTear:
		r.receiveResvTear(in, m)
	case message.PathErr:
		r.receivePathErr(in, m)
	case message.ResvErr:
		r.receiveResvErr(in, m)
	case message.ResvConf:
		r.receiveResvConf(in, m)
	case message.Hello:
		r.receiveHello(in, p, m)
	case message.Srefresh:
		r.receiveSummary(in, p.Source, m)
	default: // an Ack or a Bundle; or not built
	}
}

// refuse answers a Path with an object that is not known.
func (r *Router) refuse(in *link, m message.Message, err error) {
	var e *message.Error
	p, ok := readPath(m)
	if !errors.As(err, &e) || e.Code == 0 || m.Type != message.Path || !ok || !in.Prefix.Contains(p.hop.Addr) {
		return
	}
	r.pathErr(in, p.hop.Addr, p, message.ErrorSpec{Code: e.Code, Value: e.Value})
}

// advance sets the time. A clock that jumps back goes on from where it was, so that timers do not wait for it.
func (r *Router) advance(now time.Duration) {
	if now+r.shift < r.now {
		r.shift = r.now - now
	}
	r.now = now + r.shift
}

// own tells whether an address is the router's.
func (r *Router) own(a netip.Addr) bool {
	if a == r.config.ID {
		return true
	}
	for _, l := range r.interfaces {
		if l.Prefix.Addr() == a {
			return true
		}
	}
	return false
}

// hopTo finds the interface and the neighbour for an address.
func (r *Router) hopTo(a netip.Addr) (*link, netip.Addr, bool) {
	if l := r.connected(a); l != nil {
		return l, a, true
	}
	if r.config.Route == nil {
		return nil, netip.Addr{}, false
	}
	index, next, ok := r.config.Route(a)
	l := r.interfaces[index]
	return l, next, ok && l != nil && !l.Down
}

func (r *Router) connected(a netip.Addr) *link {
	for _, i := range r.config.Interfaces {
		if l := r.interfaces[i.Index]; !l.Down && i.Prefix.Contains(a) {
			return l
		}
	}
	return nil
}

// send has a message sent to a neighbour. Messages for the egress are seen by each router on the way (Router Alert).
func (r *Router) send(l *link, next netip.Addr, source, dest netip.Addr, m message.Message) {
	if l.Down {
		return
	}
	m.TTL = max(m.TTL, 1)
	if l.GTSM && adjacent(m.Type) {
		m.TTL = ttl
	}
	if r.config.Reduce {
		m.Flags |= message.RefreshReduction
	}
	r.out.Send = append(r.out.Send, Send{Interface: l.Index, Next: next, Source: source, Dest: dest,
		RouterAlert: next != dest, link: l, message: m})
}

func (r *Router) event(kind string, k Key, e message.ErrorSpec, route []message.Record) {
	r.out.Events = append(r.out.Events, Event{Kind: kind, Key: k, Error: e, Route: route})
}
