package observe

import (
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/reconcile"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/host/wire"
)

// addPrograms adds packet programs that run. They do not stand on their ports: what becomes of those is amended.
func (s *Snapshot) addPrograms(running map[string]wire.ProgramState, ports map[string]wire.PortState) {
	devices := make(map[int]string, len(ports))
	for name, p := range ports {
		devices[p.Index] = name
	}
	for name, is := range running {
		id, ok := plan.ParseProgramName(name)
		if !ok {
			continue // not ours
		}
		at := make([]string, len(is.Ports))
		for i, index := range is.Ports {
			if at[i] = devices[index]; at[i] == "" && index != 0 {
				at[i] = "gone" // to be taken out of the program, also where no port is wanted there
			}
		}
		s.Programs[sliver.ID(id)] = is
		digest := plan.ProgramDigest(is.Digest, at)
		if is.CutOff { // to be set once more
			digest = ""
		}
		s.add(reconcile.Observed{
			Key:    reconcile.Key{Kind: plan.KindProgram, Slice: id.Slice, Name: id.Node},
			Digest: digest, Broken: is.Digest == "",
			Needs: []reconcile.Key{
				plan.HostNetKey, {Kind: plan.KindSliver, Slice: id.Slice, Name: id.Node},
			},
		})
	}
}
