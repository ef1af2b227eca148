package hosts

import "net/netip"

// Membership is how a machine takes part in a cluster, as it was started.
type Membership struct {
	// Joined is false for the machine on which the cluster began. Nodes that are placed on no machine run there.
	Joined bool
	// Machine is Host.Machine: a random word that the data directory keeps, so that several agents on one machine
	// are several hosts.
	Machine    string
	Address    netip.Addr // the end of the tunnels to this machine
	Interfaces []string   // that carry tunnels; empty: the one with Address
	NoXDP      bool       // no XDP programs on the interfaces
	BestEffort float64    // share of each core that frames without a reservation may have; 0: they do not wait
	API        string     // where members reach this one: host:port
	Labels     map[string]string
	Version    string // of Pergola
}
