package member

import (
	"math"

	"github.com/prometheus/procfs"
)

// cpuMeter measures how many cores are busy. Its zero value has measured nothing.
type cpuMeter struct {
	last procfs.CPUStat
	rate float64
}

// measure gives the average number of busy cores since the last call that gave one, if that is long enough ago to mean
// anything.
func (m *cpuMeter) measure() float64 {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return 0
	}
	stat, err := proc.Stat()
	if err != nil {
		return 0
	}
	busy := func(s procfs.CPUStat) float64 { return s.User + s.Nice + s.System + s.IRQ + s.SoftIRQ + s.Steal }
	now := stat.CPUTotal
	worked, idled := busy(now)-busy(m.last), now.Idle+now.Iowait-m.last.Idle-m.last.Iowait
	if total := worked + idled; total > 0.5 {
		m.rate = math.Round(100*worked/total*float64(len(stat.CPU))) / 100
		m.last = now
	}
	return m.rate
}
