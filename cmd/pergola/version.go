package main

import (
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/control/api"
)

// version is set by the build: -ldflags "-X main.version=v1.2.3".
var version string

func newVersion(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Show the version of this program, and of the server if one runs",
		Example: "  pergola version\n  pergola version --json",
		Args:    arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			own, commit := build()
			var server *api.Version
			if c, err := a.dial(cmd.Context()); err == nil {
				defer c.Close()
				server, err = c.Version(cmd.Context())
				if err != nil {
					return err
				}
			}
			if a.JSON {
				return a.Emit(struct {
					Version string       `json:"version"`
					Commit  string       `json:"commit,omitempty"`
					Server  *api.Version `json:"server,omitempty"`
				}{own, commit, server})
			}
			a.Print("pergola %s", ownVersion())
			if server == nil {
				a.Print("server  not running")
				return nil
			}
			a.Print("server  %s, pid %d, kernel %s", strings.TrimSpace(server.Version+" "+server.Commit),
				server.PID, server.Kernel)
			return nil
		},
	}
}

// ownVersion is what build gives, for people.
func ownVersion() string {
	own, commit := build()
	return strings.TrimSpace(own + " " + commit)
}

// build gives the version and the commit that this program was built from.
func build() (name, commit string) {
	name = version
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return either(name, "unknown"), ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			commit = s.Value[:min(len(s.Value), 12)]
		}
	}
	return either(name, info.Main.Version), commit
}
