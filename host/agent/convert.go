package agent

import (
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/host/wire"
)

// specOf gives the container of a planned sliver.
func specOf(s plan.Sliver) sliver.Spec {
	return sliver.Spec{
		ID: sliver.ID(s.NodeID), SliceName: s.SliceName, Digest: s.Digest, Hostname: s.Hostname, Rootfs: s.Rootfs, Command: s.Command,
		Env: s.Env, Files: s.Files, Binds: s.Binds, Beneath: s.Beneath, CPU: s.CPU, Memory: s.Memory, PIDs: s.PIDs, Sysctls: s.Sysctls,
		Notes: s.Notes,
	}
}

// nodeNetOf gives what is configured within a node's network namespace.
func nodeNetOf(n plan.NodeNet) wire.Node {
	w := wire.Node{Router: n.Router, Sysctls: n.Sysctls, Loopbacks: n.Loopbacks, Routes: n.Routes}
	for _, i := range n.Interfaces {
		w.Interfaces = append(w.Interfaces, wire.Interface(i))
	}
	return w
}
