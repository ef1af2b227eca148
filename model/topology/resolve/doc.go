// Package resolve turns a topology into a slice.Slice: every default is written out, every name, number and address is
// chosen, and everything that is wrong is reported with its path.
//
// The steps, in the order of Slice:
//
//	values      units, numbers and words that are wrong by themselves
//	pools       the ranges of automatic addresses
//	merge       defaults and groups worked into the nodes; their kinds
//	links       ends, interface names, shapes; match finds the links of the running version
//	segment     the networks of IP that links and switches make
//	address     written addresses, those that stay, new ones (fill)
//	sliver      how each node runs; placement says on which hosts
//	interfaces  MAC addresses, MTU, router IDs
//	routing     protocols and timers of routers; bgp, isis, static
//	checks      statements about the running network
//
// # Kinds
//
// A node is a router where the node, one of its groups or the defaults give daemon, routing, as or config; any other
// node is a host. A key that nodes of this kind cannot have is an error in the node itself, and is ignored in a group
// or in the defaults.
//
// A router runs FRR and speaks OSPF unless the file says otherwise. With an AS number it speaks BGP, and also OSPF
// where its AS has more routers in this network. With `routing: none`, or `static` and no daemon, it runs no daemon.
//
// # Addresses
//
// Automatic addresses follow from names: the name of a router, or of what a link joins, is hashed (SHA-256) to an
// address of a large pool. If that address is taken, the next free one is used. So adding or removing a node or a
// link does not renumber the others.
//
//	loopback of a router         /32 from 10.192.0.0/10    /128 from fd50:6572:676f:ffff::/96
//	point-to-point link          /31 from 10.0.0.0/9       /127 from fd50:6572:676f:fffe::/96
//	LAN, up to 200 interfaces    /24 from 172.16.0.0/12    /64 from fd50:6572:676f::/49
//	LAN, up to 4,000             /20
//	larger                       /16
//
// All interfaces that links and switches join are one LAN. Where a pool is full, or overlaps networks that the file
// uses, LANs are taken from 10.128.0.0/10 and the others from 100.64.0.0/10.
//
// The guarantees:
//   - With a running version (prev), everything that it chose is kept while its object exists and the file does not
//     forbid it: names and numbers of interfaces, loopbacks, networks, addresses. New objects get values that the
//     running version does not use. A LAN changes its network when it outgrows it; a cable changes it when it becomes
//     part of a LAN.
//   - Without a running version, the same file gives the same addresses, under any name of the network. A change moves
//     another address only if both hash to the same value: for two links the chance is one in four million, for two
//     hosts of one /24 one in 254.
//   - Two links between the same nodes, without names, are distinguished by their order; with names, or with named
//     interfaces, by these.
//
// Written addresses take precedence; the pools avoid their networks. On one network, the first addresses of a family
// must have one prefix; further addresses may have others. The same address may be used on different networks: behind
// NAT, or anycast.
//
// # Routing
//
// OSPF has a hello interval of 1 s and a dead interval of 10 s. An interface is passive where no other router of the
// network can become a neighbor, and between different AS. External BGP sessions run on every link between different
// AS, one for each address family. Internal sessions run between loopbacks: from every router to every other one, or,
// with route reflectors, between reflectors and all routers. Routers of one AS that are not connected within it (two
// sites) have no sessions with each other. A border router sets the next hop to itself.
package resolve
