package datapath

import (
	"errors"
	"fmt"
	"math"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// TCX is the hook that Linux 6.6 brought. It attaches without a BPF link: the program stays while the device does, whatever
// becomes of us, and needs no pin per port.
type TCX struct{}

// Attach implements Hook.
func (TCX) Attach(ifindex int, p *ebpf.Program) error {
	return link.RawAttachProgram(link.RawAttachProgramOptions{Target: ifindex, Program: p, Attach: ebpf.AttachTCXIngress})
}

// Replace implements Hook.
func (t TCX) Replace(ifindexes []int, p *ebpf.Program) error {
	for _, ifindex := range ifindexes {
		err := t.replace(ifindex, p)
		if err != nil && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("device %d: %w", ifindex, err)
		}
	}
	return nil
}

func (t TCX) replace(ifindex int, p *ebpf.Program) error {
	there, err := link.QueryPrograms(link.QueryOptions{Target: ifindex, Attach: ebpf.AttachTCXIngress})
	if errors.Is(err, unix.ENOENT) || err == nil && len(there.Programs) == 0 {
		return t.Attach(ifindex, p)
	}
	if err != nil {
		return err
	}
	old, err := ebpf.NewProgramFromID(there.Programs[0].ID) // BPF_F_REPLACE takes no id
	if err != nil {
		return fmt.Errorf("open the program that is there: %w", err)
	}
	defer func() { _ = old.Close() }()
	err = link.RawAttachProgram(link.RawAttachProgramOptions{
		Target: ifindex, Program: p, Attach: ebpf.AttachTCXIngress, Anchor: link.ReplaceProgram(old),
	})
	if errors.Is(err, unix.EEXIST) { // it is this one
		return nil
	}
	return err
}

// HaveTCX returns nil if the kernel has tcx, an error that is ebpf.ErrNotSupported if it has not, and any other error if that
// could not be found out.
func HaveTCX() error {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		return fmt.Errorf("load tc program: %w", err)
	}
	defer func() { _ = p.Close() }()
	// A kernel that knows tcx looks for the device first.
	l, err := link.AttachTCX(link.TCXOptions{Interface: math.MaxInt32, Program: p, Attach: ebpf.AttachTCXIngress})
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	if err == nil {
		_ = l.Close()
		return errors.New("attach tcx program to no device: accepted")
	}
	return fmt.Errorf("attach tcx program: %w", err)
}
