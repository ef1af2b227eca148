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

// ErrNoDevice is returned by hooks for a device that does not exist.
var ErrNoDevice = errors.New("no such device")

// TCX is the hook of Linux 6.6 and newer. It attaches without a BPF link: the program stays while the device does, whatever
// becomes of us, and needs no pin per port.
type TCX struct{}

// Attach implements Hook.
func (TCX) Attach(ifindex int, p *ebpf.Program) error {
	opts := link.RawAttachProgramOptions{Target: ifindex, Program: p, Attach: ebpf.AttachTCXIngress}
	there, err := link.QueryPrograms(link.QueryOptions{Target: ifindex, Attach: ebpf.AttachTCXIngress})
	if errors.Is(err, unix.ENODEV) {
		return ErrNoDevice
	}
	if err != nil && !errors.Is(err, unix.ENOENT) { // ENOENT: never had a program
		return err
	}
	if err == nil && len(there.Programs) > 0 {
		old, err := ebpf.NewProgramFromID(there.Programs[0].ID) // BPF_F_REPLACE takes no id
		if err != nil {
			return fmt.Errorf("open the program that is there: %w", err)
		}
		defer func() { _ = old.Close() }()
		opts.Anchor = link.ReplaceProgram(old)
	}
	err = link.RawAttachProgram(opts)
	if errors.Is(err, unix.EEXIST) { // it is there already
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
