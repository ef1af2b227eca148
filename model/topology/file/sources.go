package file

import (
	"maps"
	"slices"

	"github.com/pergola-net/pergola/model/topology/diagnostic"
)

// Sources lists the files that the topology names: configuration files, files, packet programs and their filters,
// archives of root file systems. The caller that read the topology reads them with its own permissions, and fills Data,
// or SHA256 for an archive (IsArchive). Relative paths are relative to the topology's directory.
func (t *Topology) Sources() []*Source {
	var found []*Source
	add := func(s *Source, at *diagnostic.Path) {
		if s != nil && s.Path != "" {
			s.Where = at.String()
			found = append(found, s)
		}
	}
	t.eachAttributes(func(a *Attributes, at *diagnostic.Path) {
		for _, name := range slices.Sorted(maps.Keys(a.Config)) {
			add(a.Config[name], at.At("config").At(name))
		}
		for _, target := range slices.Sorted(maps.Keys(a.Files)) {
			add(a.Files[target].Source, at.At("files").At(target))
		}
		if a.Program != nil {
			a.Program.IsProgram = true
			add(a.Program, at.At("program"))
		}
		for i := range a.Filters {
			add(a.Filters[i].Source, at.At("filters").Item(i))
		}
		if a.Rootfs != nil && a.Rootfs.IsArchive() {
			add(a.Rootfs, at.At("rootfs"))
		}
	})
	return found
}

// ImageTransports are the prefixes of images in stores of the caller's machine. The caller that read the topology puts
// archives in their place.
var ImageTransports = []string{"docker-daemon:", "containers-storage:"}

// eachAttributes visits the attributes of defaults, groups and nodes. The pointers and maps in them are the
// topology's own.
func (t *Topology) eachAttributes(visit func(*Attributes, *diagnostic.Path)) {
	var top *diagnostic.Path
	if t.Defaults != nil && t.Defaults.Node != nil {
		visit(t.Defaults.Node, top.At("defaults").At("node"))
	}
	for _, name := range slices.Sorted(maps.Keys(t.Groups)) {
		group := t.Groups[name]
		visit(&group.Attributes, top.At("groups").At(name))
	}
	for _, name := range slices.Sorted(maps.Keys(t.Nodes)) {
		node := t.Nodes[name]
		visit(&node.Attributes, diagnostic.InNode(name))
	}
}
