// Package importer turns files of other tools into topologies: GraphML of the Internet Topology Zoo, and
// containerlab's .clab.yml. It is pure: the files that a topology names (binds)
// are read by its callers.
//
// Diagnostics that are warnings say what was left out or done otherwise; the topology is nil only where there are
// errors.
package importer

import (
	"bytes"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/pergola-net/pergola/model/topology"
	"github.com/pergola-net/pergola/model/topology/yamltree"
)

// Format is a kind of topology file.
type Format string

// The formats.
const (
	Pergola Format = "pergola"
	GraphML Format = "graphml"
	ClabYML Format = "containerlab"
)

const maxBytes = 32 << 20 // of a file

// A containerlab file has everything below topology:, at the left margin; a Pergola file has nodes: there.
var clabKey = regexp.MustCompile(`(?m)^(?:topology|"topology"|'topology')\s*:`)

// Detect says which format a file has: by its name, else by its content. A file of no other format is Pergola's.
func Detect(file string, data []byte) Format {
	name := strings.ToLower(filepath.Base(file))
	switch {
	case strings.HasSuffix(name, ".graphml"):
		return GraphML
	case strings.HasSuffix(name, ".clab.yml"), strings.HasSuffix(name, ".clab.yaml"),
		strings.HasSuffix(name, templateEnding):
		return ClabYML
	}
	text := bytes.TrimLeft(bytes.TrimPrefix(data, []byte("\ufeff")), " \t\r\n")
	switch {
	case bytes.HasPrefix(text, []byte("<")):
		return GraphML
	case clabKey.Match(data):
		return ClabYML
	}
	return Pergola
}

// position is a position in a file; line and column count from 1.
type position = yamltree.Position

// report collects diagnostics of one file.
type report struct {
	file  string
	found topology.Diagnostics
	wrong bool
}

const maxFound = 200 // diagnostics of one file

func (r *report) add(d topology.Diagnostic) {
	d.File = r.file
	r.wrong = r.wrong || !d.Warning
	if len(r.found) < maxFound {
		r.found = append(r.found, d)
	}
}

// fail notes an error. The position is 0 where it is not known.
func (r *report) fail(at position, hint, format string, args ...any) {
	r.add(topology.Diagnostic{Line: at.Line, Column: at.Column, Hint: hint, Message: fmt.Sprintf(format, args...)})
}

// warn notes a warning.
func (r *report) warn(at position, hint, format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	r.add(topology.Diagnostic{Line: at.Line, Column: at.Column, Hint: hint, Message: message, Warning: true})
}
