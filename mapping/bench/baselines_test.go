package bench_test

import (
	"cmp"
	"errors"
	"slices"

	"github.com/pergola-net/pergola/mapping"
	inuse "github.com/pergola-net/pergola/model/mapping"
)

// greedy is what the controller does today: model/mapping places the nodes by what hosts have and what their interfaces
// carry, and links take the shortest way that has the bandwidth.
func greedy(s mapping.Substrate, r mapping.Request) (mapping.Mapping, error) {
	around := map[string]float64{}
	for _, t := range s.Trunks {
		around[t.A] += t.Bandwidth - t.Used
		around[t.B] += t.Bandwidth - t.Used
	}
	var sub inuse.Substrate
	for _, h := range s.Hosts {
		sub.Hosts = append(sub.Hosts, inuse.Host{
			Name:     h.Name,
			Capacity: inuse.Resources{inuse.Cores: h.Capacity["cores"]},
			Used:     inuse.Resources{inuse.Cores: h.Used["cores"]},
			Rate:     max(uint64(around[h.Name]), 1),
		})
	}
	req := inuse.Request{Strategy: inuse.Spread}
	for _, n := range r.Nodes {
		node := inuse.Node{Name: n.Name, Demand: inuse.Resources{inuse.Cores: n.Demand["cores"]}}
		if r.PerHost == 1 {
			node.Ports = []string{"one"} // of which a host has one
		}
		req.Nodes = append(req.Nodes, node)
	}
	for _, l := range r.Links {
		req.Links = append(req.Links, inuse.Link{Nodes: []string{l.A, l.B}, Rate: uint64(l.Bandwidth)})
	}
	hosts, err := inuse.Greedy(sub, req, nil)
	if err != nil {
		return mapping.Mapping{}, err
	}
	return shortest(s, r, hosts)
}

// nodeRanking is NRM, a heuristic of two stages: hosts and nodes by the product of cores and the bandwidth around, the
// greatest on the greatest; then links, each by the first of its ten shortest ways that has the bandwidth. It is here
// to see that scenarios are like Virne's, for which the figures of this heuristic are published.
func nodeRanking(s mapping.Substrate, r mapping.Request) (mapping.Mapping, error) {
	around, asks := map[string]float64{}, map[string]float64{}
	for _, t := range s.Trunks {
		around[t.A] += t.Bandwidth - t.Used
		around[t.B] += t.Bandwidth - t.Used
	}
	for _, l := range r.Links {
		asks[l.A] += l.Bandwidth
		asks[l.B] += l.Bandwidth
	}
	room := func(h mapping.Host) float64 { return h.Capacity["cores"] - h.Used["cores"] }
	hosts, nodes := slices.Clone(s.Hosts), slices.Clone(r.Nodes)
	slices.SortStableFunc(hosts, func(a, b mapping.Host) int {
		return cmp.Compare(room(b)*around[b.Name], room(a)*around[a.Name])
	})
	slices.SortStableFunc(nodes, func(a, b mapping.Node) int {
		return cmp.Compare(b.Demand["cores"]*asks[b.Name], a.Demand["cores"]*asks[a.Name])
	})
	at := map[string]string{}
	for _, n := range nodes {
		i := slices.IndexFunc(hosts, func(h mapping.Host) bool { return room(h) >= n.Demand["cores"] })
		if i < 0 {
			return mapping.Mapping{}, errors.New("no host")
		}
		at[n.Name] = hosts[i].Name
		hosts = slices.Delete(hosts, i, i+1)
	}
	return ofTen(s, r, at)
}

// shortest routes links one after the other, each by the fewest hops over trunks that have the bandwidth.
func shortest(s mapping.Substrate, r mapping.Request, at map[string]string) (mapping.Mapping, error) {
	m := mapping.Mapping{Hosts: at, Paths: make([][]int, len(r.Links))}
	left, of := make([]float64, len(s.Trunks)), map[string][]int{}
	for i, t := range s.Trunks {
		left[i] = t.Bandwidth - t.Used
		of[t.A], of[t.B] = append(of[t.A], i), append(of[t.B], i)
	}
	for l, link := range r.Links {
		from, to := at[link.A], at[link.B]
		came := map[string]int{from: -1}
		queue := []string{from}
		for len(queue) > 0 && !has(came, to) {
			here := queue[0]
			queue = queue[1:]
			for _, t := range of[here] {
				there := across(s.Trunks[t], here)
				if left[t] >= link.Bandwidth && !has(came, there) {
					came[there] = t
					queue = append(queue, there)
				}
			}
		}
		if !has(came, to) {
			return mapping.Mapping{}, errors.New("no path")
		}
		for here := to; here != from; here = across(s.Trunks[came[here]], here) {
			m.Paths[l] = append(m.Paths[l], came[here])
			left[came[here]] -= link.Bandwidth
		}
		slices.Reverse(m.Paths[l])
	}
	return m, nil
}

func has(m map[string]int, name string) bool {
	_, known := m[name]
	return known
}

func across(t mapping.Trunk, from string) string {
	if t.A == from {
		return t.B
	}
	return t.A
}

// ofTen routes links one after the other, each by the first of its ten shortest ways that has the bandwidth.
func ofTen(s mapping.Substrate, r mapping.Request, at map[string]string) (mapping.Mapping, error) {
	m := mapping.Mapping{Hosts: at, Paths: make([][]int, len(r.Links))}
	left, of := make([]float64, len(s.Trunks)), map[string][]int{}
	for i, t := range s.Trunks {
		left[i] = t.Bandwidth - t.Used
		of[t.A], of[t.B] = append(of[t.A], i), append(of[t.B], i)
	}
	for l, link := range r.Links {
		for _, path := range ways(s, of, at[link.A], at[link.B], 10) {
			if !slices.ContainsFunc(path, func(t int) bool { return left[t] < link.Bandwidth }) {
				m.Paths[l] = path
				break
			}
		}
		if m.Paths[l] == nil {
			return mapping.Mapping{}, errors.New("no path")
		}
		for _, t := range m.Paths[l] {
			left[t] -= link.Bandwidth
		}
	}
	return m, nil
}

// ways lists the shortest ways without a loop, whatever bandwidth they have.
func ways(s mapping.Substrate, of map[string][]int, from, to string, most int) (found [][]int) {
	hops := map[string]int{to: 0}
	for queue := []string{to}; len(queue) > 0; queue = queue[1:] {
		for _, t := range of[queue[0]] {
			if there := across(s.Trunks[t], queue[0]); !has(hops, there) {
				hops[there] = hops[queue[0]] + 1
				queue = append(queue, there)
			}
		}
	}
	var path []int
	been := map[string]bool{}
	var follow func(at string, length int)
	follow = func(at string, length int) {
		if at == to && length == 0 {
			found = append(found, slices.Clone(path))
		}
		if at == to || hops[at] > length || len(found) == most {
			return
		}
		been[at] = true
		for _, t := range of[at] {
			if there := across(s.Trunks[t], at); !been[there] {
				path = append(path, t)
				follow(there, length-1)
				path = path[:len(path)-1]
			}
		}
		delete(been, at)
	}
	for length := hops[from]; len(found) < most && length < len(s.Hosts); length++ {
		follow(from, length)
	}
	return found
}
