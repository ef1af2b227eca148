package main

import (
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/host/rootless"
)

// places are the directories and the socket of a server, unless its flags say otherwise.
type places struct {
	state  string // emptied by a reboot
	data   string // survives a reboot
	log    string
	socket string
	own    bool // they are an ordinary user's, whose server has no root's rights
}

// machinesPlaces are those of the machine's server, which root runs.
var machinesPlaces = places{
	state: "/run/pergola", data: "/var/lib/pergola", log: "/var/log/pergola", socket: "/run/pergola/pergola.sock",
}

// serverLog is the log of a server that `up` started.
func (p places) serverLog() string { return filepath.Join(p.log, "server.log") }

// usersPlaces are those of a user's own server (XDG Base Directory Specification 0.8). They do not depend on whether
// there is a session: cron, su and sudo begin none, and the server is the same.
func usersPlaces() places {
	uid := strconv.Itoa(rootless.User())
	state := filepath.Join("/tmp", "pergola-"+uid)
	for _, dir := range []string{os.Getenv("XDG_RUNTIME_DIR"), filepath.Join("/run/user", uid)} {
		if filepath.IsAbs(dir) && mayWrite(dir) && rootless.Safe(dir) == nil {
			state = filepath.Join(dir, "pergola")
			break
		}
	}
	p := places{state: state, socket: filepath.Join(state, "pergola.sock"), own: true}
	home, err := os.UserHomeDir()
	if err != nil || !filepath.IsAbs(home) || !mayWrite(home) {
		home = "" // as user nobody has none
	}
	base := func(variable, below, otherwise string) string {
		switch dir := os.Getenv(variable); {
		case filepath.IsAbs(dir):
			return filepath.Join(dir, "pergola")
		case home != "":
			return filepath.Join(home, below, "pergola")
		}
		return filepath.Join(state, otherwise)
	}
	p.data = base("XDG_DATA_HOME", ".local/share", "data")
	p.log = filepath.Join(base("XDG_STATE_HOME", ".local/state", "."), "log")
	return p
}

func mayWrite(path string) bool { return unix.Access(path, unix.W_OK) == nil }

// usualPlaces are those of the server that commands are about: root's is the machine's. An ordinary user has one of
// their own, unless there is none, nor anything that it left, and they may use the machine's.
func usualPlaces() places {
	if os.Geteuid() == 0 && !rootless.Inside() {
		return machinesPlaces
	}
	own := usersPlaces()
	_, err := os.Lstat(own.socket)
	if err == nil || rootless.Inside() || rootless.Held(own.state) || !mayWrite(machinesPlaces.socket) {
		return own
	}
	return machinesPlaces
}
