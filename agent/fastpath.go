package agent

import (
	"context"

	"github.com/pergola-net/pergola/api"
)

// FastPath says what the fast path does for the routers of a slice.
func (a *Agent) FastPath(context.Context, string) (api.FastPath, error) {
	return api.FastPath{Routers: []api.RouterFastPath{}}, nil
}

// Verify compares the fast path's mirror with the kernels of routers.
func (a *Agent) Verify(context.Context, string, ...string) (api.Verification, error) {
	return api.Verification{Routers: []string{}, Differences: []api.Difference{}}, nil
}

// Traffic gives what went through the interfaces of nodes.
func (a *Agent) Traffic(context.Context, string) ([]api.InterfaceTraffic, error) {
	return []api.InterfaceTraffic{}, nil
}
