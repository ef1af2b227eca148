package file

import (
	"strings"

	"github.com/pergola-net/pergola/model/slice"
)

// Topology is what a topology file says, before defaults, groups and addressing. It is also the body of the API's
// requests: JSON carries every value, with the keys of the file.
//
// The file allows short forms (a link as a list of two names, one string where a list may stand); here each thing
// has one form. An empty value means "not written".
type Topology struct {
	Name        string           `json:"name,omitempty" doc:"Name of the network: letters, digits, - and _."`
	Attribution string           `json:"attribution,omitempty" doc:"Licence note of imported data; shown wherever the network is drawn."`
	Placement   slice.Strategy   `json:"placement,omitempty" enum:"spread,pack" doc:"In a cluster: spread uses all hosts evenly, pack uses few of them. Default: spread."`
	Addressing  *Addressing      `json:"addressing,omitempty" doc:"Address families, and the pools of automatic addresses."`
	Defaults    *Defaults        `json:"defaults,omitempty" doc:"Attributes of all nodes and of all links."`
	Groups      map[string]Group `json:"groups,omitempty" doc:"Attributes shared by some nodes. They override the defaults."`
	Nodes       map[string]Node  `json:"nodes" doc:"Routers, hosts and switches by name, or a list of names."`
	Links       []Link           `json:"links,omitempty" doc:"Each joins two interfaces, or more (a LAN)."`
	LSPs        []LSP            `json:"lsps,omitempty" doc:"Label-switched paths (MPLS) through the routers."`
	Checks      []Check          `json:"checks,omitempty" doc:"Statements about the running network, which pergola check verifies."`

	// Origin is the file it was read from, for the positions of errors; nil when the topology came as JSON.
	Origin *Origin `json:"-"`
}

// Origin is the text of a topology file.
type Origin struct {
	File string // its name
	Text []byte
}

// Addressing says which address families are used and where automatic addresses come from.
type Addressing struct {
	IPv4      *bool   `json:"ipv4,omitempty" doc:"false: no IPv4 addresses are chosen."`
	IPv6      *bool   `json:"ipv6,omitempty" doc:"false: no IPv6 addresses are chosen."`
	Loopbacks Strings `json:"loopbacks,omitempty" doc:"Pools of router loopbacks (/32 and /128)."`
	Links     Strings `json:"links,omitempty" doc:"Pools of point-to-point links (/31 and /127)."`
	LANs      Strings `json:"lans,omitempty" doc:"Pools of LANs (/24, /20 or /16, and /64)."`
}

// Defaults are the attributes that hold where neither group, node nor link says otherwise.
type Defaults struct {
	Node *Attributes     `json:"node,omitempty" doc:"Attributes of all nodes."`
	Link *LinkAttributes `json:"link,omitempty" doc:"Attributes of all links."`
}

// Group gives attributes to some nodes: to those of Members and to those that name the group.
type Group struct {
	Members Strings `json:"members,omitempty" doc:"Names of nodes."`
	Attributes
}

// Node is one router, host or switch.
type Node struct {
	Groups     Strings              `json:"groups,omitempty" doc:"Groups the node belongs to; a later one overrides an earlier one."`
	Position   *slice.Position      `json:"position,omitempty" doc:"Where the node is drawn: [latitude, longitude]."`
	Loopbacks  Strings              `json:"loopbacks,omitempty" doc:"Addresses of lo; a router without any gets them from the pool."`
	RouterID   string               `json:"router_id,omitempty" doc:"Router ID, an IPv4 address; the first IPv4 loopback if not given."`
	Interfaces map[string]Interface `json:"interfaces,omitempty" doc:"Attributes of single interfaces, by name."`
	Attributes
}

// Attributes are what defaults, groups and nodes can say. Maps are merged key by key, everything else is replaced.
type Attributes struct {
	Kind       slice.Kind   `json:"kind,omitempty" enum:"router,host,switch,uplink,program" doc:"What the node is. Default: program where program is given, router where daemon, routing, as or config is given, else host."`
	Daemon     slice.Daemon `json:"daemon,omitempty" enum:"frr,bird" doc:"Routing suite of a router. Default: frr."`
	Routing    Strings      `json:"routing,omitempty" enum:"ospf,isis,bgp,rip,static,none" doc:"Routing protocols of a router, one or a list. Default: ospf; with as: bgp, and ospf where the AS has several routers."`
	AS         uint32       `json:"as,omitempty" doc:"Autonomous system number (BGP)."`
	Reflector  *bool        `json:"reflector,omitempty" doc:"true: a route reflector; the other routers of its AS are its clients (BGP)."`
	Networks   Strings      `json:"networks,omitempty" doc:"Prefixes to originate beside loopbacks and the networks of hosts (BGP)."`
	Area       string       `json:"area,omitempty" doc:"Area of all interfaces, a number or dotted (OSPF). Default: 0."`
	Hello      Duration     `json:"hello,omitempty" doc:"Hello interval, whole seconds. Default: 1s."`
	Dead       Duration     `json:"dead,omitempty" doc:"Dead (hold) interval, whole seconds. Default: 10s."`
	FastHellos *bool        `json:"fast_hellos,omitempty" doc:"true: detect failures in less than a second, where the daemon can."`
	ISIS       *ISIS        `json:"isis,omitempty" doc:"Parameters of IS-IS."`

	FastPath slice.FastPath `json:"fastpath,omitempty" enum:"on,off" doc:"off: the router forwards in its own kernel alone. Default: on."`

	Program *Source  `json:"program,omitempty" doc:"Packet program of a node of kind program: an object file, or a C file, which pergola compiles."`
	Filters []Filter `json:"filters,omitempty" doc:"What the packet program looks up: filters, one a line, and files of them."`

	SlowPath slice.SlowPath `json:"slowpath,omitempty" enum:"interface,socket,none" doc:"Where frames go that the packet program punts: to the node's interface by which they came, to a process by the node's control socket, or nowhere. Default: interface."`

	Outside *Outside `json:"outside,omitempty" doc:"true: the node reaches what is outside of all networks, by its machine's addresses; or a map of rate and reserve. Only root, or where the machine allows it."`
	Ports   []Port   `json:"ports,omitempty" doc:"Ports of its machine's addresses that lead to the node: tcp/8080, udp/5610, or a map of bind, or of udp, interface, peers, rate. Only root, or where the machine allows it."`

	Reserve *Reserve `json:"reserve,omitempty" doc:"What the node has of its machine for itself, and may not exceed: a map of fastpath, filters, masks, memory, queues, buffer, bandwidth."`

	Config  map[string]*Source `json:"config,omitempty" doc:"Files of the routing daemon, used as they are: a path, a list of paths, or name: path. Nothing is generated then."`
	Gateway Strings            `json:"gateway,omitempty" doc:"Default gateway of a host: a router's name, addresses, or none. Default: the first router on its network."`
	Routes  []Route            `json:"routes,omitempty" doc:"Static routes: 10.0.0.0/8 via 10.1.1.1, or a map of to, via, interface, blackhole."`

	Image     string            `json:"image,omitempty" doc:"Image: a registry reference, or the path of an OCI layout (oci:PATH)."`
	Rootfs    *Source           `json:"rootfs,omitempty" doc:"Root file system: a directory or a tar archive. Default: the host's programs, read-only."`
	Cmd       Command           `json:"cmd,omitempty" doc:"First process: a list of arguments, or a line for the shell."`
	Args      Strings           `json:"args,omitempty" doc:"Arguments of the image's entrypoint, in place of the image's own. Not beside cmd."`
	User      string            `json:"user,omitempty" doc:"User of the first process: name or number, and :group. Default: that of the image, else root."`
	Stdin     *bool             `json:"stdin,omitempty" doc:"true: the standard input of the first process stays open and empty, so that a shell does not end. Default: it is at its end."`
	Env       map[string]string `json:"env,omitempty" doc:"Environment of the processes."`
	Files     map[string]File   `json:"files,omitempty" doc:"Files put into the node before it starts: path in the node: path beside the topology, or a map of content or source, and mode."`
	Binds     Strings           `json:"binds,omitempty" doc:"Paths of the host that the node sees, SOURCE:TARGET[:ro]. Only root may use them."`
	Volumes   Strings           `json:"volumes,omitempty" doc:"Directories that outlive the node, NAME:TARGET[:ro], and paths of the host, PATH:TARGET[:ro], as binds. Only root may use them, or where the machine allows it."`
	Devices   Strings           `json:"devices,omitempty" doc:"Devices of the host that the node sees, SOURCE[:TARGET][:ACCESS], such as /dev/kvm or /dev/ttyUSB0:/dev/ttyS0:rw. Only root may use them."`
	CapAdd    Strings           `json:"cap_add,omitempty" doc:"Capabilities that the node's root has beside those that all nodes have: IPC_LOCK, IPC_OWNER, LEASE, MKNOD, SETFCAP, SYS_NICE, SYS_RESOURCE, SYS_TIME. They are for what is the node's own."`
	Sysctls   map[string]string `json:"sysctls,omitempty" doc:"Kernel parameters of the node's namespaces, such as net.ipv4.ip_forward."`
	CPU       float64           `json:"cpu,omitempty" minimum:"0" maximum:"1024" doc:"Limit, in cores."`
	CPUPeriod Duration          `json:"cpu_period,omitempty" doc:"In which the limit of cpu holds, 1ms to 1s: a shorter one lets processes wait less for their next turn, and changes between them more often. Default: 100ms."`
	Memory    Bytes             `json:"memory,omitempty" doc:"Limit, such as 64MiB."`
	PIDs      int64             `json:"pids,omitempty" minimum:"0" maximum:"4194304" doc:"Limit of processes."`
	Exec      Strings           `json:"exec,omitempty" doc:"Shell commands, run once after each start."`
	WaitFor   Strings           `json:"wait_for,omitempty" doc:"Nodes on the same machine that the first process waits for: a name (until it runs), name:ready (until its exec lines have ended, too), or name:exited (until its first process has ended with status 0)."`
	Delay     Duration          `json:"start_delay,omitempty" doc:"Time between the making of the node and the start of its first process, up to 1h. Default: none."`
	Restart   slice.Restart     `json:"restart,omitempty" enum:"always,on-failure,never" doc:"What happens when the first process ends. Default: always."`
	Labels    map[string]string `json:"labels,omitempty" doc:"Free text for people and tools."`

	Host       string            `json:"host,omitempty" doc:"Machine of the cluster that the node runs on. Default: any."`
	HostLabels map[string]string `json:"host_labels,omitempty" doc:"Labels that this machine must have."`
	Reschedule slice.Reschedule  `json:"reschedule,omitempty" enum:"always,never" doc:"Whether the node starts elsewhere when its machine is lost. Default: never."`
}

// Reserve is what a node has of its machine for itself.
type Reserve struct {
	FastPath float64 `json:"fastpath,omitempty" minimum:"0" maximum:"1024" doc:"Processor time of the packet program, in cores."`
	Filters  int     `json:"filters,omitempty" minimum:"0" maximum:"131072" doc:"Filters of the packet program, in all its tables. Without: up to 4096, as long as those last that all share."`
	Masks    int     `json:"masks,omitempty" minimum:"0" maximum:"2048" doc:"Different masks that these filters have, counted by table. Without: up to 64, as above."`
	Memory   Bytes   `json:"memory,omitempty" doc:"Memory that the packet program declares, at most 16MiB. Without: up to 1MiB."`
	Queues   int     `json:"queues,omitempty" minimum:"0" maximum:"24576" doc:"Queues among which the packet program chooses, at all interfaces, each number 0 included. Without: up to 1024, as above."`
	Buffer   Bytes   `json:"buffer,omitempty" doc:"What the lengths of these queues add up to; a frame counts as one of the interface's MTU. Without: up to 128MiB, as above."`

	Bandwidth map[string]Rate `json:"bandwidth,omitempty" doc:"Bits a second of its machine's card that the node has for what it sends by an interface: eth1: 100Mbit. Without: the rate of the link."`
}

// Outside is a node's connection with the outside. Written as true or false, it is On alone.
type Outside struct {
	On      *bool       `json:"on,omitempty" doc:"false: the node makes no connections, and the rest holds for its ports. Default: true."`
	Rate    PolicedRate `json:"rate,omitempty" doc:"Bits a second that it may send there, and as many that it gets, those of its ports included. Default: 100Mbit."`
	Reserve PolicedRate `json:"reserve,omitempty" doc:"Bits a second of these that it has of its machine's card for itself. Default: none."`
}

// IsOn reports whether the node may make connections; nil: nothing is written.
func (o *Outside) IsOn() bool { return o != nil && (o.On == nil || *o.On) }

// Port is a port of the machine's addresses. Exactly one of Port, UDP and Bind is given.
type Port struct {
	Port      string     `json:"port,omitempty" doc:"tcp/8080 or udp/5610: leads to the node's interface outside."`
	Bind      PortsRange `json:"bind,omitempty" doc:"Range of ports, of TCP and of UDP: 20000-20999. A port of it that a process in the node binds leads to the node for as long as it is bound."`
	UDP       int        `json:"udp,omitempty" minimum:"1" maximum:"65535" doc:"Number of a UDP port that is an interface of the packet program."`
	Interface string     `json:"interface,omitempty" doc:"Name of that interface. Default: udp and the number."`
	Peers     Strings    `json:"peers,omitempty" doc:"IPv4 addresses and prefixes that the packet program may send to by that interface. Default: none."`
	Rate      Rate       `json:"rate,omitempty" doc:"Bits a second that it may send there, with headers. Default: 100Mbit."`
}

// ISIS are the parameters of IS-IS.
type ISIS struct {
	Area  string `json:"area,omitempty" doc:"Area address. Default: 49.0001."`
	NET   string `json:"net,omitempty" doc:"Whole network entity title. Default: area and router ID."`
	Level string `json:"level,omitempty" enum:"1,2,1-2" doc:"Level. Default: 2."`
}

// Interface is what a node says about one of its interfaces.
type Interface struct {
	Addresses Strings `json:"addresses,omitempty" doc:"Addresses with prefix length. They replace the automatic ones of their family."`
	Cost      int     `json:"cost,omitempty" minimum:"0" maximum:"65535" doc:"OSPF cost or IS-IS metric."`
	Area      string  `json:"area,omitempty" doc:"OSPF area."`
	Passive   *bool   `json:"passive,omitempty" doc:"true: announced, but no adjacency is made. Default: where no other router is on the network."`
	MTU       int     `json:"mtu,omitempty" minimum:"68" maximum:"65535" doc:"Bytes of payload, where it differs from the link's."`

	Management *bool `json:"management,omitempty" doc:"true: the interface is for management alone: no check uses it, and the node's name means it only where there is no other address."`
}

// Link joins two interfaces, or more (a LAN).
type Link struct {
	Name      string             `json:"name,omitempty" doc:"Name. Default: a:eth1--b:eth1."`
	Ends      []End              `json:"ends" doc:"Nodes (a) or interfaces (a:eth1) that the link joins."`
	LAN       bool               `json:"lan,omitempty" doc:"true: an Ethernet segment also when it has two ends."`
	Subnets   Strings            `json:"subnets,omitempty" doc:"Networks of the link, at most one of each family."`
	Addresses map[string]Strings `json:"addresses,omitempty" doc:"Addresses of its ends, by node or node:interface."`
	From      map[string]Shape   `json:"from,omitempty" doc:"Shaping of one direction: of the frames that this end (node or node:interface) sends."`
	LinkAttributes
}

// LinkAttributes are what defaults and links can say.
type LinkAttributes struct {
	MTU  int    `json:"mtu,omitempty" minimum:"68" maximum:"65535" doc:"Bytes of payload. Default: 1500."`
	Cost int    `json:"cost,omitempty" minimum:"0" maximum:"65535" doc:"OSPF cost or IS-IS metric."`
	Area string `json:"area,omitempty" doc:"OSPF area."`
	IPv4 *bool  `json:"ipv4,omitempty" doc:"false: no IPv4 addresses are chosen."`
	IPv6 *bool  `json:"ipv6,omitempty" doc:"false: no IPv6 addresses are chosen."`

	Tunnel slice.TunnelKind `json:"tunnel,omitempty" enum:"egre,vxlan" doc:"What carries frames from machine to machine: egre (GRE with a key) or vxlan. Default: egre."`
	DSCP   DSCP             `json:"dscp,omitempty" enum:"copy,none" doc:"copy: the tunnel's packets have the DSCP of those within. Default: none, that is 0."`

	StormControl FrameRate `json:"storm_control,omitempty" doc:"Broadcast and multicast frames a second that a LAN or switch sends to each other machine: 500pps, 20kpps, off. Default: 10kpps."`
	Shape
}

// DSCP says what a tunnel's packets have there.
type DSCP string

// The settings.
const (
	DSCPCopy DSCP = "copy"
	DSCPNone DSCP = "none"
)

// Shape is what happens to frames in one direction, or in both.
type Shape struct {
	Rate   Rate     `json:"rate,omitempty" doc:"Bits a second: 10Mbit, 1G."`
	Delay  Duration `json:"delay,omitempty" doc:"Added, one way: 10ms."`
	Jitter Duration `json:"jitter,omitempty" doc:"Standard deviation of the delay."`
	Loss   Percent  `json:"loss,omitempty" doc:"Share of frames lost: 1%."`
	Queue  int      `json:"queue,omitempty" minimum:"0" maximum:"1000000" doc:"Frames that wait before the tail is dropped."`

	Police *Policer `json:"police,omitempty" doc:"Bits a second above which frames are dropped at once: 10Mbit, or a map of rate and burst."`

	Classes map[string]Class `json:"classes,omitempty" doc:"Parts of the rate, by name: each with the frames that it is for, its share and what it reserves."`
	Queues  map[string]Queue `json:"queues,omitempty" doc:"Parts of the rate, by number, from 1 without gaps: a packet program chooses one for each frame (packet->queue). Number 0 takes all other frames."`
}

// Queue is a part of a link's rate that a packet program chooses by number.
type Queue struct {
	Share   *int        `json:"share,omitempty" doc:"Weight among the queues in which frames wait, 1 to 100. Default: 1; of queue 0, the least of the others."`
	Length  QueueLength `json:"length,omitempty" doc:"What waits before the tail is dropped: frames, such as 200, or bytes, such as 64KiB. Default: as many full frames as the queue sends in 100 ms, 64 to 1000; fewer, but at least 64, where those of a node would exceed half of its buffer."`
	Rate    Rate        `json:"rate,omitempty" doc:"Bits a second that the queue gets at most. Default: the link's rate."`
	Reserve Rate        `json:"reserve,omitempty" doc:"Bits a second that the queue gets whenever it wants them."`
	// Priority is as that of classes.
	Priority int `json:"priority,omitempty" minimum:"1" maximum:"8" doc:"Order in which queues get what is left after reservations: 1 first, 8 last. Default: 8."`
}

// Policer drops what exceeds a rate.
type Policer struct {
	Rate  PolicedRate `json:"rate" doc:"Bits a second: 10Mbit. 0: nothing is dropped."`
	Burst Burst       `json:"burst,omitempty" doc:"Bytes that may come at once: 64KiB. Default: those of 100 ms, and at least ten frames."`
}

// Route is one static route.
type Route struct {
	To        string `json:"to" doc:"Destination: a prefix, an address, or default."`
	Via       string `json:"via,omitempty" doc:"Next hop."`
	Interface string `json:"interface,omitempty" doc:"Outgoing interface."`
	Blackhole bool   `json:"blackhole,omitempty" doc:"true: packets are dropped."`
}

// File is a file that is put into a node: Content as written in the topology, or what Source names.
type File struct {
	Content string  `json:"content,omitempty" doc:"The file's content."`
	Source  *Source `json:"source,omitempty" doc:"Path of a file beside the topology."`
	Mode    string  `json:"mode,omitempty" doc:"Permissions, octal. Default: 0644."`
}

// Source is a file that the topology names. The caller that read the topology reads it too, with its own permissions.
// Relative paths are relative to the topology's directory.
type Source struct {
	Path string `json:"path" doc:"Path as written."`
	Data []byte `json:"data,omitzero" doc:"Content (base64)."`
	// SHA256 is in place of Data for a tar archive, which is too large to be sent inside a topology.
	SHA256 string `json:"sha256,omitempty" doc:"Digest of an archive that is sent apart, in hex."`
	// Where is the path in the topology that names the file, as in Diagnostic.Path. Sources fills it.
	Where string `json:"-"`
	// IsProgram is true of a packet program: Data is its object. Sources fills it.
	IsProgram bool `json:"-"`
}

// Filter is one filter of a packet program, as written in the topology, or the filters in a file, one a line.
type Filter struct {
	Filter string  `json:"filter,omitempty" doc:"[table N] [priority N] FIELD=VALUE[/MASK]... -> VERDICT."`
	Source *Source `json:"source,omitempty" doc:"Path of a file of filters beside the topology."`
}

// LSP is a label-switched path. It leads one way.
type LSP struct {
	Name  string         `json:"name,omitempty" doc:"Name. Default: first--last router of the path."`
	Path  Strings        `json:"path" doc:"Routers on the way, each a neighbour of the one before: [pe1, p1, pe2]. Where two links join them, pe1:eth2 says by which interface packets leave. With signalling, others may be between them, and pe1:eth2 is a link that the path has."`
	To    Strings        `json:"to,omitempty" doc:"Prefixes whose packets go this way, if the first router has a route to exactly this prefix. Default: the loopback addresses of the last router."`
	Match []Match        `json:"match,omitempty" doc:"In place of to: rules, one of which has to match, as those of classes. Packets that the first router forwards to another router go this way if they match, wherever they are for. Of several LSPs the first by name gets them."`
	Last  LastLabel      `json:"last_label,omitempty" enum:"implicit-null,explicit-null,own" doc:"With which label packets come to the last router: none, as the router before takes it off; label 0 or 2; or one of its own. Default: implicit-null; own, and nothing else, with signalling."`
	TTL   slice.TTLModel `json:"ttl,omitempty" enum:"uniform,pipe" doc:"uniform: each router on the way counts as a hop, and traceroute shows it; pipe: the path is one hop. Default: uniform."`

	Signalling Signalling   `json:"signalling,omitempty" enum:"static,rsvp" doc:"static: the labels are chosen with the file; rsvp: the routers agree on them by RSVP-TE, and reserve bandwidth. Default: rsvp where there is a bandwidth, else static."`
	Bandwidth  Rate         `json:"bandwidth,omitempty" doc:"That each link of the path reserves for it."`
	Excess     slice.Excess `json:"excess,omitempty" enum:"demote,drop" doc:"What becomes of packets that exceed the bandwidth: they go on as best effort, or no further. Default: demote."`
	Setup      *int         `json:"setup_priority,omitempty" minimum:"0" maximum:"7" doc:"Which LSPs this one may take bandwidth from: those with a worse holding priority. 0 is the best. Default: 7."`
	Holding    *int         `json:"holding_priority,omitempty" minimum:"0" maximum:"7" doc:"Which LSPs may take bandwidth from this one. Default: the set-up priority."`

	Protect slice.Protection `json:"protect,omitempty" enum:"link,none" doc:"link: where a link of the path fails, the router before it sends packets round it at once (fast reroute). Only with signalling rsvp. Default: none; the path is set up again."`
}

// Signalling is how the routers of an LSP learn its labels.
type Signalling string

// The settings.
const (
	SignallingStatic Signalling = "static"
	SignallingRSVP   Signalling = "rsvp"
)

// LastLabel is the label that the last router of an LSP wants (RFC 3032, 2.1; RFC 3031, 3.16).
type LastLabel string

// The settings.
const (
	LastImplicitNull LastLabel = "implicit-null"
	LastExplicitNull LastLabel = "explicit-null"
	LastOwn          LastLabel = "own"
)

// Check is one statement about the running network. Exactly one of Ping, Path and Exec is given.
type Check struct {
	Name    string   `json:"name,omitempty" doc:"Name in the report."`
	Ping    Strings  `json:"ping,omitempty" doc:"[from, to]: from reaches to by ICMP echo; to is a node or an address."`
	Path    Strings  `json:"path,omitempty" doc:"[from, via, ..., to]: packets pass these nodes in this order."`
	Exec    string   `json:"exec,omitempty" doc:"Shell command that runs in node."`
	Node    string   `json:"node,omitempty" doc:"Node that runs exec."`
	Status  int      `json:"status,omitempty" minimum:"0" maximum:"255" doc:"Wanted exit status of exec."`
	Output  string   `json:"output,omitempty" doc:"Regular expression (RE2) that the output of exec matches."`
	Fails   bool     `json:"fails,omitempty" doc:"true: the check holds when the statement does not."`
	Timeout Duration `json:"timeout,omitempty" doc:"How long to try. Default: 5s."`
}

// Strings is a list; the file may write a single element without brackets.
type Strings []string

// Command is the arguments of a process; the file may write one line for the shell.
type Command []string

// End is an end of a link as users write it: node or node:interface.
type End string

// Node is the name of the end's node.
func (e End) Node() string { node, _, _ := strings.Cut(string(e), ":"); return node }

// Interface is the name of the end's interface, empty where the file leaves the choice to Pergola.
func (e End) Interface() string { _, name, _ := strings.Cut(string(e), ":"); return name }

// IsPath reports whether the source of a volume is a path of the host, and not a name.
func IsPath(source string) bool {
	return strings.ContainsRune(source, '/') || source == "." || source == ".."
}

// Arrow stands in every filter, so that a name of a file can be told from one.
const Arrow = "->"

// IsArchive reports whether the source, as a root file system, is a tar archive and not a directory.
func (s *Source) IsArchive() bool {
	for _, suffix := range []string{".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.xz", ".tar.bz2"} {
		if strings.HasSuffix(s.Path, suffix) {
			return true
		}
	}
	return false
}
