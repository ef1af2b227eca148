package inventory

import (
	"net/netip"
	"testing"

	"github.com/pergola-net/pergola/model/slice"
)

func lab() *slice.Slice {
	return &slice.Slice{Name: "lab", Nodes: []slice.Node{
		{Name: "h", Kind: slice.Host, Labels: map[string]string{"rack": "1"}},
		{Name: "r1", Kind: slice.Router, Routing: &slice.Routing{Daemon: slice.FRR},
			Loopbacks: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")},
			Interfaces: []slice.Interface{{Name: "eth1",
				Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/31")}}, {Name: "eth2"}}},
		{Name: "r2", Kind: slice.Router},
		{Name: "sw", Kind: slice.Switch},
	}}
}

func TestInventories(t *testing.T) {
	for _, c := range []struct {
		tool string
		want map[string]string
	}{
		{Ansible, map[string]string{"inventory.yaml": `all:
  vars:
    ansible_connection: pergola
  children:
    hosts:
      hosts:
        h:
          ansible_host: lab/h
          pergola_kind: host
          pergola_labels:
            rack: '1'
    routers:
      hosts:
        r2:
          ansible_host: lab/r2
          pergola_kind: router
      children:
        frr:
          hosts:
            r1:
              ansible_host: lab/r1
              pergola_kind: router
              pergola_daemon: frr
              pergola_loopbacks:
              - 10.0.0.1/32
              pergola_interfaces:
                eth1:
                - 192.0.2.1/31
                eth2: []
`}},
		{Nornir, map[string]string{"hosts.yaml": `h:
  hostname: lab/h
  platform: linux
  groups:
  - hosts
  data:
    pergola_kind: host
    pergola_labels:
      rack: '1'
r1:
  hostname: lab/r1
  platform: frr
  groups:
  - routers
  - frr
  data:
    pergola_kind: router
    pergola_daemon: frr
    pergola_loopbacks:
    - 10.0.0.1/32
    pergola_interfaces:
      eth1:
      - 192.0.2.1/31
      eth2: []
r2:
  hostname: lab/r2
  platform: linux
  groups:
  - routers
  data:
    pergola_kind: router
`, "groups.yaml": "frr: {}\nhosts: {}\nrouters: {}\n"}},
	} {
		files, err := Files(c.tool, lab())
		if err != nil || len(files) != len(c.want) {
			t.Fatalf("%s: %d files, %v", c.tool, len(files), err)
		}
		for name, want := range c.want {
			if got := string(files[name]); got != want {
				t.Errorf("%s: %s is\n%s\nwant\n%s", c.tool, name, got, want)
			}
		}
	}
}
