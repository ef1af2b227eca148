package routing

import "github.com/pergola-net/pergola/model/slice"

// frrTE has a link-state protocol flood links for traffic engineering, in a network with LSPs by RSVP-TE. What is
// unreserved of them is in no file: the agent tells the running zebra (host/agent/speakers).
func frrTE(t *text, v view) {
	if address, ok := v.node.Address(false); ok && v.slice.IsSignalled() {
		t.line("mpls-te on")
		t.line("mpls-te router-address %s", address)
	}
}

// FloodsLinks reports whether a node's daemon is one that floods links for traffic engineering when it is told of them,
// by the configuration that Render writes.
func FloodsLinks(n *slice.Node) bool {
	r := n.Routing
	return r != nil && r.Daemon == slice.FRR && len(r.Config) == 0 && (r.Speaks(slice.OSPF) || r.Speaks(slice.ISIS))
}
