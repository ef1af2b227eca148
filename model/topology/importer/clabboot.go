package importer

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"github.com/pergola-net/pergola/model/topology"
	"github.com/pergola-net/pergola/model/topology/yamltree"
)

// boot says how containerlab starts the containers of a vendor's kind (https://containerlab.dev/manual/kinds). What it
// does to have the interfaces there before the first process is not needed here: they always are.
type boot struct {
	env        map[string]string
	sysctls    map[string]string
	user       string
	args       []string                         // of the image's entrypoint
	command    func(map[string]string) []string // in place of the image's own, from the environment
	exec       []string                         // after the start, before the file's commands
	config     string                           // where the vendor's system looks for its configuration
	initial    string                           // configuration of a node without startup-config, a template
	license    string                           // where it looks for its licence
	management string                           // its interface in the management network; empty: eth0
}

// srlWait awaits that SR Linux takes configuration; both signs are those that containerlab awaits.
const srlWait = `for i in $(seq 150); do ` +
	`grep -qs 'loaded initial configuration' ` +
	`/etc/opt/srlinux/devices/app_ephemeral.mgmt_server.ready_for_config && break; sleep 2; done`

const srlCLI = "/tmp/startup-config.cli"

var boots = map[string]boot{
	"nokia_srlinux": {
		env:  map[string]string{"SRLINUX": "1"},
		user: "0:0",
		args: []string{"sudo", "-E", "bash", "-c", "touch /.dockerenv && /opt/srlinux/bin/sr_linux"},
		sysctls: map[string]string{"net.ipv4.ip_forward": "0", "net.ipv6.conf.all.disable_ipv6": "0",
			"net.ipv6.conf.all.accept_dad": "0", "net.ipv6.conf.default.accept_dad": "0",
			"net.ipv6.conf.all.autoconf": "0", "net.ipv6.conf.default.autoconf": "0"},
		config:     "/etc/opt/srlinux/config.json",
		license:    "/opt/srlinux/etc/license.key",
		management: "mgmt0",
	},
	"arista_ceos": {
		env: map[string]string{"CEOS": "1", "EOS_PLATFORM": "ceoslab", "container": "docker", "ETBA": "1",
			"SKIP_ZEROTOUCH_BARRIER_IN_SYSDBINIT": "1", "INTFTYPE": "eth", "MAPETH0": "1",
			"MGMT_INTF": "eth0"},
		command: func(env map[string]string) []string { // systemd does not hand its environment on
			words := []string{"/sbin/init"}
			for _, key := range slices.Sorted(maps.Keys(env)) {
				words = append(words, "systemd.setenv="+key+"="+env[key])
			}
			return words
		},
		config: "/mnt/flash/startup-config",
		initial: "hostname {{ .ShortName }}\nusername admin privilege 15 secret admin\n" +
			"service routing protocols model multi-agent\nip routing\nipv6 unicast-routing\nend\n",
	},
	"juniper_crpd": {config: "/config/juniper.conf", license: "/config/license/license.lic"},
	"cisco_xrd": {
		env: map[string]string{"XR_FIRST_BOOT_CONFIG": "/etc/xrd/first-boot.cfg",
			"XR_MGMT_INTERFACES": "linux:eth0,xr_name=Mg0/RP0/CPU0/0,chksum,snoop_v4,snoop_v6"},
		config:  "/etc/xrd/first-boot.cfg",
		initial: "hostname {{ .ShortName }}\nusername clab\n group root-lr\n secret clab@123\n!\nend\n",
	},
	"sonic-vs": {
		exec: []string{"for i in $(seq 60); do supervisorctl start bgpd && break; sleep 1; done"},
	},
	"vyosnetworks_vyos": {config: "/opt/vyatta/etc/config/config.boot"},
}

// bootNames are older names of such kinds.
var bootNames = map[string]string{"srl": "nokia_srlinux", "ceos": "arista_ceos", "crpd": "juniper_crpd",
	"xrd": "cisco_xrd"}

// bootOf gives how containers of a kind start; false where its image is not a container that can start here.
func bootOf(kind string) (boot, bool) {
	if now, old := bootNames[kind]; old {
		kind = now
	}
	b, ok := boots[kind]
	return b, ok
}

// bootedKeys are keys of nodes that run the vendor's image, beside those of kind linux.
var bootedKeys = []string{"startup-config", "license"}

// boot makes a node run its vendor's image as containerlab starts it. linux has read the keys that all containers have.
func (c *clab) boot(n *clabNode, out *topology.Node) {
	b, _ := bootOf(n.kind)
	c.leaveAt(n.name, "privileges of kind "+n.kind, c.kindOf(n).Position,
		lack{changesNodes, "nodes run in a user namespace: what an image may not do there fails"})
	all := maps.Clone(b.env)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, out.Env)
	out.Env = all
	for key, value := range b.sysctls {
		if _, written := c.merged(n, "sysctls")[key]; !written {
			out.Sysctls[key] = value
		}
	}
	if out.User == "" {
		out.User = b.user
	}
	if len(out.Cmd) == 0 && len(out.Args) == 0 {
		out.Args = b.args
		if b.command != nil {
			out.Cmd = b.command(out.Env)
		}
	}
	out.Exec = append(slices.Clone(topology.Strings(b.exec)), out.Exec...)
	if at := n.find("license"); at.Kind != yamltree.Null && b.license != "" {
		c.put(out, b.license, topology.File{Source: &topology.Source{Path: c.magic(n, c.str(at, "license"))}})
	}
	c.startupConfig(n, out, b)
}

func (c *clab) put(out *topology.Node, target string, f topology.File) {
	if _, bound := out.Files[target]; bound {
		return // the file binds one
	}
	if out.Files == nil {
		out.Files = map[string]topology.File{}
	}
	out.Files[target] = f
}

var remoteConfig = regexp.MustCompile(`^(https?|s3)://`)

// startupConfig puts the configuration where the vendor's system looks for it.
func (c *clab) startupConfig(n *clabNode, out *topology.Node, b boot) {
	at := n.find("startup-config")
	name := c.magic(n, c.str(at, "startup-config"))
	switch {
	case b.config == "":
		if name != "" {
			c.leaveAt(n.name, "startup-config", at.Position,
				lack{changesTraffic, "containers of kind " + n.kind + " read none"})
		}
		return
	case name == "" && b.initial == "":
		return
	case remoteConfig.MatchString(name):
		c.leaveAt(n.name, "startup-config", at.Position,
			lack{changesTraffic, "nothing is fetched: put the file beside the topology"})
		return
	}
	text, source := b.initial, ""
	switch {
	case strings.Contains(name, "\n"): // the configuration itself
		text = at.Text
	case name != "":
		text, source = c.readConfig(name), name
	}
	if text == "" { // the caller that reads the file says why it cannot
		c.put(out, b.config, topology.File{Source: &topology.Source{Path: source}})
		return
	}
	filled, err := fillConfig(text, n.name, out.Env)
	if err != nil {
		c.fail(at.Position, "", "startup-config of node %q: %v", n.name, err)
		return
	}
	if strings.HasSuffix(b.config, ".json") && !json.Valid([]byte(filled)) { // commands, as SR Linux has them
		c.put(out, srlCLI, topology.File{Content: strings.TrimRight(filled, "\n") + "\ncommit save\n"})
		out.Exec = append(topology.Strings{
			srlWait + "; /opt/srlinux/bin/sr_cli -ed <" + srlCLI}, out.Exec...)
		return
	}
	c.put(out, b.config, topology.File{Content: filled})
}

// readConfig reads a file beside the topology; it is empty where that cannot be.
func (c *clab) readConfig(name string) string {
	info := c.stat(name)
	if info == nil || info.IsDir() || info.Size() > maxConfig {
		return ""
	}
	data, err := fs.ReadFile(c.opt.Dir, path.Clean(name))
	if err != nil {
		return ""
	}
	return string(data)
}

// fillConfig executes a configuration as a template, as containerlab does.
func fillConfig(text, node string, env map[string]string) (string, error) {
	if !strings.Contains(text, templateMark) {
		return text, nil
	}
	t, err := template.New("startup-config").Funcs(templateFuncs).Parse(text)
	if err != nil {
		return "", fmt.Errorf("fill in the template: %w", err)
	}
	var out limitedBuffer
	if err := t.Execute(&out, map[string]any{"ShortName": node, "Env": env}); err != nil {
		return "", fmt.Errorf("fill in the template: %w", err)
	}
	return out.String(), nil
}

var srlFace = regexp.MustCompile(`^ethernet-(\d+)/(\d+)(?:/(\d+))?$`)

// bootedFace gives the name that an interface has in the vendor's container.
func bootedFace(name string) string {
	if m := srlFace.FindStringSubmatch(name); m != nil {
		name = "e" + m[1] + "-" + m[2]
		if m[3] != "" {
			name += "-" + m[3]
		}
		return name
	}
	return strings.ReplaceAll(name, "/", "-")
}

// nameFaces tells XRd which interfaces there are: it takes those alone that its environment names.
func (c *clab) nameFaces() {
	nodes := c.byName()
	for _, l := range c.out.Links {
		for _, e := range l.Ends {
			n := nodes[e.Node()]
			if n == nil || n.as != AsImage || n.kind != "cisco_xrd" && n.kind != "xrd" ||
				e.Interface() == managementFace(n) {
				continue
			}
			n.out.Env["XR_INTERFACES"] += fmt.Sprintf("linux:%s,xr_name=%s;", e.Interface(),
				strings.ReplaceAll(e.Interface(), "-", "/"))
		}
	}
}

// byName gives the nodes that are made, by the names that they have here.
func (c *clab) byName() map[string]*clabNode {
	nodes := make(map[string]*clabNode, len(c.nodes))
	for name, n := range c.nodes {
		if n.out != nil {
			nodes[c.renamed[name]] = n
		}
	}
	return nodes
}
