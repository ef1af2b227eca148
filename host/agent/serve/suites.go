package serve

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/routing"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/wording"
)

// haveSuites checks that the routing suites are installed which this host's nodes take from the machine. All that are
// missing are one error, with one line to install them.
func (s *Server) haveSuites(at plan.Place, spec *slice.Slice) error {
	nodes := map[slice.Daemon]int{}
	for i := range spec.Nodes {
		n := &spec.Nodes[i]
		fromMachine := n.Rootfs.Kind == "" || n.Rootfs.Kind == slice.RootfsHost
		if n.Routing != nil && fromMachine && (s.alone || at.Owns(n)) {
			nodes[n.Routing.Daemon]++
		}
	}
	var missing, packages []string
	for _, d := range slices.Sorted(maps.Keys(nodes)) {
		programs, pack := routing.Suite(d)
		if len(programs) == 0 || s.machine.Runtime.Installed(programs...) {
			continue
		}
		missing = append(missing, fmt.Sprintf("%s for %s (no %s)", pack, wording.Count(nodes[d], "node"),
			programs[0]))
		packages = append(packages, pack)
	}
	if len(missing) == 0 {
		return nil
	}
	return errors.New("not installed: " + strings.Join(missing, "; ") + "\ninstall: apt-get install " +
		strings.Join(packages, " "))
}
