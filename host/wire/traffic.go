package wire

import (
	"context"
	"fmt"

	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/host/wiring"
)

// Traffic is what went through a port, by direction. A GSO super-frame counts as one frame of its own length. Of a
// tunnel, ToNode is what was sent to it, also what it then did not take, and FromNode what came out of it.
type Traffic struct {
	FromNode, ToNode datapath.Traffic
	// WalkedOut and WalkedIn are the parts of both that the data path carried past the node's kernel.
	WalkedOut, WalkedIn datapath.Traffic
	// Dropped counts frames that the data path dropped, by reason: from the node, out of the queue by which frames
	// come to the node (see Reinject), and of a tunnel those from a switch or a queue that were to go in.
	Dropped map[string]uint64

	Tunnel *TunnelName // nil: it is no tunnel's
}

// TunnelName says whose a tunnel is.
type TunnelName struct {
	Slice uint16
	Owner string // see Tunnel
}

// Counters reads the traffic of all ports and ends of cables.
func (s *HostNetwork) Counters(ctx context.Context) (map[string]Traffic, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	counted, err := s.forwarder.Counters()
	if err != nil {
		return nil, fmt.Errorf("read counters: %w", err)
	}
	all, err := s.nl.dumpDevices(0)
	if err != nil {
		return nil, fmt.Errorf("read counters: %w", err)
	}
	behind := map[string]map[string]uint64{} // what is dropped behind a port, by the name of the device there
	for _, d := range all {
		if d.mark.role == roleQueue || d.mark.role == roleTwin {
			behind[d.name] = counted[d.index].Dropped
		}
	}
	traffic := map[string]Traffic{}
	for _, d := range all {
		if !d.mark.isPort() && d.mark.role != roleCable {
			continue
		}
		from, to := d.rx, d.tx
		if d.mark.role == roleCable { // what the switch sends, the device sends
			from, to = d.tx, d.rx
		}
		c := counted[d.index]
		t := Traffic{
			FromNode: sum(from, c.WalkedOut, c.Emerged), ToNode: sum(to, c.Handed, c.WalkedIn),
			WalkedOut: c.WalkedOut, WalkedIn: c.WalkedIn, Dropped: map[string]uint64{},
		}
		if d.mark.role == roleTunnel {
			t.Tunnel = &TunnelName{uint16(d.group), d.mark.owner}
		}
		for _, dropped := range []map[string]uint64{
			c.Dropped, behind[wiring.QueueName(d.name)], behind[twinName(d.name)],
		} {
			for why, n := range dropped {
				t.Dropped[why] += n
			}
		}
		traffic[d.name] = t
	}
	return traffic, nil
}

func sum(parts ...datapath.Traffic) (all datapath.Traffic) {
	for _, t := range parts {
		all.Frames += t.Frames
		all.Bytes += t.Bytes
	}
	return all
}
