package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/host/wiring"
	"github.com/pergola-net/pergola/kernel/rtnl"
)

// QueueStats is what went through the queue of a class since the class was made, and what is in it. Bytes are those of
// frames with their Ethernet headers; a GSO super-frame counts as the frames that it stands for.
type QueueStats struct {
	Frames, Bytes uint64 // sent
	Drops         uint64 // frames: the queue was full
	Overlimits    uint64 // how often the class had used up its limit, and had to wait
	Waiting       uint32 // frames in the queue
	Backlog       uint32 // bytes in the queue
}

// QueueStats reads the counters of the classes of devices, by device and minor number (wiring.RootClass,
// wiring.FirstClass): one dump for each device. Devices that do not exist, or have no classes, are left out.
func (s *HostNetwork) QueueStats(ctx context.Context, devices ...string) (map[string]map[uint16]QueueStats, error) {
	indexes, err := s.indexesOf(devices)
	if err != nil {
		return nil, fmt.Errorf("read queues: %w", err)
	}
	all := make(map[string]map[uint16]QueueStats, len(indexes))
	for name, index := range indexes {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		classes, err := s.nl.queueStats(index)
		if err != nil {
			return nil, fmt.Errorf("read queues of device %s: %w", name, err)
		}
		if len(classes) > 0 {
			all[name] = classes
		}
	}
	return all, nil
}

// indexesOf finds devices that exist: few by their names, many in a list of all.
func (s *HostNetwork) indexesOf(names []string) (map[string]int, error) {
	const few = 16
	indexes := make(map[string]int, len(names))
	if len(names) <= few {
		for _, name := range names {
			d, err := s.nl.device(name)
			if errors.Is(err, ErrNoDevice) {
				continue
			}
			if err != nil {
				return nil, err
			}
			indexes[name] = d.index
		}
		return indexes, nil
	}
	all, err := s.nl.devices()
	if err != nil {
		return nil, err
	}
	there := make(map[string]int, len(all))
	for _, d := range all {
		there[d.name] = d.index
	}
	for _, name := range names {
		if index, is := there[name]; is {
			indexes[name] = index
		}
	}
	return indexes, nil
}

// queueStats dumps the counters of a device's classes of htb, by minor number.
func (c *conn) queueStats(index int) (map[uint16]QueueStats, error) {
	messages, err := c.dump(unix.RTM_GETTCLASS, unix.RTM_NEWTCLASS, tcHeader(index, 0, 0))
	if err != nil && !errors.Is(err, unix.ENODEV) {
		return nil, err
	}
	all := make(map[uint16]QueueStats, len(messages))
	for _, message := range messages {
		header := nl.DeserializeTcMsg(message)
		if header.Handle>>16 != wiring.HandleHTB>>16 {
			continue
		}
		stats, err := parseClassStats(message[header.Len():])
		if err != nil {
			return nil, err
		}
		all[uint16(header.Handle)] = stats
	}
	return all, nil
}

func parseClassStats(message []byte) (s QueueStats, err error) {
	attrs := rtnl.Attributes(message)
	for attrs.Next() {
		if attrs.Kind != nl.TCA_STATS2 {
			continue
		}
		if s, err = parseQueueStats(attrs.Value); err != nil {
			return s, err
		}
	}
	return s, attrs.Err()
}

// statsPackets64 is TCA_STATS_PKT64 (Linux 5.5): there when 32 bits do not hold the number of frames.
const statsPackets64 = 8

// parseQueueStats reads struct gnet_stats_basic (bytes, packets) and gnet_stats_queue (qlen, backlog, drops, requeues,
// overlimits).
func parseQueueStats(value []byte) (s QueueStats, err error) {
	native := binary.NativeEndian
	attrs := rtnl.Attributes(value)
	for attrs.Next() {
		switch {
		case attrs.Kind == nl.TCA_STATS_BASIC && len(attrs.Value) >= 12:
			s.Bytes, s.Frames = native.Uint64(attrs.Value), uint64(native.Uint32(attrs.Value[8:]))
		case attrs.Kind == statsPackets64:
			s.Frames = attrs.U64()
		case attrs.Kind == nl.TCA_STATS_QUEUE && len(attrs.Value) >= 20:
			s.Waiting, s.Backlog = native.Uint32(attrs.Value), native.Uint32(attrs.Value[4:])
			s.Drops = uint64(native.Uint32(attrs.Value[8:]))
			s.Overlimits = uint64(native.Uint32(attrs.Value[16:]))
		}
	}
	return s, attrs.Err()
}
