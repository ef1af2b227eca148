package importer

import (
	"path"
	"strings"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
	"github.com/pergola-net/pergola/model/topology/yamltree"
)

// ImageRule says what replaces a container image.
type ImageRule struct {
	// Match is compared with the last parts of the image's name, without registry, tag and digest; * and ? match
	// within a part: frrouting/frr, alpine, *multitool.
	Match string
	// Rootfs is host (the machine's own programs, read-only), or a directory or tar archive; empty: Image is used.
	Rootfs string
	// Image is another reference. Where it is empty too, the file's own reference stays.
	Image string
	// Daemon is the routing suite that the image starts.
	Daemon slice.Daemon
}

// ImageTable is a list of rules; the first that matches counts. An image that no rule matches is fetched from its
// registry.
type ImageTable []ImageRule

// hostRootfs is the word for the machine's own programs.
const hostRootfs = "host"

// DefaultImages replaces well-known images of labs by the machine's own programs: FRR, BIRD, ping, iperf3 and tcpdump
// are not fetched where they are installed.
func DefaultImages() ImageTable {
	table := ImageTable{}
	on := func(daemon slice.Daemon, matches ...string) {
		for _, m := range matches {
			table = append(table, ImageRule{Match: m, Rootfs: hostRootfs, Daemon: daemon})
		}
	}
	on(slice.FRR, "frrouting/frr*", "frr", "frr-*")
	on(slice.BIRD, "bird", "bird-*", "bird[0-9]*")
	on("", "alpine", "alpine-*", "busybox", "debian", "ubuntu", "linux", "netshoot", "iperf*", "*multitool*")
	return table
}

// find gives the first rule that matches an image.
func (t ImageTable) find(image string) (ImageRule, bool) {
	parts := strings.Split(imageName(image), "/")
	for _, rule := range t {
		n := strings.Count(rule.Match, "/") + 1
		if n > len(parts) {
			continue
		}
		if ok, err := path.Match(rule.Match, strings.Join(parts[len(parts)-n:], "/")); ok && err == nil {
			return rule, true
		}
	}
	return ImageRule{}, false
}

// imageName is an image's name without tag and digest.
func imageName(image string) string {
	name, _, _ := strings.Cut(image, "@")
	if colon := strings.LastIndexByte(name, ':'); colon > strings.LastIndexByte(name, '/') {
		name = name[:colon]
	}
	return name
}

// ParseImages reads a table that a user wrote. Its rules come before the default ones:
//
//	images:
//	  - match: mylab/router
//	    rootfs: host          # host, a directory or a tar archive
//	    daemon: frr           # or bird, where the image starts one
//	  - match: alpine
//	    image: docker.io/library/alpine:3.20
func ParseImages(file string, data []byte) (ImageTable, topology.Diagnostics) {
	r := &report{file: file}
	root := readYAML(r, data)
	var table ImageTable
	if r.want(root, yamltree.Map, "an image table") {
		r.knownKeys(root, "an image table", "images")
		images := root.Field("images")
		r.want(images, yamltree.List, "images")
		for _, entry := range images.Items {
			table = append(table, r.imageRule(entry))
		}
	}
	if r.wrong {
		return nil, r.found
	}
	return append(table, DefaultImages()...), r.found
}

func (r *report) imageRule(entry *yamltree.Node) ImageRule {
	if !r.want(entry, yamltree.Map, "an image") {
		return ImageRule{}
	}
	r.knownKeys(entry, "an image", "match", "rootfs", "image", "daemon")
	rule := ImageRule{Match: r.str(entry.Field("match"), "match"), Rootfs: r.str(entry.Field("rootfs"), "rootfs"),
		Image:  r.str(entry.Field("image"), "image"),
		Daemon: slice.Daemon(r.str(entry.Field("daemon"), "daemon"))}
	if _, err := path.Match(rule.Match, ""); err != nil || rule.Match == "" {
		r.fail(entry.Position, "such as frrouting/frr, or *multitool",
			"match %q is not a pattern of image names", rule.Match)
	}
	if rule.Daemon != "" && rule.Daemon != slice.FRR && rule.Daemon != slice.BIRD {
		r.fail(entry.Field("daemon").Position, "frr or bird", "unknown daemon %q", string(rule.Daemon))
	}
	if rule.Rootfs != "" && rule.Image != "" {
		r.fail(entry.Position, "", "an image is replaced by rootfs or by image, not by both")
	}
	return rule
}

// knownKeys reports the keys of a map that are not among those known.
func (r *report) knownKeys(v *yamltree.Node, what string, known ...string) {
	for _, f := range v.Entries {
		if !contains(known, f.Key) {
			r.fail(f.Position, "known: "+strings.Join(known, ", "), "%s has no %q", what, f.Key)
		}
	}
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}
