package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pergola-net/pergola/cmd/pergola/internal/capture"
	"github.com/pergola-net/pergola/cmd/pergola/internal/report"
	"github.com/pergola-net/pergola/cmd/pergola/internal/ui"
	"github.com/pergola-net/pergola/datapath/program"
)

// programInput are the flags that say which frames a program gets, and which filters it has.
type programInput struct {
	frames     string
	filters    string
	filter     []string
	in         uint32
	interfaces string
	outer      string
	memory     string
}

func (in *programInput) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&in.frames, "frame", "", "take the frames from `FILE`, pcap or pcapng of Ethernet")
	f.StringVar(&in.filters, "filters", "", "take filters from `FILE`, one a line")
	f.StringArrayVar(&in.filter, "filter", nil, "a `FILTER`, as 'destination=10.0.0.0/8 -> send 2'; repeatable")
	f.Uint32Var(&in.in, "interface", 1, "the frames come by the node's interface `N`")
	f.StringVar(&in.interfaces, "interfaces", "1,2,3,4", "the node has interfaces `LIST`")
	f.StringVar(&in.memory, "memory", "", "the program's memory begins with what is in `FILE`")
	f.StringVar(&in.outer, "outer", "", "the frames come in UDP packets from `ADDRESS:PORT`")
}

// read gives the filters, and the frames with the times at which they were captured.
func (in *programInput) read(o *program.Object) ([]program.Filter, []program.Frame, error) {
	if in.frames == "" {
		return nil, nil, ui.Usage("`pergola capture` and tcpdump make such files",
			"--frame FILE is missing: the frames that are to be run")
	}
	filters, err := in.readFilters(o)
	if err != nil {
		return nil, nil, err
	}
	from := program.Frame{Interface: in.in}
	if from.Interfaces, err = program.ParseInterfaces(in.interfaces); err != nil {
		return nil, nil, ui.Usage("", "--interfaces: %w", err)
	}
	if in.outer != "" {
		if err := from.Outer.UnmarshalText([]byte(in.outer)); err != nil {
			return nil, nil, ui.Usage("", "--outer: %w", err)
		}
	}
	captured, err := capture.Frames(in.frames)
	if err != nil {
		return nil, nil, err
	}
	var all []program.Frame
	for _, c := range captured {
		f := from
		f.Data, f.Time = c.Data, uint64(max(c.Time.UnixNano(), 1))
		all = append(all, f)
	}
	return filters, all, nil
}

func (in *programInput) readFilters(o *program.Object) ([]program.Filter, error) {
	filters, err := program.ParseFilters(strings.NewReader(strings.Join(in.filter, "\n")), o.Key)
	if err != nil {
		return nil, ui.Usage("--filter 'destination=10.0.0.0/8 -> send 2'", "--filter: %w", err)
	}
	if in.filters == "" {
		return filters, nil
	}
	f, err := os.Open(in.filters)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	more, err := program.ParseFilters(f, o.Key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", in.filters, err)
	}
	return append(filters, more...), nil
}

// readMemory gives what the program's memory begins with; nil: nothing.
func (in *programInput) readMemory() ([]byte, error) {
	if in.memory == "" {
		return nil, nil
	}
	return os.ReadFile(in.memory)
}

func newProgramTest(a *app) *cobra.Command {
	var in programInput
	var hook, write string
	cmd := &cobra.Command{
		Use:   "test FILE",
		Short: "Run captured frames through a packet program, and show what becomes of each",
		Long: `Run frames through a packet program in the kernel, one after the other and without a
network, and show the key that its parse stage built, the filter that matched, the
verdict, and the frame that comes out. FILE is an object, or a C file, which is compiled
first. Only root may.

A filter is a line: [table N] [priority N] FIELD=VALUE[/MASK]... -> VERDICT [queue N] [args BYTES].
Fields are those of the program's PERGOLA_KEY; a value is a number, an address or hex:BYTES; a mask
is a number of leading bits, or a value. Verdicts are send INTERFACE [more], flood INTERFACE,...,
udp ADDRESS:PORT, drop and punt. With ` + "`more`" + `, the next filter that matches sends a copy.
` + "`any`" + ` matches every key.`,
		Example: `  pergola program test router.o --frame frames.pcap
  pergola program test router.c --frame frames.pcap --interface 2 --write out.pcap
  pergola program test router.o --frame frames.pcap --filters filters.txt --json`,
		Args: arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if hook != string(program.XDP) && hook != string(program.TC) {
				return ui.Usage("", "--hook is xdp or tc, and not %q", hook)
			}
			return a.testProgram(cmd.Context(), args[0], &in, program.Hook(hook), write)
		},
	}
	in.flags(cmd)
	cmd.Flags().StringVar(&hook, "hook", string(program.XDP), "run it as at `HOOK`: xdp or tc")
	completeValues(cmd, "hook", string(program.XDP), string(program.TC))
	cmd.Flags().StringVar(&write, "write", "", "write the frames that come out to `FILE` in pcap format")
	return cmd
}

func (a *app) testProgram(ctx context.Context, name string, in *programInput, hook program.Hook, write string) error {
	o, err := a.readProgram(ctx, name)
	if err != nil {
		return err
	}
	filters, frames, err := in.read(o)
	if err != nil {
		return err
	}
	memory, err := in.readMemory()
	if err != nil {
		return err
	}
	p, err := program.Load(o, nil)
	if err != nil {
		return a.explainProgram(err)
	}
	if err := p.WriteMemory(memory); err != nil {
		return errors.Join(err, p.Close())
	}
	result, err := runFrames(p, hook, filters, frames)
	if err := errors.Join(err, p.Close()); err != nil {
		return err
	}
	if write != "" {
		if err := writeFrames(write, frames, result.Frames); err != nil {
			return err
		}
	}
	if a.JSON {
		return a.Emit(result)
	}
	for _, r := range result.Frames {
		a.Print("%s", r)
	}
	if len(o.Counters) > 0 {
		a.Print("counters: %s", report.Counters(o.Counters, result.Counters))
	}
	if len(filters) > 0 {
		a.Print("hits: %s", report.Hits(result.Hits))
	}
	return nil
}

func runFrames(p *program.Program, hook program.Hook, filters []program.Filter,
	frames []program.Frame) (result report.ProgramTest, err error) {
	if err := p.SetFilters(filters); err != nil {
		return result, err
	}
	err = program.OnOneCPU(func(cpu int) error {
		for i, f := range frames {
			o, err := p.Run(hook, cpu, f)
			if err != nil {
				return fmt.Errorf("frame %d: %w", i+1, err)
			}
			result.Frames = append(result.Frames, report.NewProgramRun(i+1, f, o, p.Object.Key))
		}
		return nil
	})
	if err != nil {
		return result, err
	}
	if result.Counters, err = p.ReadCounters(); err != nil {
		return result, err
	}
	result.Hits, err = p.Hits()
	return result, err
}

func writeFrames(path string, frames []program.Frame, runs []report.ProgramRun) error {
	var out []capture.Frame
	for i, r := range runs {
		if r.Leaves() {
			out = append(out, capture.Frame{Data: r.Data, Time: frames[i].When()})
		}
	}
	return capture.Write(path, out)
}

func newProgramProfile(a *app) *cobra.Command {
	var in programInput
	cmd := &cobra.Command{
		Use:   "profile FILE",
		Short: "Measure what each stage of a packet program costs",
		Long: `Run captured frames through a packet program in the kernel, many times and up to each
stage, and show the time that a frame takes in each: nanoseconds, the mean over the
frames, from a warm cache. Also shown is what the kernel's verifier looked at, which
bounds what one frame can cost, and the stack. FILE is an object or a C file. Only root
may.`,
		Example: "  pergola program profile router.o --frame frames.pcap --filters filters.txt",
		Args:    arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.profileProgram(cmd.Context(), args[0], &in)
		},
	}
	in.flags(cmd)
	return cmd
}

func (a *app) profileProgram(ctx context.Context, name string, in *programInput) error {
	const most = 100 // frames: one takes 10 ms
	o, err := a.readProgram(ctx, name)
	if err != nil {
		return err
	}
	filters, frames, err := in.read(o)
	if err != nil {
		return err
	}
	if len(frames) > most {
		a.Say("measuring the first %d of %d frames", most, len(frames))
		frames = frames[:most]
	}
	how := program.DefaultMeasurement
	if how.Memory, err = in.readMemory(); err != nil {
		return err
	}
	p, err := program.Measure(o, filters, frames, how)
	if err != nil {
		return a.explainProgram(err)
	}
	if a.JSON {
		return a.Emit(p)
	}
	a.Table(report.ProgramStages(p))
	a.Print("%s", report.ProgramCosts(p))
	return nil
}
