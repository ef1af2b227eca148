package report

import (
	"testing"
	"time"

	"github.com/pergola-net/pergola/control/api"
)

func TestTunnelRates(t *testing.T) {
	before := &api.SliceTraffic{Tunnels: []api.TunnelTraffic{
		{To: "lan at h2", Port: "s1t1", Host: "h1", Received: api.Traffic{Frames: 100, Bytes: 6000},
			Dropped: map[string]uint64{"storm": 7}},
		{To: "b:eth1", Port: "s1p4", Host: "h1", Sent: api.Traffic{Frames: 5, Bytes: 500}},
	}}
	after := &api.SliceTraffic{Tunnels: []api.TunnelTraffic{
		{
			To: "lan at h2", Port: "s1t1", Host: "h1", Received: api.Traffic{Frames: 300,
				Bytes: 256_000}, Sent: api.Traffic{Frames: 2, Bytes: 200},
			Dropped: map[string]uint64{"storm": 47, "too big": 2},
		},
		{To: "lan at h1", Port: "s1t1", Host: "h2", Dropped: map[string]uint64{"storm": 4}},
		// nothing went through
		{To: "b:eth1", Port: "s1p4", Host: "h1", Sent: api.Traffic{Frames: 5, Bytes: 500}},
	}}
	same(t, draw(TunnelRates(before, after, 2*time.Second)), `
TUNNEL TO  HOST  IN/S  IN        OUT/S  OUT        DROPS/S
lan at h2  h1    100   1 Mbit/s  1.0    800 bit/s  20 storm, 1.0 too big
lan at h1  h2    0     -         0      -          2.0 storm
`)
}

func TestUnderlayTrafficNamesItsDrops(t *testing.T) {
	u := &api.UnderlayTraffic{Received: 12, ByLineCard: 7, Sent: 3, Dropped: map[string]uint64{"unknown tunnel": 2}}
	same(t, draw(UnderlayTraffic(u)), `
TUNNELS                  PACKETS
received                 12
by the line card         7
sent                     3
dropped: unknown tunnel  2
`)
}

func TestProgramTimes(t *testing.T) {
	before := &api.SliceTraffic{ProgramTime: []api.ProgramTime{
		{Host: "h1", Seconds: 10, Metered: 5}, {Host: "h2", Seconds: 8, Reserved: 0.25}}}
	after := &api.SliceTraffic{ProgramTime: []api.ProgramTime{
		{Host: "h1", Seconds: 10.5, Metered: 25}, {Host: "h2", Seconds: 0.5, Reserved: 0.25}}}
	same(t, draw(ProgramTimes(before, after, 2*time.Second)), `
PACKET PROGRAMS  CORES  RESERVED  METERED/S
h1               0.250  0         10
h2               0.250  0.25      0
`)
}
