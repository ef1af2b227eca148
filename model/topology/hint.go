package topology

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pergola-net/pergola/model/wording"
)

// suggest asks whether the nearest known word was meant; it is empty where nothing known is near.
func suggest(word string, known []string) string {
	if near := wording.Nearest(word, known); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return ""
}

// suggestOr is suggest, or all known words where none is near and they are few.
func suggestOr(word string, known []string) string {
	if hint := suggest(word, known); hint != "" {
		return hint
	}
	if len(known) == 0 || len(known) > 12 {
		return ""
	}
	return "known: " + strings.Join(known, ", ")
}

// foreign are keys of other tools' files, and what to write here.
var foreign = map[string]string{
	"topology":       "a containerlab file? Try pergola import",
	"mgmt":           "Pergola has no management network; pergola exec and shell need none",
	"module":         "write routing: [ospf, bgp]",
	"device":         "write daemon: frr, or daemon: bird",
	"provider":       "not needed: nodes are containers",
	"bgp":            "write as:, reflector: and networks: in the node itself",
	"ospf":           "write area:, hello:, dead: and fast_hellos: in the node itself",
	"startup-config": "write config: with your daemon's files",
	"bandwidth":      "write rate: 10Mbit",
	"bw":             "write rate: 10Mbit",
	"latency":        "write delay: 10ms",
	"type":           "write kind: router, host or switch",
	"asn":            "write as: 65001",
	"rr":             "write reflector: true",
	"command":        "write cmd:",
	"entrypoint":     "write cmd:",
	"environment":    "write env:",
	"volumes":        "write binds:",
	"prefix":         "write subnets:",
	"mem":            "write memory: 64MiB",
	"cpus":           "write cpu: 0.5",
	"default":        "write defaults:",
	"ip":             "write addresses:",
	"ipv4_address":   "write addresses:",
	"interface":      "write interfaces:",
	"strategy":       "write placement: spread, or placement: pack, at the top",
	"node_selector":  "write host_labels: {rack: a}",
	"nodeSelector":   "write host_labels: {rack: a}",
	"box":            "write host: with the name of a machine",
	"encap":          "write tunnel: egre, or tunnel: vxlan",
	"storm-control":  "write storm_control: 10kpps",
	"vni":            "write tunnel: vxlan; Pergola chooses the VNI",
	"key":            "write tunnel: egre; Pergola chooses the key",
}

// spellings are other ways to write a key that are taken as they are.
var spellings = map[string]string{
	"group":     "groups",
	"loopback":  "loopbacks",
	"endpoints": "ends",
	"subnet":    "subnets",
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
