// Package constants has numbers on which packages agree that do not import each other: the data path knows nothing of
// slices, and packages of the model nothing of the data path.
package constants

// VXLANPort is the UDP port of every machine by which tunnels of kind VXLAN arrive (RFC 7348, section 5). Nobody can
// reserve it. (The eBPF programs have it as VXLAN_PORT.)
const VXLANPort = 4789

// PoolPart is one part in so many, of all that a host has for packet programs of a kind, that cannot be reserved: the
// pool of nodes without a reservation.
const PoolPart = 4
