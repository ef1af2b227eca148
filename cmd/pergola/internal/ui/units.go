package ui

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/docker/go-units"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/wording"
)

// Rate writes bits per second as a network person says it: "10 Gbit/s". No rate is written as nothing.
func Rate(bits uint64) string {
	if bits == 0 {
		return ""
	}
	return units.CustomSize("%.4g %s", float64(bits), 1000,
		[]string{"bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s", "Pbit/s"})
}

// Bytes writes a memory size: "64 MiB".
func Bytes(n int64) string {
	return units.CustomSize("%.4g %s", float64(n), 1024, []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"})
}

// Delay writes a short time with the precision that matters: "12.5 ms", "340 us".
func Delay(d time.Duration) string {
	switch {
	case d >= time.Second:
		return strconv.FormatFloat(d.Seconds(), 'g', 4, 64) + " s"
	case d >= time.Millisecond:
		return strconv.FormatFloat(float64(d)/1e6, 'g', 4, 64) + " ms"
	case d >= time.Microsecond:
		return strconv.FormatFloat(float64(d)/1e3, 'g', 4, 64) + " us"
	}
	return strconv.FormatInt(int64(d), 10) + " ns"
}

// Elapsed writes how long work took: "35 ms", "1.8 s", "42 s", "3 min 5 s".
func Elapsed(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	}
	return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
}

// Age writes how long ago something was, in one unit: "12s", "5m", "3h", "9d".
func Age(since, now time.Time) string {
	if since.IsZero() {
		return ""
	}
	switch d := max(now.Sub(since), 0); {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

// Shape writes what a link direction does to frames: "10 Mbit/s, 5 ms ± 1 ms, loss 0.1 %". Nothing is written as
// nothing.
func Shape(s slice.Shape) string {
	var parts []string
	if s.Police.Rate != 0 {
		parts = append(parts, "policed at "+Rate(uint64(s.Police.Rate)))
	}
	if s.Rate != 0 {
		parts = append(parts, Rate(uint64(s.Rate)))
	}
	switch {
	case s.Jitter != 0:
		parts = append(parts, Delay(s.Delay)+" ± "+Delay(s.Jitter))
	case s.Delay != 0:
		parts = append(parts, Delay(s.Delay))
	}
	if s.Loss != 0 {
		parts = append(parts, "loss "+strconv.FormatFloat(s.Loss, 'g', 4, 64)+" %")
	}
	if s.Queue != 0 {
		parts = append(parts, "queue "+wording.Count(s.Queue, "frame"))
	}
	if len(s.Classes) != 0 {
		names := make([]string, len(s.Classes))
		for i, c := range s.Classes {
			names[i] = c.Name
		}
		parts = append(parts, "classes "+strings.Join(names, " "))
	}
	if len(s.Queues) != 0 {
		parts = append(parts, wording.Count(len(s.Queues), "queue"))
	}
	return strings.Join(parts, ", ")
}
