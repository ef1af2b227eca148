package plan

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/pergola-net/pergola/model/slice"
)

// sliverSpec gives the container of a node. Its digest covers all that cannot change while it runs.
func (b *builder) sliverSpec(n *slice.Node, command []string) Sliver {
	if len(n.Command) > 0 {
		command = n.Command
	}
	spec := Sliver{
		NodeID: NodeID{Slice: b.Spec.ID, Node: n.Name}, SliceName: b.Spec.Name, Hostname: n.Name,
		Rootfs: n.Rootfs, Command: command, Args: n.Args, User: n.User, Stdin: n.Stdin,
		Env: n.Env, Files: n.Files, Binds: n.Binds, Volumes: n.Volumes,
		Devices: n.Devices, CapAdd: n.CapAdd,
		CPU: n.CPU, CPUPeriod: n.CPUPeriod, Memory: n.Memory, PIDs: n.PIDs, Sysctls: sysctls(n, false),
		Socket: n.Program != nil,
	}
	spec.Digest = Digest(spec, b.Overrides.Restarts[n.Name])
	spec.Beneath, spec.Named = b.beneath(b.Spec.Name, n), b.NamedDevices(n)
	if note := FenceMark(n); note != "" && n.Host != "" {
		spec.Notes = map[string]string{FenceNote: note} // which may change while the sliver is there
	}
	return spec
}

// networkOf gives what is configured within a node's network namespace.
func networkOf(n *slice.Node) NodeNet {
	net := NodeNet{
		Router: n.Kind == slice.Router, Sysctls: sysctls(n, true), Loopbacks: n.Loopbacks, Routes: n.Routes,
	}
	for _, i := range n.Interfaces {
		net.Interfaces = append(net.Interfaces, NodeInterface{Name: i.Name, Addresses: i.Addresses})
	}
	return net
}

// sysctls gives the kernel parameters of a node's network namespace, or of its other namespaces; nil where it has none.
func sysctls(n *slice.Node, net bool) (some map[string]string) {
	for key, value := range n.Sysctls {
		if slice.NetSysctl(key) == net {
			if some == nil {
				some = make(map[string]string)
			}
			some[key] = value
		}
	}
	return some
}

// hostsFile makes the names of a slice's nodes resolve within it.
func hostsFile(s *slice.Slice) []byte {
	var f bytes.Buffer
	f.WriteString("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n" +
		"ff02::1\tip6-allnodes\nff02::2\tip6-allrouters\n")
	for i := range s.Nodes {
		for _, v6 := range []bool{false, true} {
			addr, ok := s.Nodes[i].Address(v6)
			if !ok {
				addr, ok = s.Nodes[i].ManagementAddress(v6)
			}
			if ok {
				fmt.Fprintf(&f, "%s\t%s\n", addr, s.Nodes[i].Name)
			}
		}
	}
	return f.Bytes()
}

// Digest is a fingerprint of values that JSON can show.
func Digest(values ...any) string {
	h := sha256.New()
	if err := json.NewEncoder(h).Encode(values); err != nil {
		// A programming error: a value that JSON cannot show.
		panic(fmt.Sprintf("plan: digest of %T: %v", values, err))
	}
	return hex.EncodeToString(h.Sum(nil)[:12])
}
