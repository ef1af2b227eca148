package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
	"github.com/pergola-net/pergola/model/topology/importer"
)

// Options say how a topology file is read.
type Options struct {
	Name string // in place of the file's
	// For formats that have no routing and shaping.
	importer.ZooOptions
	daemon  string
	routing []string
	images  []string // MATCH=WHAT
	tables  []string // files of such rules
	table   importer.ImageTable
	kinds   []string // KIND=WHAT
	ofKinds []string // files of such rules
	kind    importer.KindTable
	ofVars  []string // files of values for templates
	vars    []importer.VarsFile
}

// AddImportFlags declares the flags for formats that have no routing.
func (o *Options) AddImportFlags(f *pflag.FlagSet) {
	f.StringVar(&o.daemon, "daemon", "", "GraphML: routing suite of all routers, frr or bird (default frr)")
	f.StringSliceVar(&o.routing, "routing", nil,
		"GraphML, and nodes of --kind: routing protocols, such as ospf or isis,bgp (default ospf)")
	f.BoolVar(&o.Delay, "delay", false, "GraphML: link delays from the coordinates of nodes")
	f.BoolVar(&o.Rate, "rate", false, "GraphML: link rates from LinkSpeedRaw")
	f.StringArrayVar(&o.images, "image", nil,
		"containerlab: use WHAT (host, a path or an image) for images like MATCH, as `MATCH=WHAT`")
	f.StringArrayVar(&o.tables, "images", nil,
		"containerlab: take what to use for images from a table, a YAML `FILE`")
	f.StringArrayVar(&o.kinds, "kind", nil, "containerlab: replace nodes of a kind, or of all vendors' kinds, "+
		"by WHAT (frr, bird, host, switch, linux or image), as `KIND=WHAT`")
	f.StringArrayVar(&o.ofKinds, "kinds", nil,
		"containerlab: take what replaces kinds from a table, a YAML `FILE`")
	f.StringArrayVar(&o.ofVars, "vars", nil, "containerlab: values for a template, a YAML `FILE` "+
		"(default: those beside it, as containerlab finds them)")
	f.BoolVar(&o.InternalOnly, "internal-only", false, "GraphML: leave out nodes marked as of other networks")
}

// Source is a topology with everything that the server needs of it.
type Source struct {
	Path     string
	Name     string
	Topology *topology.Topology
	Warnings []string
	LeftOut  []string // what the topology does not have of an imported file, what weighs most first
	archives []archive
	objects  map[string]object // of packet programs, by path
}

// maxFile bounds a topology file; a network of ten thousand nodes has about two million bytes.
const maxFile = 64 << 20

// Load reads a topology file, found in the current directory where path is empty, and all files that it names. All
// that is wrong with it comes at once, as topology.Diagnostics.
func Load(ctx context.Context, path string, o Options) (*Source, error) {
	s, found, err := open(path, o)
	if err != nil {
		return nil, err
	}
	if s.Topology != nil {
		found = append(found, s.gather(ctx)...)
	}
	return s, s.keepWarnings(found)
}

// Read reads a topology file alone; the paths in it stay as they are written.
func Read(path string, o Options) (*Source, error) {
	s, found, err := open(path, o)
	if err != nil {
		return nil, err
	}
	return s, s.keepWarnings(found)
}

// open reads a topology file and says what is wrong with it.
func open(path string, o Options) (*Source, topology.Diagnostics, error) {
	if path == "" {
		found, err := Find(".")
		if err != nil {
			return nil, nil, err
		}
		path = found
	}
	data, err := read(path)
	if err != nil {
		return nil, nil, err
	}
	t, found, err := parse(path, data, o)
	if err != nil {
		return nil, nil, err
	}
	if t != nil && o.Name != "" {
		t.Name = o.Name
	}
	return &Source{Path: path, Topology: t}, found, nil
}

// keepWarnings keeps the warnings and returns the errors.
func (s *Source) keepWarnings(found topology.Diagnostics) error {
	for _, d := range found {
		if d.Warning {
			d.Warning = false
			if d.LeftOut {
				s.LeftOut = append(s.LeftOut, d.String())
			} else {
				s.Warnings = append(s.Warnings, d.String())
			}
		}
	}
	if s.Topology != nil {
		s.Name = s.Topology.Name
	}
	return found.Err()
}

func read(path string) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(io.LimitReader(os.Stdin, maxFile))
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return nil, unreadable(path, err)
	case len(data) > maxFile:
		return nil, fmt.Errorf("read %s: it is larger than %d MiB: that is no topology", path, maxFile>>20)
	}
	return data, nil
}

// unreadable explains why a topology file cannot be read.
func unreadable(path string, err error) error {
	var cause *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no file %s", path)
	case errors.As(err, &cause):
		return fmt.Errorf("read %s: %w", path, cause.Err)
	}
	return fmt.Errorf("read %s: %w", path, err)
}

// nameIn is the name of the network that a file describes.
func nameIn(path string) (string, error) {
	data, err := read(path)
	if err != nil {
		return "", err
	}
	if importer.Detect(path, data) == importer.ClabYML { // its nodes may need flags that only `up` was given
		name, found := importer.ClabName(path, data, clabOptions(path, Options{}))
		return name, found.Err()
	}
	t, found, err := parse(path, data, Options{})
	switch {
	case err != nil:
		return "", err
	case t == nil || t.Name == "":
		return "", found.Err()
	}
	return t.Name, nil
}

// IsFile reports whether a word on the command line means a topology file.
func IsFile(word string) bool {
	info, err := os.Stat(word)
	return isTopology(word) || err == nil && !info.IsDir() && strings.ContainsRune(word, filepath.Separator)
}

// Resolve gives the network that the topology means, as the server would make it.
func (s *Source) Resolve() (*slice.Slice, error) {
	resolved, found := topology.Resolve(s.Topology, nil)
	if err := found.Err(); err != nil {
		return nil, err
	}
	return resolved, nil
}

// Verdict is what `validate` finds: its JSON.
type Verdict struct {
	File     string                `json:"file"`
	Valid    bool                  `json:"valid"`
	Name     string                `json:"name,omitempty"`
	Nodes    int                   `json:"nodes"`
	Links    int                   `json:"links"`
	Errors   []topology.Diagnostic `json:"errors"`
	Warnings []string              `json:"warnings,omitempty"`
	LeftOut  []string              `json:"left_out,omitempty"`
	Source   *Source               `json:"-"` // what was read; nil where it could not be
}

// Validate reads a topology file and resolves it. The error is that it could not be read.
func Validate(ctx context.Context, path string, o Options) (Verdict, error) {
	if found, err := Find("."); path == "" && err == nil {
		path = found
	}
	v := Verdict{File: path, Errors: []topology.Diagnostic{}}
	src, err := Load(ctx, path, o)
	var resolved *slice.Slice
	if err == nil {
		v.Source, v.File, v.Warnings, v.LeftOut = src, src.Path, src.Warnings, src.LeftOut
		resolved, err = src.Resolve()
	}
	var found topology.Diagnostics
	switch {
	case errors.As(err, &found):
		v.Errors = found
	case err != nil:
		return v, err
	default:
		v.Valid, v.Name, v.Nodes, v.Links = true, resolved.Name, len(resolved.Nodes), len(resolved.Links)
		if parts := resolved.Disconnected(); parts != "" {
			v.Warnings = append(v.Warnings, parts)
		}
	}
	return v, nil
}
