package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pergola-net/pergola/control/api"
)

var (
	byLSP = []string{"slice", "lsp"}
	byUse = []string{"slice", "lsp", "measured"} // reserved, excess

	lspUpMetric = prometheus.NewDesc("pergola_lsp_up",
		"1 where an LSP by RSVP-TE that begins on this host is up.", byLSP, nil)
	lspReservedMetric = prometheus.NewDesc("pergola_lsp_reserved_bits",
		"Bits a second that an LSP has reserved.", byLSP, nil)
	lspFramesMetric = prometheus.NewDesc("pergola_lsp_frames_total",
		"Frames by an LSP with a bandwidth: within its reservation (reserved), or in excess of it.", byUse, nil)
	lspBytesMetric = prometheus.NewDesc("pergola_lsp_bytes_total", "Bytes of these frames.", byUse, nil)

	lspSecondsMetric = prometheus.NewDesc("pergola_lsp_seconds_total",
		"Processor time of the walks of these frames, measured at one frame in 16.", byLSP, nil)
)

func (s scrape) lsps(slice string, all []api.SignalledLSP) {
	for i := range all {
		l := &all[i]
		up := 0.0
		if l.Up {
			up = 1
		}
		s.gauge(lspUpMetric, up, slice, l.LSP)
		s.gauge(lspReservedMetric, float64(l.Bandwidth), slice, l.LSP)
		if m := l.Measured; m != nil {
			s.count(lspFramesMetric, m.Frames, slice, l.LSP, "reserved")
			s.count(lspFramesMetric, m.ExcessFrames, slice, l.LSP, "excess")
			s.count(lspBytesMetric, m.Bytes, slice, l.LSP, "reserved")
			s.count(lspBytesMetric, m.ExcessBytes, slice, l.LSP, "excess")
			s.ch <- prometheus.MustNewConstMetric(lspSecondsMetric, prometheus.CounterValue, m.Seconds,
				slice, l.LSP)
		}
	}
}
