package source

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/programs"
	"github.com/pergola-net/pergola/model/topology"
)

// archive is a root file system that is sent apart from the topology.
type archive struct {
	path, sum string
	size      int64
}

// maxSource bounds one file that a topology names, archives apart: it travels inside a request.
const maxSource = 16 << 20

// gather reads the files that the topology names. Each that cannot be read is one diagnostic.
func (s *Source) gather(ctx context.Context) (found topology.Diagnostics) {
	dir, err := filepath.Abs(filepath.Dir(s.Path))
	if err != nil {
		return topology.Diagnostics{{Message: fmt.Sprintf("find the directory of %s: %v", s.Path, err)}}
	}
	if found := s.saveImages(ctx); len(found) > 0 {
		return topology.Locate(s.Topology, found)
	}
	makeAbsolute(s.Topology, dir)
	for _, f := range s.Topology.Sources() {
		path := f.Path
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		fill := s.fill
		if f.IsProgram {
			fill = s.fillProgram
		}
		if err := fill(f, path); err != nil {
			found = append(found, programs.Refused(f.Where, err))
		}
	}
	if len(found) > 0 {
		return topology.Locate(s.Topology, found)
	}
	return s.checkPrograms()
}

// makeAbsolute makes the host's paths that the server itself uses (binds, root directories, image layouts) absolute: it
// does not know where the topology was read.
func makeAbsolute(t *topology.Topology, dir string) {
	absolute := func(path string) string {
		if path == "" || filepath.IsAbs(path) {
			return path
		}
		return filepath.Join(dir, path)
	}
	eachAttributes(t, func(_ string, a *topology.Attributes) {
		for i, bind := range a.Binds {
			if path, rest, ok := strings.Cut(bind, ":"); ok {
				a.Binds[i] = absolute(path) + ":" + rest
			}
		}
		for i, volume := range a.Volumes {
			if path, rest, ok := strings.Cut(volume, ":"); ok && topology.IsPath(path) {
				a.Volumes[i] = absolute(path) + ":" + rest
			}
		}
		if r := a.Rootfs; r != nil && !r.IsArchive() && r.Path != "host" {
			r.Path = absolute(r.Path)
		}
		if path, ok := strings.CutPrefix(a.Image, "oci:"); ok {
			a.Image = "oci:" + absolute(path)
		} else if strings.HasPrefix(a.Image, ".") {
			a.Image = absolute(a.Image)
		}
	})
}

// eachAttributes lets do change the attributes of defaults, groups and nodes, with their path in the topology.
func eachAttributes(t *topology.Topology, do func(where string, a *topology.Attributes)) {
	if t.Defaults != nil && t.Defaults.Node != nil {
		do("defaults.node", t.Defaults.Node)
	}
	for name, g := range t.Groups {
		do("groups."+name, &g.Attributes)
		t.Groups[name] = g
	}
	for name, n := range t.Nodes {
		do("nodes."+name, &n.Attributes)
		t.Nodes[name] = n
	}
}

// fill reads one file that the topology names.
func (s *Source) fill(f *topology.Source, path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return unreadable(path, err)
	case info.IsDir():
		return fmt.Errorf("%s is a directory: name its files", path)
	case f.IsArchive():
		return s.sum(f, path, info.Size())
	case info.Size() > maxSource:
		return fmt.Errorf("%s has %s: at most %s can be sent", path, ui.Bytes(info.Size()), ui.Bytes(maxSource))
	}
	f.Data, err = read(path)
	return err
}

// sum notes an archive to be sent, by its digest.
func (s *Source) sum(f *topology.Source, path string, size int64) error {
	for _, a := range s.archives { // of another node
		if a.path == path {
			f.SHA256 = a.sum
			return nil
		}
	}
	file, err := os.Open(path)
	if err != nil {
		return unreadable(path, err)
	}
	defer file.Close()
	h := sha256.New()
	if _, err := io.Copy(h, file); err != nil {
		return unreadable(path, err)
	}
	f.SHA256 = hex.EncodeToString(h.Sum(nil))
	s.archives = append(s.archives, archive{path, f.SHA256, size})
	return nil
}

// Store keeps archives by their digest.
type Store interface {
	HasBlob(ctx context.Context, sum string) (bool, error)
	PutBlob(ctx context.Context, sum string, size int64, r io.Reader) error
}

// Upload sends the archives that the server does not have yet.
func (s *Source) Upload(ctx context.Context, to Store, p *ui.Progress) error {
	for i, a := range s.archives {
		has, err := to.HasBlob(ctx, a.sum)
		if err != nil {
			return fmt.Errorf("send %s: %w", a.path, err)
		}
		if has {
			continue
		}
		p.Step(fmt.Sprintf("sending %s (%s)", filepath.Base(a.path), ui.Bytes(a.size)), i, len(s.archives))
		if err := a.send(ctx, to); err != nil {
			return fmt.Errorf("send %s: %w", a.path, err)
		}
	}
	return nil
}

func (a archive) send(ctx context.Context, to Store) error {
	f, err := os.Open(a.path)
	if err != nil {
		return err
	}
	defer f.Close()
	return to.PutBlob(ctx, a.sum, a.size, f)
}
