package importer

import (
	"slices"
	"strings"
	"testing"

	"github.com/pergola-net/pergola/model/topology"
)

const accessing = `
topology:
  defaults: {cap-add: [NET_ADMIN, CAP_SYS_NICE]}
  nodes:
    a: {kind: linux, image: alpine, cap-add: [sys_time, SYS_MODULE], devices: [/dev/net/tun, "/dev/ppp:/dev/ppp:rwm"]}
    b: {kind: linux, image: alpine}
`

func TestClabCarriesOutCapabilitiesAndDevices(t *testing.T) {
	top, found := clabOf(t, accessing, ClabOptions{Root: true})
	a, b := top.Nodes["a"], top.Nodes["b"]
	if !slices.Equal(a.CapAdd, topology.Strings{"SYS_NICE", "SYS_TIME"}) ||
		!slices.Equal(b.CapAdd, topology.Strings{"SYS_NICE"}) {
		t.Errorf("capabilities %v and %v", a.CapAdd, b.CapAdd)
	}
	if !slices.Equal(a.Devices, topology.Strings{"/dev/net/tun", "/dev/ppp"}) || len(b.Devices) > 0 {
		t.Errorf("devices %v and %v", a.Devices, b.Devices)
	}
	text := found.Error()
	if !strings.Contains(text, "cap-add: SYS_MODULE of node a") || strings.Contains(text, "devices") {
		t.Errorf("left out:\n%s", text)
	}
	// Without root, the network is made without the devices that only root may give.
	top, found = clabOf(t, accessing, ClabOptions{})
	if got := top.Nodes["a"].Devices; !slices.Equal(got, topology.Strings{"/dev/net/tun"}) ||
		!strings.Contains(found.Error(), "devices of node a") {
		t.Errorf("devices %v\n%s", got, found.Error())
	}
}

func TestClabNamesFaultsOfCapabilitiesAndDevices(t *testing.T) {
	for text, want := range map[string]string{
		"cap-add: [NET_ADMN]": `did you mean "NET_ADMIN"?`, "devices: [/srv/x]": `"/srv/x" is not a plain path`,
	} {
		lab := "topology:\n  nodes:\n    a: {kind: linux, image: alpine, " + text + "}\n"
		_, found := Clab("lab.clab.yml", []byte(lab), ClabOptions{Root: true})
		if found.Err() == nil || !strings.Contains(found.Error(), want) {
			t.Errorf("%s: %v", text, found)
		}
	}
}
