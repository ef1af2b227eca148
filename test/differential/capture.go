package differential

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/lab/vnet"
)

// tap is a packet socket on a host's interface: it sends and receives whole frames, with what offloads say of them.
type tap struct {
	host     string
	fd       int
	lan      []byte // the interface's address, if a switch may flood to it what is for others
	buf, oob []byte
}

// vnetHeader is the length of struct virtio_net_hdr, before each frame.
const vnetHeader = 10

func openTap(n *vnet.Node, name string, lan []byte) (*tap, error) {
	index, err := n.Index(name)
	if err != nil {
		return nil, err
	}
	t := &tap{host: n.Name, fd: -1, lan: lan, buf: make([]byte, 1<<17), oob: make([]byte, 256)}
	err = n.Do(func() (err error) {
		t.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		return err
	})
	for _, option := range []struct{ level, name, value int }{
		{unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16 << 20},
		{unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 16 << 20},
		{unix.SOL_PACKET, unix.PACKET_AUXDATA, 1},
		{unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1},
		{unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1},
	} {
		if err == nil {
			err = unix.SetsockoptInt(t.fd, option.level, option.name, option.value)
		}
	}
	if err == nil {
		all := uint16(unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8)
		err = unix.Bind(t.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: index})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open a packet socket in %s: %w", n.Name, err), t.close())
	}
	return t, nil
}

func (t *tap) close() error {
	if t.fd < 0 {
		return nil
	}
	return unix.Close(t.fd)
}

// send may fail for a frame that no interface takes, or on one that is down: then it does in both networks.
func (t *tap) send(f *frame) error {
	offload := f.offload
	if offload == nil {
		offload = make([]byte, vnetHeader)
	}
	_, err := unix.Write(t.fd, append(offload[:vnetHeader:vnetHeader], f.data...))
	return err
}

// receive gives all frames that are there.
func (t *tap) receive() ([]received, error) {
	var all []received
	for {
		n, m, flags, _, err := unix.Recvmsg(t.fd, t.buf, t.oob, 0)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return all, nil
		case errors.Is(err, unix.ENETDOWN), errors.Is(err, unix.EINTR): // reported once
			continue
		case err != nil:
			return nil, fmt.Errorf("receive in %s: %w", t.host, err)
		case flags&unix.MSG_TRUNC != 0 || n < vnetHeader+14:
			return nil, fmt.Errorf("receive in %s: a frame of %d bytes was cut", t.host, n)
		}
		if to := t.buf[vnetHeader:]; t.lan != nil && to[0]&1 == 0 && !bytes.Equal(to[:6], t.lan) {
			continue // what the switch had learnt by then is no matter of ours
		}
		offload := [vnetHeader]byte(t.buf)
		all = append(all, received{offload: offload, data: untag(t.buf[vnetHeader:n], t.oob[:m])})
	}
}

// untag copies a frame and puts a VLAN tag back that the kernel took out.
func untag(b, oob []byte) []byte {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err == nil {
		for _, m := range messages {
			aux := m.Data
			if m.Header.Level != unix.SOL_PACKET || m.Header.Type != unix.PACKET_AUXDATA || len(aux) < 20 {
				continue
			}
			if binary.NativeEndian.Uint32(aux)&unix.TP_STATUS_VLAN_VALID != 0 {
				tag := []byte{aux[19], aux[18], aux[17], aux[16]}
				return append(append(append([]byte{}, b[:12]...), tag...), b[12:]...)
			}
		}
	}
	return append([]byte{}, b...)
}

func pause(d time.Duration) {
	t := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&t, nil)
}
