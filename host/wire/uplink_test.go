package wire_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/host/wire"
)

// An uplink's name must be nobody else's on this machine.
func uplinkName() string { return fmt.Sprintf("pg%d", os.Getpid()) }

func (l *lab) uplink() wire.Port {
	l.ports++
	return wire.Port{
		Name: fmt.Sprintf("s7p%d", l.ports), Slice: 7, Owner: "lab/uplink:" + uplinkName(), Digest: "d1",
		HostNetns: true, Inner: uplinkName(), MAC: mac(l.ports), MTU: 1500, Addresses: prefixes("192.0.2.1/31"),
	}
}

func TestUplinkReachesTheMachine(t *testing.T) {
	l := newLab(t)
	a := l.port("a", nil, "192.0.2.0/31")
	up := l.uplink()
	l.must(l.AddPort(l.ctx, up))
	l.must(l.Join(l.ctx, a, up.Name))
	l.ping("a", "192.0.2.1")
	out, err := exec.Command("ip", "link", "show", uplinkName()).Output()
	if err != nil || !strings.Contains(string(out), "alias pergola port lab/uplink:") {
		t.Errorf("no owner is shown: %v\n%s", err, out)
	}
	l.must(l.DeletePorts(l.ctx, up.Name))
	if _, err := net.InterfaceByName(uplinkName()); err == nil {
		t.Error("the machine's end is still there")
	}
}

func TestUplinkLeavesForeignInterfacesAlone(t *testing.T) {
	l := newLab(t)
	if out, err := exec.Command("ip", "link", "add", uplinkName(), "type", "bridge").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	defer func() {
		if out, err := exec.Command("ip", "link", "delete", uplinkName()).CombinedOutput(); err != nil {
			t.Errorf("it was deleted: %v: %s", err, out)
		}
	}()
	err := l.AddPort(l.ctx, l.uplink())
	if !errors.Is(err, unix.EEXIST) || !strings.Contains(err.Error(), uplinkName()) {
		t.Errorf("%v", err)
	}
	if remains := l.observe(); len(remains.Remains)+len(remains.Ports) > 0 {
		t.Errorf("left: %+v", remains)
	}
}
