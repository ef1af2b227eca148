// Package topology reads the file in which a user describes a network, and resolves it into a slice.Slice. It is
// pure: bytes and values in, values out.
//
//	Parse    YAML to Topology; everything that is wrong, with line, column and what would be right
//	Sources  the files that a topology names, for its caller to read
//	Resolve  defaults, groups, names, addresses and routing: Topology to slice.Slice
//	Marshal  Topology to YAML as a person would write it
//	Schema   the JSON Schema of the file, for editors
//
// The files of this package stand in the order of the work: yaml, excess and colon read text, decode and shorthand
// fill the types of topology.go, resolve drives merge, links, segment, address, fill, sliver, routing, bgp, checks.
// docs/topology.md is the reference of the file.
//
// # Kinds
//
// A node for which daemon, routing, as or config is given, by itself, a group or the defaults, is a router; any other
// is a host. What a group or the defaults give and a node of this kind cannot have is passed over; written in the
// node itself it is an error.
//
// A router of which nothing more is said runs FRR and speaks OSPF. With an AS number it speaks BGP, and OSPF beside
// it where its AS has more routers here. With `routing: none`, or `static` and no daemon, it runs no daemon.
//
// # Addresses
//
// Automatic addresses follow from names: the name of a router, or of what a link joins, is hashed (SHA-256) into a
// large pool, and where that place is taken the next free one is used. So adding or taking away a node or a link does
// not renumber the rest.
//
//	loopback of a router         /32 from 10.192.0.0/10    /128 from fd50:6572:676f:ffff::/96
//	point-to-point link          /31 from 10.0.0.0/9       /127 from fd50:6572:676f:fffe::/96
//	LAN, up to 200 interfaces    /24 from 172.16.0.0/12    /64 from fd50:6572:676f::/49
//	LAN, up to 4,000             /20
//	larger                       /16
//
// All interfaces that links and switches join are one LAN. When a pool is full, or lies in networks that the file
// uses itself, 10.128.0.0/10 takes LANs and 100.64.0.0/10 takes the rest.
//
// What holds exactly:
//   - Against a running version (Resolve's prev), whatever was chosen there is kept while the same thing exists and
//     what is written does not forbid it: names and numbers of interfaces, loopbacks, networks, addresses. New things
//     take what nobody had. A LAN changes its network when it outgrows it, and a cable when it becomes part of a LAN.
//   - Without one, the same file gives the same addresses, under any name of the network. A change moves another
//     address only where both hash to the same place: one chance in four million for two links; for two hosts
//     of one /24, one in 254.
//   - Two links between the same nodes, without names, are told apart by their order. Give them names, or name
//     their interfaces, and they are told apart by these.
//
// Addresses that are written win; the pools avoid their networks. All first addresses of a family on one network must
// be of one prefix; further ones may be of others. The same address may be used on different networks: networks
// behind NAT, anycast.
//
// # Routing
//
// OSPF has a hello interval of 1 s and a dead interval of 10 s. An interface is passive where no router is that
// might answer, and between different AS. External BGP sessions run on every link between different AS, one for each
// address family; internal ones between loopbacks, from every router to every other one, or, where there are
// reflectors, between reflectors and everybody. Routers of one AS that are not connected within it (two sites)
// have no sessions with each other. A border router sets the next hop to itself.
package topology
