package source

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology"
	"github.com/pergola-net/pergola/model/topology/importer"
)

// The values of the flags for formats that have no routing.
var (
	Daemons   = []string{string(slice.FRR), string(slice.BIRD)}
	Protocols = []string{string(slice.OSPF), string(slice.ISIS), string(slice.BGP), string(slice.RIP),
		string(slice.Static)}
)

// parse reads a topology in any of the known formats, recognised by the file's name and content.
func parse(path string, data []byte, o Options) (*topology.Topology, topology.Diagnostics, error) {
	format := importer.Detect(path, data)
	if err := o.checkFlags(format); err != nil {
		return nil, nil, err
	}
	var t *topology.Topology
	var found topology.Diagnostics
	switch format {
	case importer.GraphML:
		t, found = importer.Zoo(path, data, o.ZooOptions)
	case importer.ClabYML:
		t, found = importer.Clab(path, data, clabOptions(path, o))
	default:
		t, found = topology.Parse(path, data)
	}
	return t, found, nil
}

// checkFlags reads the flags for imports, and refuses those that are not for the file's format.
func (o *Options) checkFlags(format importer.Format) error {
	if err := o.addImageRules(format); err != nil {
		return err
	}
	if err := o.addKinds(format); err != nil {
		return err
	}
	zoo := o.daemon != "" || len(o.routing) > 0 && len(o.kind) == 0 || o.Delay || o.Rate || o.InternalOnly
	if zoo && format != importer.GraphML {
		return ui.Usage("the file itself says it: edit its defaults",
			"--daemon, --routing, --delay, --rate and --internal-only are for GraphML files")
	}
	o.Routing = nil
	if o.daemon != "" && !slices.Contains(Daemons, o.daemon) {
		return ui.Usage(ui.DidYouMean(o.daemon, "daemon", Daemons),
			"--daemon: there is no routing suite %q", o.daemon)
	}
	o.Daemon = slice.Daemon(o.daemon)
	for _, p := range o.routing {
		if !slices.Contains(Protocols, p) {
			return ui.Usage(ui.DidYouMean(p, "protocol", Protocols),
				"--routing: there is no protocol %q", p)
		}
		o.Routing = append(o.Routing, slice.Protocol(p))
	}
	return nil
}

// Encode writes the topology as a file of its own: YAML, or the JSON that the API takes.
func (s *Source) Encode(asJSON bool) ([]byte, error) {
	if !asJSON {
		return topology.Marshal(s.Topology)
	}
	text, err := json.MarshalIndent(s.Topology, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode the topology: %w", err)
	}
	return append(text, '\n'), nil
}
