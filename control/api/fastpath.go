package api

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// FastPath is what the fast path does for a slice; docs/fastpath.md explains the words.
type FastPath struct {
	Routers []RouterFastPath `json:"routers"` // by name
	Memory  FastPathMemory   `json:"memory"`  // of the machine: all slices share it; of the machines that have some of the routers, the sum
	Silent
}

// RouterFastPath is what the fast path does for one router.
type RouterFastPath struct {
	Node       string         `json:"node"`
	IPv4       FamilyFastPath `json:"ipv4"`
	IPv6       FamilyFastPath `json:"ipv6"`
	Routes     int            `json:"routes"`     // mirrored, of both families
	Neighbours int            `json:"neighbours"` // mirrored, of both families
	// Punts counts the frames that the fast path handed to the router's kernel, by reason.
	Punts map[string]uint64 `json:"punts,omitempty"`
	// Interfaces are those by which the kernel takes what comes in, though the router is on the fast path.
	Interfaces []InterfaceFastPath `json:"interfaces,omitempty"`
	// Resyncs counts how often the mirror was in doubt and compared everything with the kernel.
	Resyncs uint64 `json:"resyncs"`
	// Trouble says what keeps the router from being mirrored, for a person.
	Trouble string `json:"trouble,omitempty"`
}

// FamilyFastPath says whether the frames of an address family are walked past a router's kernel, and if not, why.
type FamilyFastPath struct {
	On  bool     `json:"on"`
	Why []string `json:"why,omitempty"` // for a person
}

// InterfaceFastPath says why frames of an address family that come in by an interface are not walked past a router's kernel.
type InterfaceFastPath struct {
	Interface string   `json:"interface"`
	IPv4      []string `json:"ipv4,omitempty"` // for a person
	IPv6      []string `json:"ipv6,omitempty"`
}

// FastPathMemory is how much of the memory of the fast path is in use.
type FastPathMemory struct {
	Routers    Share `json:"routers"`
	Nexthops   Share `json:"nexthops"`
	Neighbours Share `json:"neighbours"`
	Bytes      Share `json:"bytes"` // of the routes
}

// Share is a part of a whole.
type Share struct {
	Used  int64 `json:"used"`
	Bound int64 `json:"bound"`
}

// Verification is the outcome of a comparison of the mirror with the routers' kernels.
type Verification struct {
	Routers     []string     `json:"routers"` // that were compared
	Differences []Difference `json:"differences"`
	Silent
}

// Difference is one place where the mirror and a router's kernel do not say the same.
type Difference struct {
	Node   string `json:"node"`
	What   string `json:"what"`   // such as 192.0.2.0/24, or neighbour 192.0.2.1
	Kernel string `json:"kernel"` // what the router's kernel says
	Mirror string `json:"mirror"` // what the programs of the fast path find
}

// SliceTraffic is what went through the interfaces of a slice's nodes.
type SliceTraffic struct {
	Interfaces []InterfaceTraffic `json:"interfaces"` // in the order of their names
	// Tunnels are those to other hosts, as each of both has them.
	Tunnels []TunnelTraffic `json:"tunnels,omitempty"`
	// Punts counts the frames that the fast path handed to routers' kernels, by node and reason.
	Punts map[string]map[string]uint64 `json:"punts"`
	Silent
}

// TunnelTraffic is what went through a tunnel, as one of its hosts counts it: frames of the slice, without the tunnel's headers.
type TunnelTraffic struct {
	To       string  `json:"to"`   // the interface at the other end, or a switch's or LAN's part: b:eth1, lan at h2
	Port     string  `json:"port"` // the device that stands for it on the host
	Host     string  `json:"host,omitempty"`
	Received Traffic `json:"received"` // out of the tunnel
	Sent     Traffic `json:"sent"`     // to the tunnel, also frames that it did not take
	// Dropped counts frames by reason: of those received, those that went no further, and of a switch or a LAN those that the tunnel did not
	// take. Of a link of two nodes, the latter are counted at the interface that sent them.
	Dropped map[string]uint64 `json:"dropped,omitempty"`
}

// InterfaceTraffic is what went through an interface of a node. A GSO super-frame counts as one frame of its own length.
type InterfaceTraffic struct {
	Node      string  `json:"node"`
	Interface string  `json:"interface"`
	Host      string  `json:"host,omitempty"` // that the node runs on; empty where the server is in no cluster
	Received  Traffic `json:"received"`       // by the node, walked frames included
	Sent      Traffic `json:"sent"`
	// WalkedIn and WalkedOut are the parts of Received and Sent that passed by the node's kernel: what `ip -s link` in
	// the node does not show.
	WalkedIn  Traffic           `json:"walked_in"`
	WalkedOut Traffic           `json:"walked_out"`
	Dropped   map[string]uint64 `json:"dropped,omitempty"` // frames from the node, and those behind a queue that led to it, by reason
}

// Traffic counts frames, and their bytes with Ethernet headers.
type Traffic struct {
	Frames uint64 `json:"frames"`
	Bytes  uint64 `json:"bytes"`
}

func (s *server) registerFastPath(a huma.API) {
	huma.Get(a, "/v1/slices/{slice}/fastpath", s.fastPath, describe("fastpath", "What the fast path does for a slice"))
	huma.Get(a, "/v1/slices/{slice}/nodes/{node}/fastpath", s.routerFastPath, describe("node-fastpath", "What the fast path does for a router"))
	huma.Get(a, "/v1/slices/{slice}/traffic", s.traffic, describe("traffic", "What went through the interfaces of a slice"))
	huma.Post(a, "/v1/slices/{slice}/verify", s.verify, describe("verify", "Compare the fast path's mirror with the routers' kernels"))
	huma.Post(a, "/v1/slices/{slice}/nodes/{node}/verify", s.verifyNode, describe("verify-node", "Compare the mirror with one router's kernel"))
}

func (s *server) fastPath(ctx context.Context, in *PartInput) (*body[FastPath], error) {
	if _, _, err := s.Controller.Slice(ctx, in.Slice); err != nil {
		return nil, problem(err)
	}
	all := FastPath{Routers: []RouterFastPath{}}
	own := func(ctx context.Context) (FastPath, error) { return s.Agent.FastPath(ctx, in.Slice) }
	silent, err := gather(ctx, s, *in, http.MethodGet, "fastpath", own, func(f FastPath) {
		all.Routers = append(all.Routers, f.Routers...)
		if len(f.Routers) > 0 || s.Cluster == nil { // other machines have nothing to do with it
			all.Memory.add(f.Memory)
		}
	})
	slices.SortFunc(all.Routers, func(a, b RouterFastPath) int { return strings.Compare(a.Node, b.Node) })
	all.Silent = silent
	return answer(all, err)
}

func (m *FastPathMemory) add(other FastPathMemory) {
	m.Routers.add(other.Routers)
	m.Nexthops.add(other.Nexthops)
	m.Neighbours.add(other.Neighbours)
	m.Bytes.add(other.Bytes)
}

func (s *Share) add(other Share) {
	s.Used += other.Used
	s.Bound += other.Bound
}

func (s *server) routerFastPath(ctx context.Context, in *NodeInput) (*body[RouterFastPath], error) {
	if _, _, err := s.Controller.Node(ctx, in.Slice, in.Node); err != nil {
		return nil, problem(err)
	}
	f, err := s.Agent.FastPath(ctx, in.Slice)
	if err != nil {
		return nil, problem(err)
	}
	for _, r := range f.Routers {
		if r.Node == in.Node {
			return &body[RouterFastPath]{r}, nil
		}
	}
	return nil, huma.Error404NotFound(in.Node + " is no router: the fast path passes by the kernels of routers alone")
}

func (s *server) traffic(ctx context.Context, in *PartInput) (*body[SliceTraffic], error) {
	if _, _, err := s.Controller.Slice(ctx, in.Slice); err != nil {
		return nil, problem(err)
	}
	all := SliceTraffic{Interfaces: []InterfaceTraffic{}, Punts: map[string]map[string]uint64{}}
	own := func(ctx context.Context) (SliceTraffic, error) {
		t, err := s.Agent.Traffic(ctx, in.Slice)
		for i := range t.Interfaces {
			if s.Cluster != nil {
				t.Interfaces[i].Host = s.Cluster.Self()
			}
		}
		for i := range t.Tunnels {
			if s.Cluster != nil {
				t.Tunnels[i].Host = s.Cluster.Self()
			}
		}
		return t, err
	}
	silent, err := gather(ctx, s, *in, http.MethodGet, "traffic", own, func(t SliceTraffic) {
		all.Interfaces = append(all.Interfaces, t.Interfaces...)
		all.Tunnels = append(all.Tunnels, t.Tunnels...)
		maps.Copy(all.Punts, t.Punts)
	})
	slices.SortStableFunc(all.Interfaces, func(a, b InterfaceTraffic) int { return strings.Compare(a.Node, b.Node) })
	all.Silent = silent
	return answer(all, err)
}

func (s *server) verify(ctx context.Context, in *PartInput) (*body[Verification], error) {
	if _, _, err := s.Controller.Slice(ctx, in.Slice); err != nil {
		return nil, problem(err)
	}
	all := Verification{Routers: []string{}, Differences: []Difference{}}
	own := func(ctx context.Context) (Verification, error) { return s.Agent.Verify(ctx, in.Slice) }
	silent, err := gather(ctx, s, *in, http.MethodPost, "verify", own, func(v Verification) {
		all.Routers = append(all.Routers, v.Routers...)
		all.Differences = append(all.Differences, v.Differences...)
	})
	slices.Sort(all.Routers)
	slices.SortStableFunc(all.Differences, func(a, b Difference) int { return strings.Compare(a.Node, b.Node) })
	all.Silent = silent
	return answer(all, err)
}

func (s *server) verifyNode(ctx context.Context, in *NodeInput) (*body[Verification], error) {
	if _, _, err := s.Controller.Node(ctx, in.Slice, in.Node); err != nil {
		return nil, problem(err)
	}
	v, err := s.Agent.Verify(ctx, in.Slice, in.Node)
	return answer(v, err)
}

func answer[T any](v T, err error) (*body[T], error) {
	if err != nil {
		return nil, problem(err)
	}
	return &body[T]{v}, nil
}
