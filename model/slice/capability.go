package slice

import (
	"fmt"
	"slices"
	"strings"
)

// Capabilities that every node's root user has, in its own user namespace: those that routing daemons and common tools
// need. FRR's zebra requires SYS_ADMIN (zebra/main.c, _caps_p).
var Capabilities = []string{
	"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_ADMIN", "NET_BIND_SERVICE",
	"NET_BROADCAST", "NET_RAW", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT", "SYS_PTRACE", "SYS_ADMIN",
}

// moreCapabilities are those that a node may ask for. In a user namespace they reach what belongs to the node alone:
// its processes (SYS_NICE, SYS_RESOURCE), its System V IPC (IPC_LOCK, IPC_OWNER), its files (SETFCAP). For the rest of
// what they stand for, the kernel asks for the capability in the machine's own user namespace (capable()), which no
// node has: a node with SYS_TIME does not set the clock, one with MKNOD makes no device. They are given because
// programs refuse to start without them.
var moreCapabilities = []string{
	"IPC_LOCK", "IPC_OWNER", "LEASE", "MKNOD", "SETFCAP", "SYS_NICE", "SYS_RESOURCE", "SYS_TIME",
}

// refusedCapabilities are all others of capabilities(7), each with what they are for, and what to do instead.
var refusedCapabilities = map[string][2]string{
	"AUDIT_CONTROL":      {"it rules the machine's audit", ""},
	"AUDIT_READ":         {"it reads the machine's audit", ""},
	"BLOCK_SUSPEND":      {"it keeps the machine awake", ""},
	"BPF":                {"BPF programs run in the machine's kernel", "packet programs are nodes of kind program"},
	"CHECKPOINT_RESTORE": {"it sets what processes seem to be", "pergola pause stops a node and keeps its state"},
	"DAC_READ_SEARCH": {"it opens files by handles, past the node's root directory",
		"root of a node reads all files of the node without it"},
	"LINUX_IMMUTABLE": {"files that nobody can remove would outlive the node", ""},
	"MAC_ADMIN":       {"it changes the machine's security policy", ""},
	"MAC_OVERRIDE":    {"it overrides the machine's security policy", ""},
	"PERFMON":         {"it observes the machine's kernel and all its processes", "run perf on the machine"},
	"SYSLOG":          {"it reads the machine's kernel log", "run dmesg on the machine"},
	"SYS_BOOT":        {"it restarts the machine", "pergola restart NODE restarts a node"},
	"SYS_MODULE": {"modules are loaded into the machine's kernel",
		"load them on the machine, before: modprobe MODULE"},
	"SYS_PACCT":      {"it writes a record of each process, without a bound", ""},
	"SYS_RAWIO":      {"it reaches the machine's memory and ports", "devices: gives the node one device"},
	"SYS_TTY_CONFIG": {"it rules the machine's consoles", ""},
	"WAKE_ALARM":     {"it wakes the machine up", ""},
}

// CapabilityError is a capability that nodes do not get.
type CapabilityError struct {
	Name string   // without CAP_
	Why  string   // empty: there is none of that name
	Do   string   // what to do instead
	All  []string // those of which one may have been meant
}

func (e *CapabilityError) Error() string {
	if e.Why == "" {
		return fmt.Sprintf("there is no capability %q", e.Name)
	}
	return fmt.Sprintf("no node gets the capability %s: %s", e.Name, e.Why)
}

// ParseCapability reads a name with or without CAP_, in upper or lower case, and gives it without, in upper case.
// The error is of type *CapabilityError.
func ParseCapability(text string) (string, error) {
	name := strings.TrimPrefix(strings.ToUpper(strings.TrimSpace(text)), "CAP_")
	if slices.Contains(Capabilities, name) || slices.Contains(moreCapabilities, name) {
		return name, nil
	}
	if name == "ALL" {
		return "", &CapabilityError{Name: name, Why: "it would be all of the machine's",
			Do: "write those that are needed, of " + strings.Join(moreCapabilities, ", ")}
	}
	if refused, known := refusedCapabilities[name]; known {
		return "", &CapabilityError{Name: name, Why: refused[0], Do: refused[1]}
	}
	e := &CapabilityError{Name: text, All: slices.Concat(Capabilities, moreCapabilities)}
	for other := range refusedCapabilities {
		e.All = append(e.All, other)
	}
	slices.Sort(e.All)
	return "", e
}

// HasCapability reports whether every node has a capability, whether it asks for it or not.
func HasCapability(name string) bool { return slices.Contains(Capabilities, name) }
