package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/cmd/pergola/internal/capture"
	"github.com/pergola-net/pergola/cmd/pergola/internal/target"
	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/control/api"
	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/wording"
)

// captureOptions are the flags of capture.
type captureOptions struct {
	api.CaptureOptions
	name      string
	file      string
	wireshark bool
}

func newCapture(a *app) *cobra.Command {
	var o captureOptions
	cmd := &cobra.Command{
		Use:   "capture NODE:IFACE [FILTER...]",
		Short: "Show, save or send to Wireshark the frames that pass an interface",
		Long: `Capture the frames that pass an interface of a node, in both directions. Without -w and
--wireshark, tcpdump (of this machine) prints them. FILTER is an expression of tcpdump. Ctrl-C
ends the capture.

A router whose frames are captured leaves the fast path before the capture begins. A tcpdump
that is started in the router may miss the first frames: docs/fastpath.md says how many.
What a packet program forwards does not pass its node's interfaces: capture at the other end
of the link.`,
		Example: `  pergola capture denver:eth1
  pergola capture denver:eth1 -c 100 -w ospf.pcap proto ospf
  pergola capture denver:eth1 --wireshark
  ssh lab pergola capture denver:eth1 -w - | wireshark -k -i -`,
		Args:              arguments(1, -1),
		ValidArgsFunction: a.completeInterfaces,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Filter = strings.Join(args[1:], " ")
			if o.wireshark && o.file != "" {
				return ui.Usage("", "-w and --wireshark: choose one")
			}
			if o.Count < 0 || o.Snaplen < 0 {
				return ui.Usage("", "--count and --snaplen are not negative")
			}
			if o.file == "-" && a.IsTTY() {
				return ui.Usage("name a file, or pipe the output: "+
					"pergola capture ... -w - | tshark -r -",
					"-w - would write bytes to the terminal")
			}
			return a.capture(cmd.Context(), args[0], o)
		},
	}
	a.sliceFlag(cmd, &o.name)
	f := cmd.Flags()
	f.StringVarP(&o.file, "write", "w", "", "write the frames to `FILE` in pcap format; -: standard output")
	f.BoolVar(&o.wireshark, "wireshark", false, "open Wireshark on them")
	f.IntVarP(&o.Count, "count", "c", 0, "end after `N` frames")
	f.IntVar(&o.Snaplen, "snaplen", 0, "keep only the first `N` bytes of each frame")
	return cmd
}

func (a *app) capture(ctx context.Context, word string, o captureOptions) error {
	in, word := target.Split(word)
	net, err := a.network(ctx, either(o.name, in))
	if err != nil {
		return err
	}
	defer net.Close()
	s, err := net.state(ctx)
	if err != nil {
		return err
	}
	node, iface, err := target.Interface(s.Spec, word)
	if err != nil {
		return err
	}
	if s.Spec.Node(node).Kind == slice.Program {
		a.Say("%s", passedBy(s.Spec, slice.End{Node: node, Interface: iface}))
	}
	stream, err := net.Capture(ctx, net.name, node, iface, o.CaptureOptions)
	if err != nil && ctx.Err() != nil {
		return ui.Interrupted("nothing was captured")
	}
	if err != nil {
		return fmt.Errorf("capture on %s:%s: %w", node, iface, err)
	}
	defer stream.Close()
	return a.showCapture(ctx, stream, node+":"+iface, o)
}

// passedBy says where to look for frames of a node whose own kernel does not see them.
func passedBy(s *slice.Slice, at slice.End) string {
	text := fmt.Sprintf("what the packet program of %s forwards does not pass %s:%s", at.Node, at.Node,
		at.Interface)
	for _, l := range s.Links {
		if !slices.ContainsFunc(l.Ends, at.Is) {
			continue
		}
		for _, end := range l.Ends {
			if n := s.Node(end.Node); !end.Is(at) && n != nil && n.Kind != slice.Program {
				return text + fmt.Sprintf(": `pergola capture %s:%s` shows what comes and goes there",
					end.Node, end.Interface)
			}
		}
	}
	return text + ", but what it punts does"
}

func (a *app) showCapture(ctx context.Context, stream io.Reader, where string, o captureOptions) error {
	switch {
	case o.wireshark:
		return capture.Program(ctx, a.Terminal, stream,
			"install it (apt install wireshark), or write a file: pergola capture "+where+" -w FILE",
			"wireshark", "-k", "-i", "-")
	case o.file == "-":
		_, err := capture.Save(ctx, a.Out, stream)
		return err
	case o.file != "":
		frames, err := capture.SaveFile(ctx, o.file, stream,
			func() { a.Say("capturing on %s to %s: Ctrl-C ends", where, o.file) })
		if err != nil {
			return err
		}
		a.Say("%s written to %s", wording.Count(frames, "frame"), o.file)
		if a.JSON {
			return a.Emit(map[string]any{"file": o.file, "frames": frames})
		}
		return nil
	}
	a.Say("capturing on %s: Ctrl-C ends", where)
	return capture.Program(ctx, a.Terminal, stream,
		"install it (apt install tcpdump), or write a file: pergola capture "+where+" -w FILE",
		"tcpdump", "-n", "-l", "-r", "-")
}
