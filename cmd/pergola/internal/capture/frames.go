package capture

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// Frame is one that was captured.
type Frame struct {
	Data []byte
	Time time.Time
}

// Frames reads a file of Ethernet frames, pcap or pcapng.
func Frames(path string) ([]Frame, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	r, err := open(f)
	if err != nil {
		return nil, fmt.Errorf("%s is no capture: %w", path, err)
	}
	if l, ok := r.(interface{ LinkType() layers.LinkType }); ok && l.LinkType() != layers.LinkTypeEthernet {
		return nil, fmt.Errorf("%s holds %s and no Ethernet frames", path, l.LinkType())
	}
	var all []Frame
	for {
		data, info, err := r.ZeroCopyReadPacketData()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: frame %d: %w", path, len(all)+1, err)
		}
		if info.CaptureLength < info.Length {
			return nil, fmt.Errorf("%s: frame %d was cut to %d of %d bytes: capture it whole", path,
				len(all)+1, info.CaptureLength, info.Length)
		}
		all = append(all, Frame{Data: append([]byte{}, data...), Time: info.Timestamp})
	}
}

// Write makes a pcap file of Ethernet frames.
func Write(path string, frames []Frame) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	const longest = 1 << 18
	w := pcapgo.NewWriterNanos(f)
	if err := w.WriteFileHeader(longest, layers.LinkTypeEthernet); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	for _, frame := range frames {
		info := gopacket.CaptureInfo{Timestamp: frame.Time, CaptureLength: len(frame.Data),
			Length: len(frame.Data)}
		if err := w.WritePacket(info, frame.Data); err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
	}
	return f.Close()
}
