package routing

import (
	_ "embed"
	"fmt"
	"path"

	"github.com/pergola-net/pergola/model/slice"
)

// frrScript starts FRR in a node, restarts what dies and applies changed files.
//
//go:embed frr.sh
var frrScript []byte

const (
	frrDir   = "/etc/frr"
	isisTag  = "pergola" // names the IS-IS instance
	frrPaths = 64        // equal-cost routes: what Debian's FRR and the kernel both take
)

// ScriptPath is where a node has the script that runs FRR. It is the one of Rendered.Files that is no configuration.
const ScriptPath = "/etc/pergola/frr"

// renderFRR writes the files as Debian's package has them: one integrated frr.conf, which vtysh loads, shows and
// writes, and the list of daemons.
func renderFRR(v view) (Rendered, error) {
	files, reload := v.node.Routing.Config, "reload-user"
	if len(files) == 0 {
		files = map[string][]byte{"frr.conf": frrConfig(v), "daemons": frrDaemons(frrNeeds(v))}
		reload = "reload"
	}
	all, err := filesIn(frrDir, completeFRR(files))
	if err != nil {
		return Rendered{}, err
	}
	return Rendered{
		Files:   append(all, slice.File{Path: ScriptPath, Mode: 0o755, Data: frrScript}),
		Command: []string{ScriptPath, "start"},
		Reload:  [][]string{{ScriptPath, reload}},
		Note:    []string{ScriptPath, "note"},
	}, nil
}

// frrNeeds lists the daemons beside zebra that the node's protocols need.
func frrNeeds(v view) []string {
	var needs []string
	need := func(daemon string, proto slice.Protocol, ok bool) {
		if ok && v.node.Routing.Speaks(proto) {
			needs = append(needs, daemon)
		}
	}
	need("bgpd", slice.BGP, true)
	need("ospfd", slice.OSPF, v.speaks(false))
	need("ospf6d", slice.OSPF, v.speaks(true))
	need("isisd", slice.ISIS, true)
	need("ripd", slice.RIP, v.speaks(false))
	need("ripngd", slice.RIP, v.speaks(true))
	if len(v.node.Routing.Static) > 0 {
		needs = append(needs, "staticd")
	}
	return needs
}

// frrConfig writes frr.conf. Every line can be taken back by the same line behind "no": frr.sh relies on it.
func frrConfig(v view) []byte {
	t := &text{step: " "}
	t.line("frr defaults traditional")
	t.line("hostname %s", v.node.Name)
	t.line("service integrated-vtysh-config")
	r := v.node.Routing
	if r.Speaks(slice.OSPF) {
		frrOSPF(t, v)
	}
	if r.Speaks(slice.ISIS) {
		frrISIS(t, v)
	}
	if r.Speaks(slice.BGP) {
		frrBGP(t, v)
	}
	if r.Speaks(slice.RIP) {
		frrRIP(t, v)
	}
	// Behind the routers: an interface that speaks before its router has an identifier confuses its neighbours.
	for _, p := range v.ports {
		frrSection(t, "interface "+p.Name, func() { frrPort(t, v, p) })
	}
	// Last: ospf6d tells an area of a prefix when the prefix comes, not when the area does.
	frrSection(t, "interface lo", func() { frrLoopback(t, v) })
	t.line("!")
	for _, route := range r.Static {
		frrStatic(t, route)
	}
	return t.buf.Bytes()
}

// frrSection writes a section of the top level.
func frrSection(t *text, head string, body func()) { t.block("!\n"+head, "exit", body) }

// frrLoopback announces the node's own addresses.
func frrLoopback(t *text, v view) {
	r := v.node.Routing
	v4, v6 := has(v.node.Loopbacks, false), has(v.node.Loopbacks, true)
	if r.Speaks(slice.OSPF) {
		frrOSPFLoopback(t, v, v4, v6)
	}
	if r.Speaks(slice.ISIS) && (v4 || v6) {
		t.line("isis passive")
		frrISISCircuit(t, v4, v6)
	}
}

// frrPort makes an interface part of the interior protocols.
func frrPort(t *text, v view, p port) {
	r := v.node.Routing
	if r.Speaks(slice.OSPF) {
		frrOSPFPort(t, v, p)
	}
	if r.Speaks(slice.ISIS) {
		frrISISPort(t, v, p)
	}
}

// frrStatic writes one static route.
func frrStatic(t *text, r slice.Route) {
	family := "ip"
	if r.To.Addr().Is6() {
		family = "ipv6"
	}
	hop := r.Interface
	switch {
	case r.Blackhole:
		hop = "blackhole"
	case r.Via.IsValid() && r.Interface != "":
		hop = r.Via.String() + " " + r.Interface
	case r.Via.IsValid():
		hop = r.Via.String()
	}
	t.line("%s route %s %s", family, r.To, hop)
}

// filesIn places configuration files in the daemon's directory, sorted by name.
func filesIn(dir string, files map[string][]byte) ([]slice.File, error) {
	all := make([]slice.File, 0, len(files)+1)
	for _, name := range sortedNames(files) {
		if path.Base(name) != name || name == "." || name == ".." {
			return nil, fmt.Errorf("place %q in %s: it must be a plain file name", name, dir)
		}
		all = append(all, slice.File{Path: path.Join(dir, name), Mode: 0o644, Data: files[name]})
	}
	return all, nil
}
