package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pergola-net/pergola/model/slice"
)

// PutStatus stores what a host reports of a slice. It fails with ErrNotFound when the slice is no more.
func (s *Store) PutStatus(ctx context.Context, host string, st slice.Status) error {
	s.memory.said(host, st)
	data, err := pack(st)
	if err != nil {
		return fmt.Errorf("encode status of slice %s: %w", st.Slice, err)
	}
	exists := clientv3.Compare(clientv3.CreateRevision(s.key("slices", st.Slice)), ">", 0)
	ok, err := s.commit(ctx, []clientv3.Cmp{exists}, clientv3.OpPut(s.key("status", st.Slice, host), string(data)))
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("%s: %w", st.Slice, ErrNotFound)
	}
	return nil
}

// SettledBy reports whether it was a host's last report of a slice that made it settled: of all that reported, exactly one is told so.
func (s *Store) SettledBy(ctx context.Context, host, name string) (bool, error) {
	own, err := s.get(ctx, s.key("status", name, host))
	if err != nil || len(own.Kvs) == 0 {
		return false, err
	}
	at := clientv3.WithRev(own.Kvs[0].ModRevision)
	got, err := s.snapshot(ctx, clientv3.OpGet(s.key("status", name, ""), clientv3.WithPrefix(), at), clientv3.OpGet(s.key("slices", name), at))
	if err != nil || len(got[1]) == 0 {
		return false, err
	}
	record, err := s.decodeRecord(ctx, got[1][0])
	if err != nil {
		return false, err
	}
	settled := map[string]bool{}
	for _, h := range record.Hosts { // who never said anything counts too
		settled[h] = false
	}
	for _, kv := range got[0] {
		var st slice.Status
		if err := unpack(kv.Value, &st); err != nil {
			return false, fmt.Errorf("decode status %s: %w", kv.Key, err)
		}
		settled[strings.TrimPrefix(string(kv.Key), s.key("status", name, ""))] = st.Settled && st.Generation == record.Generation
	}
	for _, done := range settled {
		if !done {
			return false, nil
		}
	}
	return true, nil
}

// report is what one host says.
type report struct {
	host string
	lost bool // the host is not alive: what it said may not be so any more
	slice.Status
}

// Status gives what the hosts report of a slice, as one; the zero value but for the name where none does yet. Nodes of hosts that
// are lost have the phase Lost.
func (s *Store) Status(ctx context.Context, name string) (slice.Status, error) {
	return recall(ctx, s, func() (slice.Status, error) { return s.readStatus(ctx, name) }, func(m *memory) (slice.Status, error) { return m.statusLocked(name) })
}

func (s *Store) readStatus(ctx context.Context, name string) (slice.Status, error) {
	got, err := s.snapshot(ctx,
		clientv3.OpGet(s.key("status", name, ""), clientv3.WithPrefix()),
		clientv3.OpGet(s.key("hosts", ""), clientv3.WithPrefix(), clientv3.WithKeysOnly()),
		clientv3.OpGet(s.key("alive", ""), clientv3.WithPrefix(), clientv3.WithKeysOnly()))
	if err != nil {
		return slice.Status{}, err
	}
	known, living := s.byName("hosts", got[1]), s.byName("alive", got[2])
	lost := func(host string) bool { return known[host] != nil && living[host] == nil }
	var reports []report
	for _, kv := range got[0] {
		r := report{host: strings.TrimPrefix(string(kv.Key), s.key("status", name, ""))}
		if err := unpack(kv.Value, &r.Status); err != nil {
			return slice.Status{}, fmt.Errorf("decode status of slice %s on host %s: %w", name, r.host, err)
		}
		r.lost = lost(r.host)
		reports = append(reports, r)
	}
	if len(known) == 0 { // one machine
		return merge(name, nil, reports), nil
	}
	spec, record, err := s.Slice(ctx, name)
	if errors.Is(err, ErrCorrupt) || errors.Is(err, ErrNotFound) || record.Going {
		return merge(name, nil, reports), nil
	}
	if err != nil {
		return slice.Status{}, err
	}
	for _, host := range hostsOf(spec) { // who never said anything counts too
		if !slices.ContainsFunc(reports, func(r report) bool { return r.host == host }) {
			reports = append(reports, report{host: host, lost: lost(host)})
		}
	}
	return merge(name, spec, reports), nil
}

// merge makes one report of those of several hosts: the oldest generation counts, and all must have settled. spec is the slice where
// its nodes are placed on hosts, else nil.
func merge(name string, spec *slice.Slice, reports []report) slice.Status {
	sum := slice.Status{Slice: name, Settled: len(reports) > 0, Nodes: map[string]slice.NodeStatus{}, Links: map[string]slice.LinkStatus{}}
	placed := placement(spec)
	first := true
	for i := range reports {
		r := &reports[i]
		if r.lost && spec != nil && !wanted(spec, r.host) {
			continue // what it has left is nobody's any more, and cleared away when it returns
		}
		if first || r.Generation < sum.Generation {
			sum.Generation = r.Generation
		}
		first = false
		sum.Settled = sum.Settled && r.Settled && !r.lost
		sum.Done += r.Done
		sum.Total += r.Total
		sum.Errors = append(sum.Errors, r.Errors...)
		mergeNodes(sum.Nodes, r, placed)
		mergeLinks(sum.Links, r)
	}
	for node, host := range placed {
		at := slices.IndexFunc(reports, func(r report) bool { return r.host == host })
		if at >= 0 && reports[at].lost {
			sum.Nodes[node] = lostNode(sum.Nodes[node], host)
		}
	}
	return sum
}

// placement says on which host each node is wanted; of those that are placed.
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

// mergeNodes adds what a host says of nodes. Of several that speak of one node, the host counts on which it is wanted; of a switch, which is
// on many, who has trouble, and rather who is there than who is lost.
func mergeNodes(nodes map[string]slice.NodeStatus, r *report, placed map[string]string) {
	for name, node := range r.Nodes {
		if node.Host == "" && len(placed) > 0 {
			node.Host = r.host
		}
		if r.lost {
			node = lostNode(node, r.host)
		}
		have, ok := nodes[name]
		if owner := placed[name]; !ok || owner == r.host || owner == "" && weight(node.Phase) > weight(have.Phase) {
			nodes[name] = node
		}
	}
}

// weight says which of several phases of one switch is told.
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
	node.Phase, node.Host, node.PID, node.FastPath = slice.Lost, host, 0, ""
	node.Message = "host " + host + " does not answer"
	return node
}

// mergeLinks adds what a host says of links. A link between hosts is up where all its ends are.
func mergeLinks(links map[string]slice.LinkStatus, r *report) {
	for name, link := range r.Links {
		link.Up = link.Up && !r.lost
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
