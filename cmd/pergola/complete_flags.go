package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagValues are values that are often given to a flag of this name, whatever command has it.
var flagValues = map[string][]string{
	"advertise": {}, "listen": {"auto", "none"},
	"against": {"off", "mininet", "ovs", "relay"}, "only": {"nic", "udp", "tcp", "icmp-trip", "udp-trip"},
	"delay": {"1ms", "10ms", "100ms", "0"}, "jitter": {"1ms", "10ms", "0"}, "loss": {"0.1", "1", "10", "0"},
	"rate": {"1Mbit", "10Mbit", "100Mbit", "1Gbit", "0"}, "police": {"1Mbit", "10Mbit", "100Mbit", "1Gbit", "0"},
	"burst": {"15000", "64KiB", "0"}, "queue": {"100", "1000", "0"},
	"signalling": {"rsvp", "static"}, "last-label": {"implicit-null", "explicit-null", "own"},
	"ttl": {"uniform", "pipe"}, "bandwidth": {"1Mbit", "10Mbit", "100Mbit", "1Gbit", "0"},
	"setup-priority": {"0", "4", "7"}, "holding-priority": {"0", "4", "7"},
	"runtime": {"crun", "runc"}, "servers": {"1", "3", "5"}, "xdp": {xdpAuto, xdpOff},
}

// durations are often given to any flag that takes one.
var durations = []string{"1s", "5s", "30s", "1m", "5m"}

// completeFlags says of every flag that takes a value, and has no completion of its own, which values it takes. Without
// one, shells offer files, also where a number is wanted.
func completeFlags(c *cobra.Command) {
	add := func(f *pflag.FlagSet) {
		f.VisitAll(func(f *pflag.Flag) {
			if _, has := c.GetFlagCompletionFunc(f.Name); !has && f.NoOptDefVal == "" {
				_ = c.RegisterFlagCompletionFunc(f.Name, completionOf(f))
			}
		})
	}
	add(c.Flags())
	add(c.PersistentFlags())
	for _, below := range c.Commands() {
		completeFlags(below)
	}
}

// completionOf gives the completion of a flag: by its name, its type, or what its help calls its value.
func completionOf(f *pflag.Flag) cobra.CompletionFunc {
	value, _ := pflag.UnquoteUsage(f)
	files, directories := cobra.ShellCompDirectiveDefault, cobra.ShellCompDirectiveFilterDirs
	values, given := flagValues[f.Name]
	switch {
	case given:
		return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
	case f.Value.Type() == "duration":
		return cobra.FixedCompletions(durations, cobra.ShellCompDirectiveNoFileComp)
	case strings.EqualFold(value, "file"), strings.EqualFold(value, "path"):
		return cobra.FixedCompletions(nil, files)
	case strings.HasPrefix(strings.ToLower(value), "director"):
		return cobra.FixedCompletions(nil, directories)
	}
	return cobra.NoFileCompletions
}
