package slice

import (
	"errors"
	"strings"
	"testing"
)

func TestCapabilitiesAreReadInAnySpelling(t *testing.T) {
	for text, want := range map[string]string{
		"NET_RAW": "NET_RAW", "cap_net_raw": "NET_RAW", "CAP_Sys_Time": "SYS_TIME", " mknod ": "MKNOD",
	} {
		if got, err := ParseCapability(text); got != want || err != nil {
			t.Errorf("%q is %q, %v, want %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"ALL":                 "would be all of the machine's",
		"SYS_MODULE":          "modules are loaded into the machine's kernel",
		"cap_dac_read_search": "past the node's root directory",
		"NET_RAV":             `there is no capability "NET_RAV"`,
		"":                    `there is no capability ""`,
	} {
		var refused *CapabilityError
		if _, err := ParseCapability(text); !errors.As(err, &refused) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// Each capability of capabilities(7) is in one of the lists: none is given because nobody has thought of it.
func TestEachCapabilityIsInOneList(t *testing.T) {
	const all = 41 // CAP_LAST_CAP + 1, since Linux 5.9
	seen := map[string]int{}
	for _, name := range Capabilities {
		seen[name]++
	}
	for _, name := range moreCapabilities {
		seen[name]++
	}
	for name := range refusedCapabilities {
		seen[name]++
	}
	for name, times := range seen {
		if times != 1 {
			t.Errorf("%s is in %d lists", name, times)
		}
	}
	if len(seen) != all {
		t.Errorf("%d capabilities, want %d", len(seen), all)
	}
}

func TestDevicesAreReadAsDockerDoes(t *testing.T) {
	for text, want := range map[string]Device{
		"/dev/kvm":               {"/dev/kvm", "/dev/kvm", ""},
		"/dev/kvm:/dev/kvm:rwm":  {"/dev/kvm", "/dev/kvm", ""},
		"/dev/kvm:r":             {"/dev/kvm", "/dev/kvm", "r"},
		"/dev/ttyUSB0:/dev/a/b":  {"/dev/ttyUSB0", "/dev/a/b", ""},
		"/dev/rtc0:/dev/rtc:wm":  {"/dev/rtc0", "/dev/rtc", "w"},
		"/dev/net/tun":           {"/dev/net/tun", "/dev/net/tun", ""},
		"/dev/net/tun:/dev/mine": {"/dev/net/tun", "/dev/mine", ""},
	} {
		got, err := ParseDevice(text)
		if got != want || err != nil {
			t.Errorf("%q is %v, %v, want %v", text, got, err, want)
		}
		if again, err := ParseDevice(got.String()); again != want || err != nil {
			t.Errorf("%q is written as %s, which is %v, %v", text, got, again, err)
		}
		if one := text == "/dev/net/tun"; got.InEveryNode() != one {
			t.Errorf("%q is in every node: %v", text, !one)
		}
	}
	for text, want := range map[string]string{
		"/dev/kvm:x": "is not a device", "/dev/kvm:/dev/kvm:r:w": "is not a device",
		"":    "plain path below /dev",
		"kvm": "plain path below /dev", "/etc/passwd": "plain path below /dev",
		"/dev/../etc/passwd": "plain path below /dev", "/dev/kvm:/dev/": "plain path below /dev",
		"/dev/kvm:m": "neither read nor written", "/dev/kvm:/dev/null": "another device in every node",
		"/dev/kvm:/dev/pts/1": "another device in every node", "vendor.com/gpu=all": "plain path below /dev",
	} {
		if d, err := ParseDevice(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is %v, %v, want %s", text, d, err, want)
		}
	}
}

// A bind of a device's path does not open the device, so that consent to one is none to the other.
func TestADeviceIsAHoldOfItsOwn(t *testing.T) {
	n := Node{Kind: Host, Devices: []Device{
		{"/dev/net/tun", "/dev/net/tun", ""}, {"/dev/kvm", "/dev/kvm", "r"}, {"/dev/ppp", "/dev/ppp", ""},
	}}
	all := n.Holds()
	if len(all) != 2 || all[0].Write || !all[1].Write || all[0].Field != "devices" || !all[0].OfOneMachine() {
		t.Fatalf("it holds %v", all)
	}
	if bind := (Hold{Path: "/dev/kvm", Write: true}); all[0].Within(bind) || bind.Within(all[0]) {
		t.Error("a bind is a device")
	}
	const want = "its device /dev/kvm (to read), its device /dev/ppp"
	if got := all[0].String() + ", " + all[1].String(); got != want {
		t.Error(got)
	}
}
