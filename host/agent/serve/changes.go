package serve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/host/agent/machine"
	"github.com/pergola-net/pergola/host/plan"
	"github.com/pergola-net/pergola/host/probe/running"
	"github.com/pergola-net/pergola/host/routing"
	"github.com/pergola-net/pergola/host/sliver"
	"github.com/pergola-net/pergola/model/slice"
)

// Bounds of what is read of one node: a node may write what it likes.
const (
	changesTimeout = 20 * time.Second
	mostChanged    = 8 << 20 // bytes of its files
)

// Changes finds out what was changed in a slice's nodes while they ran, in those that run here.
func (s *Server) Changes(ctx context.Context, name string, q api.ChangesQuery) ([]api.NodeChanges, error) {
	w, err := s.inputs.Slice(name)
	if err != nil {
		return nil, err
	}
	var (
		mu    sync.Mutex // guards all
		all   = []api.NodeChanges{}
		group sync.WaitGroup
	)
	render, at, turns := routing.NewRenderer(w.Spec), s.inputs.Place(), make(chan struct{}, sessionsAtOnce)
	for i := range w.Spec.Nodes {
		n := &w.Spec.Nodes[i]
		if !n.HasSliver() || !at.Owns(n) || len(q.Nodes) > 0 && !slices.Contains(q.Nodes, n.Name) {
			continue
		}
		group.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			ctx, cancel := context.WithTimeout(ctx, changesTimeout)
			defer cancel()
			id := sliver.ID{Slice: w.Spec.ID, Node: n.Name}
			look := changes{runtime: s.machine.Runtime, id: id, node: n, content: q.Content}
			if found, any := look.find(ctx, render); any {
				mu.Lock()
				defer mu.Unlock()
				all = append(all, found)
			}
		})
	}
	group.Wait()
	slices.SortFunc(all, func(a, b api.NodeChanges) int { return strings.Compare(a.Node, b.Node) })
	return all, nil
}

// changes looks for what was changed in one node.
type changes struct {
	runtime machine.Runtime
	id      sliver.ID
	node    *slice.Node
	content bool
	out     api.NodeChanges
}

// find reports false where there is nothing to say. A node that does not run has lost what was changed already.
func (c *changes) find(ctx context.Context, render *routing.Renderer) (found api.NodeChanges, any bool) {
	c.out.Node = c.node.Name
	o, err := c.runtime.Observe(c.id)
	if err != nil || o.State != sliver.Running && o.State != sliver.Paused {
		return found, false
	}
	c.doubt(c.findFiles())
	if c.node.Routing != nil {
		rendered, err := render.Render(c.node)
		if err == nil {
			err = c.findRouting(ctx, o, rendered)
		}
		c.doubt(err)
	}
	return c.out, c.out.IsLost() || c.out.Unknown != ""
}

// doubt keeps the reason why something is not known. A node that has ended meanwhile has nothing left.
func (c *changes) doubt(err error) {
	if err != nil && !errors.Is(err, sliver.ErrNotRunning) && !errors.Is(err, sliver.ErrNotFound) &&
		c.out.Unknown == "" {
		c.out.Unknown = err.Error()
	}
}

// ownFiles are what Pergola and the tools of a system write below /etc of every node.
var ownFiles = []string{"/etc/hostname", "/etc/hosts", "/etc/resolv.conf", "/etc/mtab", "/etc/pergola",
	"/etc/.pwd.lock", "/etc/ld.so.cache"}

// findFiles looks at the files that the topology put into the node. With content, it looks also for others that were
// written below /etc: the node's own services and exec lines may have done that.
func (c *changes) findFiles() error {
	most := int64(mostChanged)
	given := map[string]bool{}
	for _, was := range c.node.Files {
		given[was.Path] = true
		f, err := c.runtime.ReadFile(c.id, was.Path, most)
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed: it comes back
			continue
		case err != nil:
			return err
		}
		if most -= int64(len(f.Data)); !bytes.Equal(was.Data, f.Data) {
			c.add(slice.File{Path: was.Path, Mode: was.Mode, Data: f.Data})
		}
	}
	if !c.content {
		return nil
	}
	daemonDir := "" // what is there is said of routing
	if c.node.Routing != nil {
		daemonDir = running.Daemon{Kind: c.node.Routing.Daemon}.Dir()
	}
	etc, err := c.runtime.EtcFiles(c.id, most, func(name string) bool {
		base := path.Base(name)
		return given[name] || slices.Contains(ownFiles, name) || strings.HasSuffix(base, "-") ||
			strings.HasSuffix(base, "~") || strings.HasPrefix(base, ".pergola-") || name == daemonDir ||
			name == "/etc/shadow" && c.node.Rootfs.FromMachine()
	})
	for _, f := range etc {
		c.add(f)
	}
	slices.SortFunc(c.out.Files, func(a, b slice.File) int { return strings.Compare(a.Path, b.Path) })
	return err
}

func (c *changes) add(f slice.File) {
	if !c.content {
		f.Data = nil
	}
	c.out.Files = append(c.out.Files, f)
}

// findRouting compares how the daemon is configured with how it was when the node started.
func (c *changes) findRouting(ctx context.Context, o sliver.Observed, rendered routing.Rendered) error {
	daemon := running.Daemon{Runtime: c.runtime, ID: c.id, Kind: c.node.Routing.Daemon, Files: rendered.Files}
	if o.State == sliver.Paused && daemon.Kind == slice.FRR {
		return fmt.Errorf("it is paused, so FRR does not say how it is configured: "+
			"`pergola node resume %s` lets it go on", c.node.Name)
	}
	changed := o.Notes[plan.ChangedNote] != ""
	if !changed {
		var err error
		if changed, err = daemon.IsChanged(ctx); err != nil {
			return err
		}
	}
	c.out.Routing = changed
	if !changed || !c.content {
		return nil
	}
	var err error
	if c.out.Config, err = daemon.Configuration(ctx); err == nil {
		c.out.Difference = daemon.Difference(c.out.Config)
	}
	return err
}
