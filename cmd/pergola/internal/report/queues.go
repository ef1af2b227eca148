package report

import (
	"slices"
	"strconv"
	"time"

	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/wording"
)

// Queues is the table of what went through queues since they were made. Links have a column where the name of one of
// them does not say its ends, hosts where there are some.
func Queues(links []*slice.Link, all *api.SliceQueues) *ui.Table {
	t := queueTable(links, all, "FRAMES", "BYTES", "DROPS", "OVERLIMITS")
	for _, q := range all.Queues {
		t.add(q, total(q.Sent.Frames), total(q.Sent.Bytes), total(q.Dropped), total(q.Overlimits))
	}
	return t.Table
}

// QueueRates is the table of what went through queues between two looks, a second.
func QueueRates(links []*slice.Link, before, after *api.SliceQueues, span time.Duration) *ui.Table {
	type key struct{ link, from, to, class string }
	of := func(q api.QueueTraffic) key { return key{q.Link, q.From, q.To, q.Class} }
	earlier := make(map[key]api.QueueTraffic, len(before.Queues))
	for _, q := range before.Queues {
		earlier[of(q)] = q
	}
	t := queueTable(links, after, "FRAMES/S", "RATE", "DROPS/S", "OVERLIMITS/S")
	for _, q := range after.Queues {
		was := earlier[of(q)]
		per := func(was, is uint64) float64 { return float64(since(was, is)) / span.Seconds() }
		frames, bits := per(was.Sent.Frames, q.Sent.Frames), 8*per(was.Sent.Bytes, q.Sent.Bytes)
		dropped, overlimits := per(was.Dropped, q.Dropped), per(was.Overlimits, q.Overlimits)
		t.add(q, perSecond(frames), ui.Rate(uint64(bits)), perSecond(dropped), perSecond(overlimits))
	}
	return t.Table
}

// queuesTable is a table whose first columns say which queue a row is about.
type queuesTable struct {
	*ui.Table
	named, placed bool
}

func queueTable(links []*slice.Link, all *api.SliceQueues, columns ...string) queuesTable {
	t := queuesTable{
		Table:  &ui.Table{},
		named:  slices.ContainsFunc(links, func(l *slice.Link) bool { return hasOwnName(*l) }),
		placed: slices.ContainsFunc(all.Queues, func(q api.QueueTraffic) bool { return q.Host != "" }),
	}
	t.Columns = append(append(t.about("LINK", "HOST", "FROM", "TO", "CLASS"), columns...), "BACKLOG")
	return t
}

func (t queuesTable) about(link, host string, cells ...string) []string {
	if t.placed {
		cells = slices.Insert(cells, 0, host)
	}
	if t.named {
		cells = slices.Insert(cells, 0, link)
	}
	return cells
}

func (t queuesTable) add(q api.QueueTraffic, cells ...string) {
	cells = append(t.about(q.Link, q.Host, q.From, q.To, q.Class), cells...)
	t.Row(append(cells, backlog(q.Backlog))...)
}

func total(n uint64) string { return strconv.FormatUint(n, 10) }

func backlog(waiting api.Traffic) string {
	if waiting.Frames == 0 {
		return "0"
	}
	return wording.Count(int(waiting.Frames), "frame") + ", " + ui.Bytes(int64(waiting.Bytes))
}
