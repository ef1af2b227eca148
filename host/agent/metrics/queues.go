package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pergola-net/pergola/control/api"
)

var (
	byQueue = []string{"slice", "link", "from", "to", "class"}

	queueFramesMetric = prometheus.NewDesc("pergola_queue_frames_total",
		"Frames that left the queue of a class of a link.", byQueue, nil)
	queueBytesMetric   = prometheus.NewDesc("pergola_queue_bytes_total", "Bytes of these frames.", byQueue, nil)
	queueDroppedMetric = prometheus.NewDesc("pergola_queue_dropped_total",
		"Frames that found the queue full.", byQueue, nil)
	queueOverlimitsMetric = prometheus.NewDesc("pergola_queue_overlimits_total",
		"How often a class had used up its limit, and had to wait.", byQueue, nil)
	queueBacklogMetric = prometheus.NewDesc("pergola_queue_backlog_frames",
		"Frames in the queue.", byQueue, nil)
	queueBacklogBytesMetric = prometheus.NewDesc("pergola_queue_backlog_bytes",
		"Bytes in the queue.", byQueue, nil)
)

func (s scrape) queues(slice string, all []api.QueueTraffic) {
	for _, q := range all {
		of := []string{slice, q.Link, q.From, q.To, q.Class}
		s.count(queueFramesMetric, q.Sent.Frames, of...)
		s.count(queueBytesMetric, q.Sent.Bytes, of...)
		s.count(queueDroppedMetric, q.Dropped, of...)
		s.count(queueOverlimitsMetric, q.Overlimits, of...)
		s.gauge(queueBacklogMetric, float64(q.Backlog.Frames), of...)
		s.gauge(queueBacklogBytesMetric, float64(q.Backlog.Bytes), of...)
	}
}
