package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/cmd/pergola/internal/source"
	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/model/graph"
	"github.com/pergola-net/pergola/model/slice"
)

// graphOptions are the flags of graph.
type graphOptions struct {
	source.Options
	file          string
	mermaid, dot  bool
	html          string
	width, height int
}

func newGraph(a *app) *cobra.Command {
	var o graphOptions
	cmd := &cobra.Command{
		Use:   "graph [NETWORK|FILE]",
		Short: "Draw a network: in the terminal, as Mermaid, DOT or one HTML page",
		Long: `Draw a running network, and mark what is down; or draw a topology file, without a server. The
default is a map in the terminal; a network too big for a map is listed. Without an argument,
this is the only network that runs, the network of the topology file in the current directory,
or else that file.`,
		Example: `  pergola graph
  pergola graph abilene.graphml
  pergola graph --html abilene.html
  pergola graph --dot | neato -Tsvg > abilene.svg`,
		Args:              arguments(0, 1),
		ValidArgsFunction: a.completeSlices,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.mermaid && o.dot || (o.mermaid || o.dot) && o.html != "" {
				return ui.Usage("", "--mermaid, --dot and --html: choose one")
			}
			s, st, err := a.drawn(cmd.Context(), either(o.file, first(args)), o)
			if err != nil {
				return err
			}
			return a.draw(s, st, o)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.file, "topo", "t", "", "the topology `FILE`")
	f.BoolVar(&o.mermaid, "mermaid", false, "write a Mermaid flowchart (for Markdown)")
	f.BoolVar(&o.dot, "dot", false, "write Graphviz source")
	f.StringVar(&o.html, "html", "", "write one page for a browser to `FILE`; -: standard output")
	f.IntVar(&o.width, "width", 0, "columns of the map (default: those of the terminal)")
	f.IntVar(&o.height, "height", 0, "lines of the map (default: those of the terminal)")
	o.AddImportFlags(f)
	completeImportFlags(cmd)
	return cmd
}

// drawn finds what is to be drawn: a running network, or a file.
func (a *app) drawn(ctx context.Context, word string, o graphOptions) (*slice.Slice, *slice.Status, error) {
	if source.IsFile(word) {
		s, err := a.resolved(ctx, word, o)
		return s, nil, err
	}
	net, err := a.network(ctx, word)
	if err != nil {
		if word == "" && ctx.Err() == nil {
			if path, other := source.Find("."); other == nil {
				s, err := a.resolved(ctx, path, o)
				return s, nil, err
			}
		}
		return nil, nil, err
	}
	defer net.Close()
	s, err := net.state(ctx)
	if err != nil {
		return nil, nil, err
	}
	return s.Spec, &s.Status, nil
}

// resolved reads a topology file as the server would.
func (a *app) resolved(ctx context.Context, path string, o graphOptions) (*slice.Slice, error) {
	src, err := source.Load(ctx, path, o.Options)
	if err != nil {
		return nil, err
	}
	a.warn(src.Warnings)
	a.leftOut(src.LeftOut)
	return src.Resolve()
}

func (a *app) draw(s *slice.Slice, st *slice.Status, o graphOptions) error {
	switch {
	case a.JSON:
		return a.Emit(struct {
			Slice  *slice.Slice  `json:"slice"`
			Status *slice.Status `json:"status,omitempty"`
		}{s, st})
	case o.mermaid:
		return graph.Mermaid(a.Out, s, st)
	case o.dot:
		return graph.DOT(a.Out, s, st)
	case o.html == "-":
		return graph.HTML(a.Out, s, st)
	case o.html != "":
		return a.writePage(o.html, s, st)
	}
	width, height := a.Size(ui.DefaultWidth, ui.DefaultHeight)
	return graph.Terminal(a.Out, s, st, or(o.width, width), or(o.height, height), a.Color())
}

func or(a, b int) int {
	if a > 0 {
		return a
	}
	return b
}

func (a *app) writePage(path string, s *slice.Slice, st *slice.Status) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	defer f.Close()
	if err := graph.HTML(f, s, st); err != nil {
		return fmt.Errorf("write the page %s: %w", path, err)
	}
	a.Say("%s written: open it in a browser", path)
	return f.Close()
}
