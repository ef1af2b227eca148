package serve

import (
	"context"

	"github.com/pergola-net/pergola/control/api"
)

// Volumes lists the volumes that are on this host.
func (s *Server) Volumes(context.Context) ([]api.Volume, error) {
	have, err := s.machine.Runtime.Volumes()
	all := make([]api.Volume, 0, len(have))
	for _, v := range have {
		all = append(all, api.Volume{Slice: v.Slice, Node: v.Node, Name: v.Name, Bytes: v.Bytes})
	}
	return all, err
}

// RemoveVolumes removes the volumes of a slice that is not on this host.
func (s *Server) RemoveVolumes(_ context.Context, name string) error {
	return s.machine.Runtime.RemoveVolumes(name)
}
