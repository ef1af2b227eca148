package source

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/pergola-net/pergola/control/programs"
	"github.com/pergola-net/pergola/datapath/program"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
)

// object is a packet program that was read or compiled.
type object struct {
	data []byte
	err  error
}

// fillProgram reads the object that a packet program is, or compiles it, and checks it as far as no kernel is needed.
// Each file is compiled once.
func (s *Source) fillProgram(f *topology.Source, path string) error {
	o, known := s.objects[path]
	if !known {
		if o.data, o.err = readObject(path); o.err == nil {
			_, o.err = program.Read(f.Path, o.data)
		}
		if s.objects == nil {
			s.objects = map[string]object{}
		}
		s.objects[path] = o
	}
	f.Data = o.data
	return o.err
}

func readObject(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, unreadable(path, err)
	case info.IsDir():
		return nil, fmt.Errorf("%s is a directory: name an object, or a C file", path)
	case filepath.Ext(path) == ".c":
		return program.Build(context.Background(), path)
	case info.Size() > slice.MaxObject:
		return nil, fmt.Errorf("%s has %d bytes: a packet program may have %d", path, info.Size(),
			slice.MaxObject)
	}
	return read(path)
}

// checkPrograms checks what is known of programs and filters when defaults and groups are worked in. Where the
// topology has errors, those are said by Resolve.
func (s *Source) checkPrograms() topology.Diagnostics {
	if len(s.objects) == 0 {
		return nil
	}
	resolved, found := topology.Resolve(s.Topology, nil)
	if len(found) > 0 {
		return nil
	}
	return topology.Locate(s.Topology, programs.Check(resolved))
}
