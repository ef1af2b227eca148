package resolve

import (
	"errors"
	"slices"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology/diagnostic"
)

// capAdd reads the capabilities that a node asks for. Those that all nodes have are not repeated.
func (r *resolver) capAdd(n *node) (names []string) {
	for i, text := range n.all.CapAdd {
		name, err := slice.ParseCapability(text)
		var refused *slice.CapabilityError
		if errors.As(err, &refused) {
			hint := refused.Do
			if refused.Why == "" {
				hint = diagnostic.Suggest(refused.Name, refused.All)
			}
			r.Add(n.at.At("cap_add").Item(i), hint, "%v", err)
		} else if !slice.HasCapability(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (r *resolver) devices(n *node) (all []slice.Device) {
	for i, text := range n.all.Devices {
		at := n.at.At("devices").Item(i)
		d, err := slice.ParseDevice(text)
		switch {
		case err != nil:
			r.Add(at, "write SOURCE, SOURCE:TARGET or SOURCE:TARGET:rw, such as /dev/kvm", "%v", err)
		case slices.ContainsFunc(all, func(o slice.Device) bool { return o.Target == d.Target }):
			r.Add(at, "", "two devices are %s", d.Target)
		default:
			all = append(all, d)
		}
	}
	return all
}
