// Package running reads how the routing daemon of a node is configured, and whether that was changed since the node
// started.
package running

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/pergola-net/pergola/host/probe/frr"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/model/slice"
)

// Runtime is what is asked of the runtime of slivers.
type Runtime interface {
	ReadFile(id sliver.ID, name string, most int64) (slice.File, error)
	ReadDir(id sliver.ID, name string) ([]string, error)
	EtcFiles(id sliver.ID, most int64, skip func(name string) bool) ([]slice.File, error)
	Dial(ctx context.Context, id sliver.ID, name string) (net.Conn, error)
	WriteFiles(ctx context.Context, id sliver.ID, files []slice.File) error
	Exec(ctx context.Context, id sliver.ID, r sliver.ExecRequest) (code int, err error)
}

// Daemon is the routing daemon of a node that runs.
type Daemon struct {
	Runtime Runtime
	ID      sliver.ID
	Kind    slice.Daemon
	Files   []slice.File // that Pergola gave it
}

// Bounds of what a node says of itself.
const (
	mostFile      = 4 << 20 // bytes
	askTimeout    = 2 * time.Second
	startInterval = 20 * time.Millisecond
	showTimeout   = 20 * time.Second
	frrRun        = "/run/frr"
	frrLoaded     = frrRun + "/loaded"       // what the daemons had loaded; frr.sh removes it
	frrLoads      = frrRun + "/watchfrr.pid" // there when they have loaded it
	frrConf       = "frr.conf"
	showRunning   = "show running-config"
	socketsSuffix = ".vty"
)

// Dir is the directory of the daemon's configuration.
func (d Daemon) Dir() string {
	if d.Kind == slice.BIRD {
		return "/etc/bird"
	}
	return "/etc/frr"
}

// IsChanged reports whether the daemon is configured otherwise than when it had started, or one of its files was
// changed. FRR's configuration is what its daemons run; BIRD does not tell what it runs, so that it is its file.
func (d Daemon) IsChanged(ctx context.Context) (bool, error) {
	if changed, err := d.Differs(ctx); changed || err != nil {
		return changed, err
	}
	files, err := d.files()
	if err != nil {
		return false, err
	}
	given := d.given()
	for name, data := range files {
		if was, known := given[name]; !known || !bytes.Equal(was, data) {
			return true, nil
		}
	}
	return false, nil
}

// given has the files of the daemon's directory as Pergola wrote them, by name.
func (d Daemon) given() map[string][]byte {
	given := map[string][]byte{}
	for _, f := range d.Files {
		if path.Dir(f.Path) == d.Dir() {
			given[path.Base(f.Path)] = f.Data
		}
	}
	return given
}

// files reads what was written to the daemon's directory, without what FRR's daemons themselves say better.
func (d Daemon) files() (map[string][]byte, error) {
	written, err := d.Runtime.EtcFiles(d.ID, mostFile, func(name string) bool {
		return name != d.Dir() && (path.Dir(name) != d.Dir() || d.isAside(path.Base(name)))
	})
	files := map[string][]byte{}
	for _, f := range written {
		files[path.Base(f.Path)] = f.Data
	}
	return files, err
}

// frrDaemons have, each, a file of their own where the configuration is not integrated.
var frrDaemons = strings.Fields("zebra mgmtd bgpd ripd ripngd ospfd ospf6d isisd babeld pimd pim6d ldpd nhrpd eigrpd " +
	"sharpd pbrd staticd bfdd fabricd vrrpd pathd")

// isAside reports a file that says nothing, or nothing more than FRR's daemons do: vtysh keeps the one before as .sav.
func (d Daemon) isAside(name string) bool {
	if strings.HasPrefix(name, ".") || strings.HasSuffix(name, "~") {
		return true
	}
	if d.Kind != slice.FRR {
		return false
	}
	daemon, isConf := strings.CutSuffix(name, ".conf")
	return name == frrConf || strings.HasSuffix(name, ".sav") || isConf && slices.Contains(frrDaemons, daemon)
}

// Note remembers what FRR's daemons run, unless that is remembered since the node started, or they are still starting,
// which it awaits until a time. It is called before anybody gets into the node: what is other later was changed by
// hand. (A start that noted this itself would take processor time from a hundred routers that start with it.)
func (d Daemon) Note(ctx context.Context, until time.Time) error {
	if d.Kind != slice.FRR {
		return nil
	}
	for {
		if _, err := d.Runtime.ReadFile(d.ID, frrLoaded, mostFile); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		_, err := d.Runtime.ReadFile(d.ID, frrLoads, mostFile)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) || !time.Now().Before(until) {
			return ifAny(err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(startInterval):
		}
	}
	text, err := d.running(ctx)
	if err != nil {
		return err
	}
	return d.Runtime.WriteFiles(ctx, d.ID, []slice.File{{Path: frrLoaded, Mode: 0o600, Data: []byte(text)}})
}

// ifAny is the error of a file that is there.
func ifAny(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Differs asks FRR's daemons whether they run another configuration than they had loaded. Where that was not noted,
// nobody has got into the node. BIRD tells nothing.
func (d Daemon) Differs(ctx context.Context) (bool, error) {
	if d.Kind != slice.FRR {
		return false, nil
	}
	loaded, err := d.Runtime.ReadFile(d.ID, frrLoaded, mostFile)
	if err != nil {
		return false, ifAny(err)
	}
	text, err := d.running(ctx)
	return err == nil && !frr.Same(string(loaded.Data), text), err
}

// running is what all of FRR's daemons say that they run.
func (d Daemon) running(ctx context.Context) (string, error) {
	names, err := d.Runtime.ReadDir(d.ID, frrRun)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var all strings.Builder
	for _, name := range names {
		daemon, isSocket := strings.CutSuffix(name, socketsSuffix)
		if !isSocket || !slices.Contains(frrDaemons, daemon) {
			continue
		}
		text, err := d.ask(ctx, path.Join(frrRun, name))
		if err != nil {
			return "", fmt.Errorf("ask %s how it is configured: %w", daemon, err)
		}
		all.WriteString(text)
	}
	return all.String(), nil
}

// RunsAsGiven reports whether FRR's daemons have loaded what Pergola gave them, and nothing beside it. It is false also
// where that is worded otherwise than FRR does it.
func (d Daemon) RunsAsGiven() (bool, error) {
	loaded, err := d.Runtime.ReadFile(d.ID, frrLoaded, mostFile)
	if err != nil {
		return false, err
	}
	return frr.Same(string(loaded.Data), string(d.given()[frrConf])), nil
}

func (d Daemon) ask(ctx context.Context, socket string) (string, error) {
	c, err := d.Runtime.Dial(ctx, d.ID, socket)
	if err != nil {
		return "", err
	}
	defer c.Close()
	deadline, _ := ctx.Deadline()
	if err := c.SetDeadline(deadline); err != nil {
		return "", err
	}
	return frr.Ask(c, "enable", showRunning)
}

// Configuration gives files with which the daemon comes up as it is configured now, by their names.
func (d Daemon) Configuration(ctx context.Context) (map[string][]byte, error) {
	files, err := d.files()
	if err != nil || d.Kind != slice.FRR {
		return files, err
	}
	files[frrConf], err = d.show(ctx)
	return files, err
}

// mostLines is how many lines a difference has at most.
const mostLines = 200

// Difference lists in what files differ from those with which the daemon started, a line each.
func (d Daemon) Difference(files map[string][]byte) (lines []string) {
	given := d.given()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		old := given[name]
		if d.Kind == slice.FRR && name == frrConf {
			if loaded, err := d.Runtime.ReadFile(d.ID, frrLoaded, mostFile); err == nil {
				lines = append(lines, frr.Difference(string(loaded.Data), string(files[name]))...)
			}
			continue
		}
		for _, line := range frr.Difference(flat(old), flat(files[name])) {
			lines = append(lines, line+" ("+name+")")
		}
	}
	return lines[:min(len(lines), mostLines)]
}

// flat is a text of which no line stands in another one.
func flat(text []byte) string {
	var out strings.Builder
	for line := range strings.Lines(string(text)) {
		out.WriteString(strings.TrimSpace(line) + "\n")
	}
	return out.String()
}

// show has vtysh put together what FRR's daemons say.
func (d Daemon) show(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, showTimeout)
	defer cancel()
	out, complaints := bounded{most: mostFile}, bounded{most: 1000}
	status, err := d.Runtime.Exec(ctx, d.ID, sliver.ExecRequest{
		Args: []string{"vtysh", "-c", showRunning}, Stdout: &out, Stderr: &complaints,
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("ask vtysh for the running configuration: %w", err)
	case status != 0:
		return nil, fmt.Errorf("ask vtysh for the running configuration: exit status %d: %s", status,
			strings.TrimSpace(complaints.String()))
	case out.cut:
		return nil, fmt.Errorf("the running configuration is larger than %d MiB", mostFile>>20)
	case !strings.Contains(out.String(), "\n!\nend\n"):
		return nil, errors.New("vtysh did not show all of the running configuration")
	}
	return frr.File(out.String()), nil
}

// bounded keeps the beginning of what a node writes.
type bounded struct {
	bytes.Buffer
	most int
	cut  bool
}

func (b *bounded) Write(p []byte) (int, error) {
	room := max(0, b.most-b.Len())
	b.cut = b.cut || len(p) > room
	_, _ = b.Buffer.Write(p[:min(room, len(p))]) // never fails
	return len(p), nil
}
