package sockets

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/model/unit"
	"github.com/pergola-net/pergola/sdk/message"
)

// What a request can have at most.
const (
	maxQueues = 1024
	maxPorts  = 64
)

// takes refuses a request that has what is for another one: a spelling mistake would change nothing, silently.
func takes(r message.Request) error {
	filters := r.Do == message.DoChangeFilters
	claims := r.Do == message.DoReserve || r.Do == message.DoRelease
	for _, field := range []struct {
		name        string
		there, here bool
	}{
		{"delete", len(r.Delete) > 0, filters},
		{"insert", len(r.Insert) > 0, filters || r.Do == message.DoReplaceFilters},
		{"queues", len(r.Queues) > 0, r.Do == message.DoSetQueues},
		{"interface", r.Interface != "", r.Do == message.DoSetQueues},
		{"ports", len(r.Ports) > 0, claims},
		{"bandwidth", len(r.Bandwidth) > 0, r.Do == message.DoReserve},
		{"interfaces", len(r.Interfaces) > 0, r.Do == message.DoRelease},
	} {
		if field.there && !field.here {
			return &requestError{fmt.Sprintf("%s takes no %s", r.Do, field.name), "see docs/slowpath.md"}
		}
	}
	switch most := max(len(r.Ports), len(r.Bandwidth), len(r.Interfaces)); {
	case most > maxPorts:
		return &requestError{fmt.Sprintf("%d are too many: at most %d", most, maxPorts), ""}
	case len(r.Queues) > maxQueues:
		return &requestError{fmt.Sprintf("%d queues are too many: at most %d", len(r.Queues), maxQueues), ""}
	}
	return nil
}

// setQueues changes queues of an interface, adds some, or removes some.
func (k *socket) setQueues(ctx context.Context, node string, r message.Request) ([]answer, error) {
	if r.Interface == "" || len(r.Queues) == 0 {
		return nil, &requestError{"nothing to set",
			`such as {"id": 1, "do": "set_queues", "interface": "eth1", "queues": [{"queue": 1, ` +
				`"share": 3}]}`}
	}
	patches := make([]api.QueuePatch, len(r.Queues))
	for i, q := range r.Queues {
		p := api.QueuePatch{Number: q.Queue, Share: q.Share, Rate: asRate(q.Rate), Reserve: asRate(q.Reserve),
			Priority: q.Priority, Remove: q.Remove}
		if q.Length != "" {
			length, err := unit.ParseLength(q.Length)
			if err != nil {
				return nil, &requestError{fmt.Sprintf("queue %d: %v", q.Queue, err), ""}
			}
			p.Length = &length
		}
		patches[i] = p
	}
	return one(struct{}{}, taken(k.sockets.nodes.SetQueues(ctx, k.Slice, node, r.Interface, patches)))
}

func asRate(bits *uint64) *unit.Rate {
	if bits == nil {
		return nil
	}
	r := unit.Rate(*bits)
	return &r
}

func (k *socket) reservations(node string) ([]answer, error) {
	ports, bandwidth, err := k.sockets.nodes.NodeReserved(k.Slice, node)
	all := message.Reservations{Ports: []string{}, Bandwidth: bandwidth}
	for _, p := range ports {
		all.Ports = append(all.Ports, p.String())
	}
	return one(all, err)
}

// reserve reserves or releases. The answer has nothing in it: with it, all is stored, and the host makes it so at once
// after that.
func (k *socket) reserve(ctx context.Context, node string, r message.Request) ([]answer, error) {
	if len(r.Ports)+len(r.Bandwidth)+len(r.Interfaces) == 0 {
		return nil, &requestError{
			"nothing to " + r.Do,
			`such as {"id": 1, "do": "reserve", "ports": ["tcp/8080"]}`,
		}
	}
	change := api.ReservationChange{Reserve: r.Ports, Bandwidth: make(map[string]unit.Rate)}
	for name, bits := range r.Bandwidth {
		if change.Bandwidth[name] = unit.Rate(bits); bits == 0 {
			return nil, &requestError{
				"a bandwidth of 0 reserves nothing",
				"release it: see docs/slowpath.md",
			}
		}
	}
	if r.Do == message.DoRelease {
		change.Reserve, change.Release = nil, r.Ports
		for _, name := range r.Interfaces {
			change.Bandwidth[name] = 0
		}
	}
	return one(struct{}{}, taken(k.sockets.nodes.Reserve(ctx, k.Slice, node, change)))
}

// takenError is a conflict with what somebody else has.
type takenError struct{ *api.Problem }

// taken tells conflicts of reservations from those of filters, which are the slice's own.
func taken(err error) error {
	var p *api.Problem
	if errors.As(err, &p) && p.Status == http.StatusConflict {
		return &takenError{p}
	}
	return err
}
