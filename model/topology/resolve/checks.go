package resolve

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"time"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology/diagnostic"
	"github.com/pergola-net/pergola/model/topology/file"
)

const defaultTimeout = 5 * time.Second

// makeChecks resolves the checks.
func (r *resolver) makeChecks() {
	names := map[string]bool{}
	for i, in := range r.t.Checks {
		at := diagnostic.Root.At("checks").Item(i)
		out, ok := r.check(in, at)
		if !ok {
			continue
		}
		out.Name = cmp.Or(in.Name, describeCheck(out))
		if names[out.Name] && in.Name != "" {
			r.Add(at.At("name"), "", "two checks are called %q", in.Name)
		}
		for base, k := out.Name, 2; names[out.Name]; k++ {
			out.Name = fmt.Sprintf("%s (%d)", base, k)
		}
		names[out.Name] = true
		r.out.Checks = append(r.out.Checks, out)
	}
}

func (r *resolver) check(in file.Check, at *diagnostic.Path) (out slice.Check, ok bool) {
	before := len(r.Found)
	out = slice.Check{Fails: in.Fails, Timeout: defaultTimeout}
	if in.Timeout != "" {
		out.Timeout = checked(in.Timeout.Duration())
		if out.Timeout == 0 || out.Timeout > 24*time.Hour {
			r.Add(at.At("timeout"), "", "timeout %s is out of range: more than 0, at most 24h", in.Timeout)
		}
	}
	given := 0
	for _, there := range []bool{len(in.Ping) > 0, len(in.Path) > 0, in.Exec != ""} {
		if there {
			given++
		}
	}
	if given != 1 {
		r.Add(at, "write such as ping: [a, b]",
			"a check has one of ping, path and exec, this one has %d", given)
		return out, false
	}
	if in.Exec == "" && (in.Node != "" || in.Status != 0 || in.Output != "") {
		r.Add(at, "", "node, status and output belong to exec")
	}
	switch {
	case len(in.Ping) > 0:
		r.checkRoute(&out, in.Ping, at.At("ping"), 2)
		out.Kind = slice.CheckPing
	case len(in.Path) > 0:
		r.checkRoute(&out, in.Path, at.At("path"), 0)
		out.Kind = slice.CheckPath
	default:
		out.Kind, out.From, out.Command, out.Status, out.Output = slice.CheckExec, in.Node, in.Exec,
			in.Status, in.Output
		r.checkNode(in.Node, at.At("node"))
		if _, err := regexp.Compile(in.Output); err != nil {
			r.Add(at.At("output"), "RE2 syntax", "output is not a regular expression: %v", err)
		}
	}
	return out, len(r.Found) == before
}

// checkRoute reads [from, to] or [from, via, ..., to].
func (r *resolver) checkRoute(out *slice.Check, route file.Strings, at *diagnostic.Path, want int) {
	if len(route) < 2 || want > 0 && len(route) != want {
		r.Add(at, "write [from, to]", "%d names where two ends are wanted", len(route))
		return
	}
	for i, name := range route {
		if _, err := netip.ParseAddr(name); err == nil && i == len(route)-1 {
			continue
		}
		r.checkNode(name, at.Item(i))
	}
	out.From, out.Via, out.To = route[0], route[1:len(route)-1], route[len(route)-1]
	if len(out.Via) == 0 {
		out.Via = nil
	}
}

// checkNode wants the name of a node that can run a command.
func (r *resolver) checkNode(name string, at *diagnostic.Path) {
	n := r.byName[name]
	switch {
	case name == "":
		r.Add(at, "write node: a", "no node is named")
	case n == nil:
		r.unknownNode(at, name)
	case n.kind == slice.Switch || n.kind == slice.Uplink:
		r.Add(at, "name a router or a host", "%q is a %s, which runs nothing", name, n.kind)
	}
}

// describeCheck names a check that has no name.
func describeCheck(c slice.Check) string {
	not := ""
	if c.Fails {
		not = "not "
	}
	switch c.Kind {
	case slice.CheckExec:
		return fmt.Sprintf("%s%s: %s", not, c.From, c.Command)
	case slice.CheckPath:
		return not + strings.Join(append(append([]string{c.From}, c.Via...), c.To), " > ")
	default:
		return fmt.Sprintf("%s%s reaches %s", not, c.From, c.To)
	}
}
