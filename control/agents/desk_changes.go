package agents

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/pergola-net/pergola/control/store"
)

// beat is how often an idle stream of changes says that it is there.
const beat = 15 * time.Second

// changes streams what changes of the host's slices, and of other hosts. It begins with a Resync.
func (c *counter) changes(w http.ResponseWriter, r *http.Request) {
	defer c.streams.Add(-1)
	if c.streams.Add(1) > maxStreams {
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	sub := c.index.subscribe(c.host)
	defer sub.close()
	w.Header().Set("Content-Type", "application/jsonl")
	out := json.NewEncoder(w)
	flush := http.NewResponseController(w)
	tick := time.NewTicker(beat)
	defer tick.Stop()
	next := []change{{What: store.Resync, Servers: c.index.serversNow()}}
	for {
		for _, line := range next {
			if err := out.Encode(line); err != nil {
				return
			}
		}
		if err := flush.Flush(); err != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-sub.ready:
			next = sub.take()
		case <-tick.C:
			next = []change{{}}
		}
	}
}
