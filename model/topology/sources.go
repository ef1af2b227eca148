package topology

import (
	"fmt"

	"github.com/pergola-net/pergola/model/slice"
)

// Sources lists the files that the topology names: configuration files, files, archives of root file systems. Whoever
// read the topology reads them, with his own rights, and fills Data, or SHA256 for an archive (IsArchive). Paths
// count from the topology's directory.
func (t *Topology) Sources() []*Source {
	var found []*Source
	add := func(s *Source, at *place) {
		if s != nil && s.Path != "" {
			s.Where = at.String()
			found = append(found, s)
		}
	}
	t.eachAttributes(func(a *Attributes, at *place) {
		for _, name := range sortedKeys(a.Config) {
			add(a.Config[name], at.at("config").at(name))
		}
		for _, target := range sortedKeys(a.Files) {
			add(a.Files[target].Source, at.at("files").at(target))
		}
		if a.Rootfs != nil && a.Rootfs.IsArchive() {
			add(a.Rootfs, at.at("rootfs"))
		}
	})
	return found
}

// eachAttributes visits the attributes of defaults, groups and nodes. The pointers and maps in them are the
// topology's own.
func (t *Topology) eachAttributes(visit func(*Attributes, *place)) {
	var top *place
	if t.Defaults != nil && t.Defaults.Node != nil {
		visit(t.Defaults.Node, top.at("defaults").at("node"))
	}
	for _, name := range sortedKeys(t.Groups) {
		group := t.Groups[name]
		visit(&group.Attributes, top.at("groups").at(name))
	}
	for _, name := range sortedKeys(t.Nodes) {
		node := t.Nodes[name]
		visit(&node.Attributes, inNode(name))
	}
}

// Privileged words what of the topology is for root alone, because it gives a hold on the machine itself.
func (t *Topology) Privileged() []string {
	var found []string
	t.eachAttributes(func(a *Attributes, at *place) {
		if a.Kind == slice.Uplink {
			found = append(found, fmt.Sprintf("%s: kind uplink puts interfaces on the machine itself", at))
		}
		for _, bind := range a.Binds {
			found = append(found, fmt.Sprintf("%s: binds %s of the machine", at, bind))
		}
		if a.Rootfs != nil && a.Rootfs.Path != "" && a.Rootfs.Path != "host" && !a.Rootfs.IsArchive() {
			found = append(found, fmt.Sprintf("%s: uses the machine's directory %s as root file system", at, a.Rootfs.Path))
		}
		if dir, ok := isLayout(a.Image); ok {
			found = append(found, fmt.Sprintf("%s: uses the machine's image layout %s", at, dir))
		}
	})
	return found
}
