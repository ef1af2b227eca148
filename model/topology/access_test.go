package topology

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/model/slice"
)

func TestNodesAskForCapabilitiesAndDevices(t *testing.T) {
	s := mustResolve(t, mustParse(t, "lab.yaml", []byte(`name: lab
defaults: {node: {cap_add: CAP_SYS_NICE}}
nodes:
  a:
    cap_add: [sys_time, NET_RAW, CAP_IPC_LOCK, IPC_LOCK]
    devices: [/dev/net/tun, "/dev/kvm:/dev/kvm:rwm", "/dev/rtc0:r"]
  b:
  s: {kind: switch}
`)), nil)
	a := s.Node("a")
	if diff := cmp.Diff([]string{"IPC_LOCK", "SYS_TIME"}, a.CapAdd); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]slice.Device{{Source: "/dev/net/tun", Target: "/dev/net/tun"},
		{Source: "/dev/kvm", Target: "/dev/kvm"}, {Source: "/dev/rtc0", Target: "/dev/rtc0", Access: "r"}},
		a.Devices); diff != "" {
		t.Error(diff)
	}
	if got := s.Node("b").CapAdd; !cmp.Equal(got, []string{"SYS_NICE"}) {
		t.Errorf("b has %v", got)
	}
	checkDescription(t, s)
}

func TestFaultsOfCapabilitiesAndDevicesAreNamed(t *testing.T) {
	_, found := Parse("lab.yaml", []byte(`name: lab
nodes:
  a: {cap_add: [NET_ADMN, SYS_MODULE, ALL], devices: [/etc/passwd, "/dev/kvm:x", /dev/ppp, "/dev/kvm:/dev/ppp"]}
  s: {kind: switch, cap_add: NET_RAW, devices: /dev/kvm}
`))
	text := found.Error()
	for _, want := range []string{
		`there is no capability "NET_ADMN"`, `did you mean "NET_ADMIN"?`,
		"no node gets the capability SYS_MODULE: modules are loaded into the machine's kernel",
		"load them on the machine, before: modprobe MODULE", "no node gets the capability ALL",
		`"/etc/passwd" is not a plain path below /dev`, `"/dev/kvm:x" is not a device`,
		"two devices are /dev/ppp",
		"a switch has no cap_add", "a switch has no devices",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
