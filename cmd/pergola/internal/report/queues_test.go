package report

import (
	"testing"
	"time"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/model/slice"
)

func TestQueues(t *testing.T) {
	const name = "a:eth1--b:eth1"
	ends := []slice.End{{Node: "a", Interface: "eth1"}, {Node: "b", Interface: "eth1"}}
	links := []*slice.Link{{Name: name, Ends: ends}}
	before := &api.SliceQueues{Queues: []api.QueueTraffic{
		{
			Link: name, From: "a:eth1", To: "b:eth1", Class: "voice",
			Sent: api.Traffic{Frames: 100, Bytes: 6000}, Dropped: 7,
		},
		{Link: name, From: "b:eth1", To: "a:eth1", Sent: api.Traffic{Frames: 9, Bytes: 900}, Overlimits: 4},
	}}
	same(t, draw(Queues(links, before)), `
FROM    TO      CLASS  FRAMES  BYTES  DROPS  OVERLIMITS  BACKLOG
a:eth1  b:eth1  voice  100     6000   7      0           0
b:eth1  a:eth1  -      9       900    0      4           0
`)
	after := &api.SliceQueues{Queues: []api.QueueTraffic{
		{
			Link: name, From: "a:eth1", To: "b:eth1", Class: "voice", Host: "h1",
			Sent: api.Traffic{Frames: 300, Bytes: 256_000}, Dropped: 27,
			Backlog: api.Traffic{Frames: 12, Bytes: 18168},
		},
		{ // made anew
			Link: name, From: "b:eth1", To: "a:eth1", Host: "h2", Sent: api.Traffic{Frames: 3, Bytes: 300},
		},
	}}
	links[0].Name = "trunk"
	same(t, draw(QueueRates(links, before, after, 2*time.Second)), `
LINK            HOST  FROM    TO      CLASS  FRAMES/S  RATE        DROPS/S  OVERLIMITS/S  BACKLOG
a:eth1--b:eth1  h1    a:eth1  b:eth1  voice  100       1 Mbit/s    10       0             12 frames, 17.74 KiB
a:eth1--b:eth1  h2    b:eth1  a:eth1  -      1.5       1.2 kbit/s  0        0             0
`)
}
