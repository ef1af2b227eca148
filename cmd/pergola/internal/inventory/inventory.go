// Package inventory writes the nodes of a network as inventories of tools that configure routers.
package inventory

import (
	"net/netip"
	"path"

	"go.yaml.in/yaml/v4"

	"github.com/pergola-net/pergola/model/slice"
)

// The tools whose inventories are known.
const (
	Ansible = "ansible"
	Nornir  = "nornir"
)

// Tools lists them.
var Tools = []string{Ansible, Nornir}

// Files gives a tool's inventory of a network, by the names that the tool gives files. Nodes without processes,
// switches and uplinks, are not in it.
func Files(tool string, s *slice.Slice) (map[string][]byte, error) {
	documents := map[string]any{}
	switch tool {
	case Ansible:
		documents["inventory.yaml"] = ansible(s)
	case Nornir:
		documents["hosts.yaml"], documents["groups.yaml"] = nornir(s)
	}
	files := map[string][]byte{}
	for name, document := range documents {
		text, err := yaml.Dump(document, yaml.WithIndent(2))
		if err != nil {
			return nil, err
		}
		files[name] = text
	}
	return files, nil
}

// kinds are the groups of nodes by what they are. Their names are plural, so that nodes can have the others.
var kinds = map[slice.Kind]string{slice.Router: "routers", slice.Host: "hosts", slice.Program: "programs"}

// daemons are the groups of routers by their routing suite.
var daemons = map[slice.Daemon]string{slice.FRR: "frr", slice.BIRD: "bird"}

// groups are those that a node is in, the most general one first.
func groups(n *slice.Node) []string {
	all := []string{kinds[n.Kind]}
	if n.Routing != nil && daemons[n.Routing.Daemon] != "" {
		all = append(all, daemons[n.Routing.Daemon])
	}
	return all
}

// facts are what a playbook may want to know of a node.
type facts struct {
	Kind       slice.Kind                `yaml:"pergola_kind"`
	Daemon     slice.Daemon              `yaml:"pergola_daemon,omitempty"`
	Loopbacks  []netip.Prefix            `yaml:"pergola_loopbacks,omitempty"`
	Interfaces map[string][]netip.Prefix `yaml:"pergola_interfaces,omitempty"` // addresses, by name
	Labels     map[string]string         `yaml:"pergola_labels,omitempty"`
}

func factsOf(n *slice.Node) facts {
	f := facts{Kind: n.Kind, Loopbacks: n.Loopbacks, Labels: n.Labels}
	if n.Routing != nil {
		f.Daemon = n.Routing.Daemon
	}
	for _, i := range n.Interfaces {
		if f.Interfaces == nil {
			f.Interfaces = map[string][]netip.Prefix{}
		}
		f.Interfaces[i.Name] = append([]netip.Prefix{}, i.Addresses...)
	}
	return f
}

// ansibleHost is a host of Ansible. Its address is what `pergola exec` takes.
type ansibleHost struct {
	Address string `yaml:"ansible_host"`
	facts   `yaml:",inline"`
}

type ansibleGroup struct {
	Vars     map[string]string        `yaml:"vars,omitempty"`
	Hosts    map[string]ansibleHost   `yaml:"hosts,omitempty"`
	Children map[string]*ansibleGroup `yaml:"children,omitempty"`
}

// ansible puts each host into its narrowest group.
func ansible(s *slice.Slice) any {
	all := &ansibleGroup{Vars: map[string]string{"ansible_connection": "pergola"}}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if !n.HasSliver() {
			continue
		}
		g := all
		for _, name := range groups(n) {
			g = g.child(name)
		}
		if g.Hosts == nil {
			g.Hosts = map[string]ansibleHost{}
		}
		g.Hosts[n.Name] = ansibleHost{path.Join(s.Name, n.Name), factsOf(n)}
	}
	return map[string]any{"all": all}
}

func (g *ansibleGroup) child(name string) *ansibleGroup {
	if g.Children == nil {
		g.Children = map[string]*ansibleGroup{}
	}
	if g.Children[name] == nil {
		g.Children[name] = &ansibleGroup{}
	}
	return g.Children[name]
}

// nornirHost is a host of Nornir's SimpleInventory.
type nornirHost struct {
	Hostname string   `yaml:"hostname"`
	Platform string   `yaml:"platform"`
	Groups   []string `yaml:"groups"`
	Data     facts    `yaml:"data"`
}

func nornir(s *slice.Slice) (hosts, named any) {
	all, known := map[string]nornirHost{}, map[string]map[string]any{}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if !n.HasSliver() {
			continue
		}
		h := nornirHost{Hostname: path.Join(s.Name, n.Name), Platform: "linux", Groups: groups(n),
			Data: factsOf(n)}
		if h.Data.Daemon != "" {
			h.Platform = string(h.Data.Daemon)
		}
		all[n.Name] = h
		for _, g := range h.Groups {
			known[g] = map[string]any{}
		}
	}
	return all, known
}
