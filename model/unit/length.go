package unit

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/docker/go-units"
)

// Length is how much a queue holds before the tail is dropped: bytes, with Ethernet headers, or frames. The zero value
// leaves the choice to whom it is given to.
type Length struct {
	Bytes  int64 `json:"bytes,omitempty"`
	Frames int   `json:"frames,omitempty"`
}

// Limits of lengths in bytes: frames of the usual length fit, and qdiscs count in 32 bits.
const (
	MinQueueBytes = 2048
	MaxQueueBytes = 1 << 30
)

// ParseLength reads how much a queue holds: a plain number of frames, or bytes with a unit: 200, 64KiB, 1m, 9000B.
func ParseLength(text string) (l Length, err error) {
	if frames, err := strconv.Atoi(text); err == nil {
		l.Frames = frames
		if frames == 0 {
			return l, errors.New("a queue of length 0 takes no frame: leave length out for the default")
		}
		return l, l.Check()
	}
	if l.Bytes, err = units.RAMInBytes(text); err != nil || l.Bytes <= 0 {
		return Length{}, fmt.Errorf(
			"%q is no length of a queue: write frames, such as 200, or bytes, such as 64KiB", text)
	}
	return l, l.Check()
}

// Check refuses a length that no queue can have.
func (l Length) Check() error {
	switch {
	case l.Bytes != 0 && l.Frames != 0:
		return errors.New("the length of a queue is in bytes or in frames")
	case l.Bytes != 0 && (l.Bytes < MinQueueBytes || l.Bytes > MaxQueueBytes):
		return fmt.Errorf("length %s is out of range: %d bytes to 1GiB", l, MinQueueBytes)
	case l.Frames < 0 || l.Frames > MaxFrames:
		return fmt.Errorf("length %s is out of range: 1 to %d frames", l, MaxFrames)
	}
	return nil
}

// String writes a length as ParseLength reads it.
func (l Length) String() string {
	switch b := l.Bytes; {
	case b == 0:
		return strconv.Itoa(l.Frames)
	case b%(1<<20) == 0:
		return fmt.Sprintf("%dMiB", b>>20)
	case b%(1<<10) == 0:
		return fmt.Sprintf("%dKiB", b>>10)
	default:
		return fmt.Sprintf("%dB", b)
	}
}
