package frr

import (
	"net"
	"strings"
	"testing"
)

const ofDaemons = `frr version 8.4.4
frr defaults traditional
!
router ospf
 ospf router-id 10.0.0.1
exit
!
end
frr version 8.4.4
!
interface eth1
 ip address 192.0.2.1/24
exit
`

const ofVtysh = `Building configuration...

Current configuration:
!
frr version 8.4.4
frr defaults traditional
hostname r1
service integrated-vtysh-config
!
interface eth1
 ip address 192.0.2.1/24
exit
!
router ospf
 ospf router-id 10.0.0.1
exit
!
end
`

func TestDaemonsAndVtyshSayTheSame(t *testing.T) {
	if !Same(ofDaemons, ofVtysh) {
		t.Errorf("%v\n%v", Lines(ofDaemons), Lines(ofVtysh))
	}
}

func TestInterfaceOfWhichNothingIsSaidIsNoChange(t *testing.T) {
	if !Same(ofDaemons, strings.Replace(ofVtysh, "router ospf", "interface eth7\nexit\n!\nrouter ospf", 1)) {
		t.Error("it is a change")
	}
}

func TestWhatTheAgentTellsOfBandwidthIsNoChange(t *testing.T) {
	told := strings.Replace(ofVtysh, "exit\n!\nrouter", ` link-params
  enable
  max-bw 1.25e+07
  max-rsv-bw 1.25e+07
  unrsv-bw 7 5e+06
 exit-link-params
exit
!
router`, 1)
	if !Same(ofDaemons, told) {
		t.Errorf("it is a change: %v", Difference(ofDaemons, told))
	}
	if Same(ofDaemons, strings.Replace(told, "  enable", "  enable\n  admin-grp 0x5", 1)) {
		t.Error("a group of the link is no change")
	}
}

func TestChangesAreSeen(t *testing.T) {
	for name, other := range map[string]string{
		"a line more":       strings.Replace(ofVtysh, "exit\n!\nrouter", " ip ospf cost 7\nexit\n!\nrouter", 1),
		"a line less":       strings.Replace(ofVtysh, " ip address 192.0.2.1/24\n", "", 1),
		"another context":   strings.Replace(ofVtysh, "interface eth1", "interface eth2", 1),
		"nothing":           "",
		"another value":     strings.Replace(ofVtysh, "10.0.0.1", "10.0.0.2", 1),
		"a line outside it": strings.Replace(ofVtysh, " ospf router-id", "ospf router-id", 1),
	} {
		if Same(ofDaemons, other) {
			t.Errorf("%s: not seen", name)
		}
	}
}

func TestFileIsWithoutTheHeading(t *testing.T) {
	if got := string(File(ofVtysh)); !strings.HasPrefix(got, "frr version") || !strings.HasSuffix(got, "end\n") {
		t.Errorf("the file is\n%s", got)
	}
}

func TestAskReadsTheLastAnswer(t *testing.T) {
	ours, daemons := net.Pipe()
	defer ours.Close()
	go func() {
		defer daemons.Close()
		for _, answer := range []string{"", "one\ntwo\n"} {
			buf := make([]byte, 64)
			if n, err := daemons.Read(buf); err != nil || buf[n-1] != 0 {
				return
			}
			if _, err := daemons.Write([]byte(answer + "\x00\x00\x00\x00")); err != nil {
				return
			}
		}
	}()
	if got, err := Ask(ours, "enable", "show running-config"); err != nil || got != "one\ntwo\n" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := Ask(ours, "again"); err == nil {
		t.Error("a daemon that is gone answers")
	}
}
