package api

// SliceQueues counts the frames of links that have a rate, a queue, classes or queues of a packet program: those of
// each class or queue in each direction, since it was made. A change of rates, shares and lengths keeps the counters;
// other classes, a restart of an end and a cut of the link begin them anew.
type SliceQueues struct {
	Queues []QueueTraffic `json:"queues"` // by link in the slice's order, direction, and class in the link's order
	// Unreachable are the hosts whose part is missing.
	Unreachable []UnreachableHost `json:"unreachable,omitempty"`
}

// QueueTraffic is what went through one queue, and what is in it. A GSO super-frame counts as the frames that it stands
// for.
type QueueTraffic struct {
	Link       string  `json:"link"`
	From       string  `json:"from"`           // the end that sends, node:interface, or a LAN: the link's name
	To         string  `json:"to"`             // the other end, or a LAN
	Class      string  `json:"class"`          // or a queue's number; empty: the only queue of a link
	Host       string  `json:"host,omitempty"` // that has the queue; empty where the server is in no cluster
	Sent       Traffic `json:"sent"`
	Dropped    uint64  `json:"dropped"`    // frames: the queue was full
	Overlimits uint64  `json:"overlimits"` // how often the class had used up its limit, and had to wait
	Backlog    Traffic `json:"backlog"`    // in the queue now
}
