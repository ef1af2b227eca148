package describe

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology/file"
)

// inOrder lists the links so that packet programs number their interfaces as they do: they do it in the order of the
// links in the file. Else the links stay in order of their names.
func inOrder(s *slice.Slice) []*slice.Link {
	before := map[string][]string{} // by link: those that stand before it
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.Program == nil {
			continue
		}
		last := ""
		for _, name := range n.Program.Interfaces {
			in := n.Interface(name)
			if in == nil {
				break // UDP ports follow
			}
			if last != "" {
				before[in.Link] = append(before[in.Link], last)
			}
			last = in.Link
		}
	}
	all := make([]*slice.Link, 0, len(s.Links))
	placed := map[string]bool{}
	var place func(l *slice.Link)
	place = func(l *slice.Link) {
		if placed[l.Name] {
			return
		}
		placed[l.Name] = true
		for _, name := range before[l.Name] {
			place(s.Link(name))
		}
		all = append(all, l)
	}
	for i := range s.Links {
		place(&s.Links[i])
	}
	return all
}

func (d *describer) link(l *slice.Link) file.Link {
	var out file.Link
	names := make([]string, len(l.Ends))
	for i, e := range l.Ends {
		names[i] = e.String()
		out.Ends = append(out.Ends, file.End(names[i]))
	}
	out.LAN = l.LAN && len(l.Ends) == 2
	byEnds := names[0] + "--lan"
	if !l.LAN {
		slices.Sort(names)
		byEnds = strings.Join(names, "--")
	}
	if l.Name != byEnds {
		out.Name = l.Name
	}
	tunnel(&out, l.Tunnel)
	shapes(&out, l)
	return out
}

func tunnel(out *file.Link, t slice.Tunnel) {
	if t.Kind != slice.EGRE {
		out.Tunnel = t.Kind
	}
	if t.DSCP {
		out.DSCP = file.DSCPCopy
	}
	switch t.StormControl {
	case 0:
	case slice.NoStormControl:
		out.StormControl = "off"
	default:
		out.StormControl = file.FrameRate(strconv.Itoa(t.StormControl) + "pps")
	}
}

// shapes writes what happens to frames: once, where it is the same in all directions.
func shapes(out *file.Link, l *slice.Link) {
	first := shape(l.Ends[0].Shape)
	same := true
	for _, e := range l.Ends[1:] {
		same = same && reflect.DeepEqual(first, shape(e.Shape))
	}
	if same {
		out.Shape = first
		return
	}
	for _, e := range l.Ends {
		if s := shape(e.Shape); !reflect.DeepEqual(s, file.Shape{}) {
			if out.From == nil {
				out.From = map[string]file.Shape{}
			}
			out.From[e.String()] = s
		}
	}
}

func shape(s slice.Shape) file.Shape {
	out := file.Shape{Queue: s.Queue}
	if s.Police.Rate != 0 {
		out.Police = &file.Policer{Rate: file.PolicedRate(file.RateOf(s.Police.Rate))}
		if s.Police.Burst != 0 {
			out.Police.Burst = file.Burst(bytesOf(s.Police.Burst))
		}
	}
	if s.Rate != 0 {
		out.Rate = file.RateOf(s.Rate)
	}
	if s.Delay != 0 {
		out.Delay = file.DurationOf(s.Delay)
	}
	if s.Jitter != 0 {
		out.Jitter = file.DurationOf(s.Jitter)
	}
	if s.Loss != 0 {
		out.Loss = file.Percent(strconv.FormatFloat(s.Loss, 'f', -1, 64) + "%")
	}
	for i, c := range s.Classes {
		if i == len(s.Classes)-1 && isAddedClass(c) {
			break
		}
		if out.Classes == nil {
			out.Classes = map[string]file.Class{}
		}
		out.Classes[c.Name] = class(c)
	}
	for number, q := range s.Queues {
		if out.Queues == nil {
			out.Queues = map[string]file.Queue{}
		}
		out.Queues[strconv.Itoa(number)] = queue(q)
	}
	return out
}

// isAddedClass reports a class that resolving adds where the file has none for all other frames.
func isAddedClass(c slice.Class) bool {
	return reflect.DeepEqual(c, slice.Class{Name: "default", Share: 1, Priority: slice.LastPriority})
}

func class(c slice.Class) file.Class {
	out := file.Class{Queue: c.Queue}
	if c.Share != 1 {
		out.Share = &c.Share
	}
	if c.Priority != slice.LastPriority {
		out.Priority = c.Priority
	}
	if c.Reserve != 0 {
		out.Reserve = file.RateOf(c.Reserve)
	}
	if c.Limit != 0 {
		out.Limit = file.RateOf(c.Limit)
	}
	for _, m := range c.Match {
		out.Match = append(out.Match, file.MatchOf(m))
	}
	return out
}

func queue(q slice.Queue) file.Queue {
	out := file.Queue{Share: &q.Share, Priority: q.Priority}
	if q.Length.Bytes != 0 || q.Length.Frames != 0 {
		out.Length = file.QueueLength(fmt.Sprint(q.Length))
	}
	if q.Rate != 0 {
		out.Rate = file.RateOf(q.Rate)
	}
	if q.Reserve != 0 {
		out.Reserve = file.RateOf(q.Reserve)
	}
	return out
}
