package server

// Drop says why a packet was dropped.
type Drop uint8

// The reasons.
const (
	Malformed         Drop = iota // no packet, or a payload that is not what the type asks for
	NotForServers                 // a packet for receivers
	NotFromRing                   // what only a server of the ring may send
	HopLimit                      // the packet went through too many servers
	NoRoute                       // the server knows no other, and has not joined
	NoTrigger                     // nobody wants these packets
	StackTooDeep                  // a trigger would make the stack deeper than 8
	TooManyCopies                 // the packet may not be copied so often
	TooManyChallenges             // more insertions without an answer than the server is willing to challenge
	TableFull                     // a trigger of another server for which there is no room
	drops             int  = iota
)

func (d Drop) String() string {
	return [drops]string{"malformed", "not-for-servers", "not-from-ring", "hop-limit", "no-route", "no-trigger",
		"stack-too-deep", "too-many-copies", "too-many-challenges", "table-full"}[d]
}

// Counters is what a server has done since it began.
type Counters struct {
	Received   uint64 // packets
	Passed     uint64 // sent to the next server
	Delivered  uint64 // sent to receivers, each copy
	Redirected uint64 // by triggers to stacks, each copy
	Challenged uint64
	Inserted   uint64 // triggers stored or refreshed
	Refused    uint64
	Removed    uint64
	Expired    uint64
	HandedOver uint64
	TakenOver  uint64
	Dropped    [drops]uint64 // by Drop

	Triggers        int  // in the table now
	FastPathMissing int  // keys whose packets are punted for want of room
	FastPathBroken  bool // all packets are punted, because it refused a call
}

func (s *Server) drop(why Drop) { s.counters.Dropped[why]++ }
