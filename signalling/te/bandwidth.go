package te

import (
	"fmt"
	"math"
)

// Priorities of LSPs are 0, the highest, to 7.
const Priorities = 8

// most is what more bandwidth is taken for.
const most = 1 << 62

// BandwidthOf reads a bandwidth as routing protocols carry it, in bytes a second, and rounds it down to whole ones:
// more than a link has must not be promised.
func BandwidthOf(f float32) (uint64, error) {
	switch {
	case math.IsNaN(float64(f)) || f < 0:
		return 0, fmt.Errorf("a bandwidth of %g bytes/s", f)
	case f >= most:
		return most, nil
	}
	return uint64(f), nil
}

// Float is a bandwidth as routing protocols carry it, rounded down.
func Float(bandwidth uint64) float32 {
	bandwidth = min(bandwidth, most)
	f := float32(bandwidth)
	if uint64(f) > bandwidth {
		f = math.Nextafter32(f, 0)
	}
	return f
}

// asked is the bandwidth that RSVP will ask for: the nearest one that a flowspec can say.
func asked(bandwidth uint64) uint64 { return uint64(float32(min(bandwidth, most))) }

// Rate writes a bandwidth in bits a second, as operators do.
func Rate(bandwidth uint64) string {
	bits := float64(bandwidth) * 8
	for _, u := range []struct {
		from float64
		name string
	}{{1e9, "Gbit/s"}, {1e6, "Mbit/s"}, {1e3, "kbit/s"}} {
		if bits >= u.from {
			return fmt.Sprintf("%.4g %s", bits/u.from, u.name)
		}
	}
	return fmt.Sprintf("%.4g bit/s", bits)
}
