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

// usersPlaces are those of a user's own server (XDG Base Directory Specification 0.8).
func usersPlaces() places {
	base := func(variable string, otherwise ...string) string {
		if dir := os.Getenv(variable); filepath.IsAbs(dir) {
			return filepath.Join(dir, "pergola")
		}
		home, err := os.UserHomeDir()
		if err != nil || !filepath.IsAbs(home) || !mayWrite(home) {
			home = filepath.Join("/var/tmp", "pergola-"+strconv.Itoa(rootless.User()))
		}
		return filepath.Join(append([]string{home}, otherwise...)...)
	}
	state := filepath.Join("/tmp", "pergola-"+strconv.Itoa(rootless.User())) // there is no session: su, sudo, cron
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) && mayWrite(dir) {
		state = filepath.Join(dir, "pergola")
	}
	return places{
		state: state, socket: filepath.Join(state, "pergola.sock"), own: true,
		data: base("XDG_DATA_HOME", ".local", "share", "pergola"),
		log:  filepath.Join(base("XDG_STATE_HOME", ".local", "state", "pergola"), "log"),
	}
}

func mayWrite(path string) bool { return unix.Access(path, unix.W_OK) == nil }

// usualPlaces are those of the server that commands are about: root's is the machine's. An ordinary user has one of
// their own, unless there is none and they may use the machine's.
func usualPlaces() places {
	if os.Geteuid() == 0 && !rootless.Inside() {
		return machinesPlaces
	}
	own := usersPlaces()
	if rootless.Inside() {
		return own
	}
	if _, err := os.Lstat(own.socket); err != nil && mayWrite(machinesPlaces.socket) {
		return machinesPlaces
	}
	return own
}
