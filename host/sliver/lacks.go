package sliver

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/pergola-net/pergola/host/lack"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/model/slice"
)

// Lacks says what the machine does not have for nodes, without making them: sources of binds, devices, sysctls, and in
// nodes with the machine's own programs that of the command. Doubtful are programs of exec lines, which may be meant to
// fail. Root file systems are looked for by Available.
func (r *Runtime) Lacks(nodes []*slice.Node) (certain, doubtful []lack.Lack) {
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(n *slice.Node) bool { return !n.HasSliver() })
	missing := missingSysctls(nodes)
	for _, n := range nodes {
		some, others := lacksOf(n, missing)
		certain, doubtful = append(certain, some...), append(doubtful, others...)
	}
	return certain, doubtful
}

func lacksOf(n *slice.Node, sysctls map[string]bool) (certain, doubtful []lack.Lack) {
	add := func(to *[]lack.Lack, pack, format string, args ...any) {
		*to = append(*to, lack.Lack{
			What: fmt.Sprintf(format, args...), Nodes: []string{n.Name}, Package: pack,
		})
	}
	for _, b := range n.Binds {
		if _, err := os.Stat(b.Source); err != nil {
			add(&certain, "", "bind %s: %v", b.Source, missing(err))
		}
	}
	for _, d := range n.Devices {
		if _, err := statDevice(d.Source); err != nil {
			add(&certain, "", "%v%s", err, bringer(d.Source))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(n.Sysctls)) {
		if !sysctls[key] {
			continue
		}
		add(&certain, "", "the kernel gives a node no sysctl %s%s", key, moduleOf(key))
	}
	if !n.Rootfs.FromMachine() {
		return certain, nil // what an image has is known when it is here
	}
	v := view{n, environment(nil, n.Name, n.Env)}
	if len(n.Command) > 0 && !v.finds(n.Command[0]) {
		add(&certain, lack.Package(path.Base(n.Command[0])), "find command %q in %s", n.Command[0],
			v.where(n.Command[0]))
	}
	for _, line := range n.Exec {
		if word := programOf(line); word != "" && !v.finds(word) {
			add(&doubtful, lack.Package(path.Base(word)), "exec %q: find %q in %s", line, word,
				v.where(word))
		}
	}
	return certain, doubtful
}

// view is what a node with the machine's own programs will see when its command starts; see hostRootfs.
type view struct {
	node *slice.Node
	env  []string
}

// finds looks for a program as findCommand will.
func (v view) finds(name string) bool {
	if strings.Contains(name, "/") {
		return v.has(path.Join("/", name))
	}
	return slices.ContainsFunc(strings.Split(lookup(v.env, "PATH"), ":"), func(dir string) bool {
		return v.has(path.Join("/", dir, name))
	})
}

func (v view) where(name string) string {
	if strings.Contains(name, "/") {
		return "the node"
	}
	return "PATH " + lookup(v.env, "PATH") + " of the node"
}

// has reports whether a path will be a program in the node. Files of the topology are taken to be one.
func (v view) has(name string) bool {
	name = merged(name)
	if slices.ContainsFunc(v.node.Files, func(f slice.File) bool { return merged(f.Path) == name }) {
		return true
	}
	source, bound := name, ""
	for _, b := range v.node.Binds {
		target := merged(b.Target)
		if rest, ok := beneath(name, target); ok && len(target) > len(bound) {
			source, bound = filepath.Join(b.Source, rest), target
		}
	}
	if bound == "" && !machineHas(name) {
		return false
	}
	info, err := os.Stat(source)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}

// beneath gives the rest of a path that is a directory or lies in it.
func beneath(name, dir string) (rest string, ok bool) {
	if name == dir {
		return "", true
	}
	return strings.CutPrefix(name, strings.TrimSuffix(dir, "/")+"/")
}

// machineHas reports whether nodes see the machine's file of that name.
func machineHas(name string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(name, "/"), "/")
	return first == "etc" || slices.Contains(shownNames, first)
}

// merged is a path without a symbolic link of the machine as its first part: /usr/bin/sh for /bin/sh.
func merged(name string) string {
	name = path.Join("/", name)
	first, rest, _ := strings.Cut(name[1:], "/")
	if !slices.Contains(shownNames, first) {
		return name
	}
	to, err := os.Readlink("/" + first)
	if err != nil {
		return name
	}
	return path.Join("/", to, rest)
}

// firstWord is a plain word at the beginning of a shell's line, if the shell runs a program of that name: no
// assignment, no definition of a function, nothing that is quoted or expanded.
var firstWord = regexp.MustCompile(`^\s*([\w./+-]+)(?:\s*$|\s+[^\s(]|[;&|<>])`)

// programOf is the program that a line of exec begins with; "": that cannot be told.
func programOf(line string) string {
	m := firstWord.FindStringSubmatch(line)
	if m == nil {
		return ""
	}
	word := m[1]
	if slices.Contains(shellWords, word) || strings.Contains(word, "/") && !path.IsAbs(word) {
		return ""
	}
	return word
}

// shellWords are no programs: keywords and builtins of the shells that are /bin/sh somewhere.
var shellWords = strings.Fields(`if then else elif fi for while until do done case esac in select function time coproc
	. alias bg bind break builtin caller cd chdir command compgen complete compopt continue declare dirs disown echo
	enable eval exec exit export false fc fg getopts hash help history jobs kill let local logout mapfile popd
	printf pushd pwd read readarray readonly return set shift shopt source suspend test times trap true type typeset
	ulimit umask unalias unset wait`)

// missingSysctls gives the settings of nodes that a new node would not have. Those of an interface are looked for at
// lo, which is the only one in the namespace that is made for all of them.
func missingSysctls(nodes []*slice.Node) (keys map[string]bool) {
	all := map[string]bool{}
	for _, n := range nodes {
		for key := range n.Sysctls {
			all[key] = true
		}
	}
	if len(all) == 0 {
		return nil
	}
	look := func() error {
		maps.DeleteFunc(all, func(key string, _ bool) bool {
			name := slice.SysctlPath(key)
			if part := strings.Split(name, "/"); isOfInterface(part) {
				part[3] = "lo"
				name = path.Join(part...)
			}
			_, err := os.Stat(filepath.Join("/proc/sys", name))
			return !os.IsNotExist(err)
		})
		return nil
	}
	if err := netns.New(look); err != nil {
		return nil // creating the node will say why
	}
	return all
}

// isOfInterface reports whether a kernel parameter, given in parts, is that of an interface which is made later.
func isOfInterface(name []string) bool {
	return len(name) > 3 && name[0] == "net" && (name[2] == "conf" || name[2] == "neigh") &&
		!slices.Contains([]string{"all", "default", "lo"}, name[3])
}

// moduleOf names the module that brings a kernel parameter, for a person.
func moduleOf(key string) string {
	name := slice.SysctlPath(key)
	for _, m := range []struct{ dir, module string }{
		{"net/mpls/", "mpls_router"}, {"net/bridge/", "br_netfilter"}, {"net/netfilter/", "nf_conntrack"},
	} {
		if strings.HasPrefix(name, m.dir) {
			return " (modprobe " + m.module + " brings it)"
		}
	}
	return ""
}
