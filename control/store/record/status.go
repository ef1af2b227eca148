package record

import (
	"slices"

	"github.com/pergola-net/pergola/model/slice"
)

// Report is what one host reports of a slice.
type Report struct {
	Host string
	Lost bool // the host is not alive: its report may be outdated
	slice.Status
}

// Merge makes one status of the reports of several hosts: the oldest generation counts, and all must have settled. spec
// is the slice where its nodes are placed on hosts, else nil.
func Merge(name string, spec *slice.Slice, reports []Report) slice.Status {
	sum := slice.Status{
		Slice: name, Settled: len(reports) > 0,
		Nodes: map[string]slice.NodeStatus{}, Links: map[string]slice.LinkStatus{},
	}
	placed := placement(spec)
	first := true
	for i := range reports {
		r := &reports[i]
		if r.Lost && spec != nil && !Wants(spec, r.Host) {
			continue // what it still holds is removed when it returns
		}
		if first || r.Generation < sum.Generation {
			sum.Generation = r.Generation
		}
		first = false
		sum.Settled = sum.Settled && r.Settled && !r.Lost
		sum.Done += r.Done
		sum.Total += r.Total
		sum.Errors = append(sum.Errors, r.Errors...)
		mergeNodes(sum.Nodes, r, placed)
		mergeLinks(sum.Links, r)
	}
	for node, host := range placed {
		at := slices.IndexFunc(reports, func(r Report) bool { return r.Host == host })
		if at >= 0 && reports[at].Lost {
			sum.Nodes[node] = lostNode(sum.Nodes[node], host)
		}
	}
	return sum
}

// placement gives the host of each node that is placed.
func placement(spec *slice.Slice) map[string]string {
	placed := map[string]string{}
	if spec == nil {
		return placed
	}
	for i := range spec.Nodes {
		if n := &spec.Nodes[i]; n.Host != "" {
			placed[n.Name] = n.Host
		}
	}
	return placed
}

// mergeNodes adds a host's report of nodes. Of several reports of one node, that of the node's host counts. A switch is
// on many hosts: a report of a failure counts before others, and one of a lost host last.
func mergeNodes(nodes map[string]slice.NodeStatus, r *Report, placed map[string]string) {
	for name, node := range r.Nodes {
		if node.Host == "" && len(placed) > 0 {
			node.Host = r.Host
		}
		if r.Lost {
			node = lostNode(node, r.Host)
		}
		have, ok := nodes[name]
		if owner := placed[name]; !ok || owner == r.Host ||
			owner == "" && weight(node.Phase) > weight(have.Phase) {
			nodes[name] = node
		}
	}
}

// weight orders the phases that hosts report of one switch: the highest counts.
func weight(p slice.Phase) int {
	switch p {
	case slice.Lost:
		return 0
	case slice.Failed:
		return 2
	default:
		return 1
	}
}

func lostNode(node slice.NodeStatus, host string) slice.NodeStatus {
	node.Phase, node.Host, node.PID, node.FastPath, node.NoIPv6 = slice.Lost, host, 0, "", ""
	node.Message = "host " + host + " does not answer"
	return node
}

// mergeLinks adds a host's report of links. A link between hosts is up where all its ends are.
func mergeLinks(links map[string]slice.LinkStatus, r *Report) {
	for name, link := range r.Links {
		link.Up = link.Up && !r.Lost
		if have, ok := links[name]; ok {
			link.Up = link.Up && have.Up
			for end, shape := range have.Shapes {
				if link.Shapes == nil {
					link.Shapes = map[string]slice.Shape{}
				}
				link.Shapes[end] = shape
			}
		}
		links[name] = link
	}
}
