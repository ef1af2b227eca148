package api

import (
	"time"

	"github.com/pergola-net/pergola/model/unit"
)

// NodeVerb is what can be asked of a node.
type NodeVerb string

// The verbs.
const (
	NodeStart   NodeVerb = "start"
	NodeStop    NodeVerb = "stop"
	NodePause   NodeVerb = "pause"
	NodeResume  NodeVerb = "resume"
	NodeRestart NodeVerb = "restart"
)

// LinkPatch changes a running link. What is nil stays as it is.
type LinkPatch struct {
	// End, as node:interface, limits the change to what leaves that end; empty means all ends.
	End    string         `json:"end,omitempty" doc:"node:interface: change only what leaves this end."`
	Rate   *unit.Rate     `json:"rate,omitempty" doc:"bit/s; 0: not limited"`
	Delay  *time.Duration `json:"delay,omitempty" doc:"ns, one way"`
	Jitter *time.Duration `json:"jitter,omitempty" doc:"ns"`
	Loss   *float64       `json:"loss,omitempty" doc:"per cent of frames"`
	Queue  *int           `json:"queue,omitempty" doc:"frames; 0: the kernel's default"`
	Police *unit.Rate     `json:"police,omitempty" doc:"bit/s above which frames are dropped at once; 0: none are"`
	Burst  *int64         `json:"burst,omitempty" doc:"bytes that may come at once where the link is policed; 0: the default"`
	Queues []QueuePatch   `json:"queues,omitempty" doc:"changes of queues that a packet program chooses, at the ends that have some"`
}

// QueuePatch changes a queue. What is nil stays as it is. The number after the last one adds a queue.
type QueuePatch struct {
	Number  int          `json:"number" minimum:"0" doc:"of the queue; that after the last one adds a queue"`
	Share   *int         `json:"share,omitempty" doc:"weight, 1 to 100"`
	Length  *unit.Length `json:"length,omitempty" doc:"bytes or frames; neither: the default"`
	Rate    *unit.Rate   `json:"rate,omitempty" doc:"bit/s at most; 0: the link's"`
	Reserve *unit.Rate   `json:"reserve,omitempty" doc:"bit/s; 0: none"`
	// Priority is as in the topology file.
	Priority *int `json:"priority,omitempty" minimum:"1" maximum:"8" doc:"1: served first, 8: last"`
	// Remove removes the queue, which is the last one and not number 0. What waits in it is lost.
	Remove bool `json:"remove,omitempty" doc:"remove it: the last queue alone can be removed"`
}
