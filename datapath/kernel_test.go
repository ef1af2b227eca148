package datapath

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/google/go-cmp/cmp"

	"github.com/pergola-net/pergola/datapath/program"
)

func TestOldKernelIsRefusedByTheNameOfWhatItLacks(t *testing.T) {
	spec, err := loadObject()
	if err != nil {
		t.Fatal(err)
	}
	asked := map[call]bool{}
	err = supported(spec, func(p ebpf.ProgramType, helper asm.BuiltinFunc) error { // as Linux 5.9 would answer
		asked[call{p, helper}] = true
		if slices.Contains([]asm.BuiltinFunc{asm.FnLoop, asm.FnRedirectPeer, asm.FnXdpLoadBytes}, helper) {
			return ebpf.ErrNotSupported
		}
		return nil
	})
	var missing *MissingHelpersError
	if !errors.As(err, &missing) {
		t.Fatalf("it says: %v", err)
	}
	if diff := cmp.Diff([]string{"bpf_loop", "bpf_redirect_peer", "bpf_xdp_load_bytes"},
		missing.Helpers); diff != "" {
		t.Error(diff)
	}
	if text := err.Error(); missing.Release == "" || !strings.Contains(text, missing.Release) ||
		!strings.Contains(text, "Linux 6.1 or newer") {
		t.Errorf("it says: %s", text)
	}
	for _, c := range []call{{ebpf.SchedCLS, asm.FnLoop}, {ebpf.XDP, asm.FnLoop}, {ebpf.XDP, asm.FnRedirectMap}} {
		if !asked[c] {
			t.Errorf("nobody asked for %s in programs of type %s", program.HelperName(c.helper), c.from)
		}
	}
}

func TestKernelThatCannotBeAskedIsNoOldKernel(t *testing.T) {
	spec, err := loadObject()
	if err != nil {
		t.Fatal(err)
	}
	refused := errors.New("permission denied")
	err = supported(spec, func(ebpf.ProgramType, asm.BuiltinFunc) error { return refused })
	var missing *MissingHelpersError
	if !errors.Is(err, refused) || errors.As(err, &missing) {
		t.Errorf("it says: %v", err)
	}
}

func TestThisKernelIsSupported(t *testing.T) {
	inBench(t, func(b *bench) {
		if err := Supported(); err != nil {
			b.Error(err)
		}
	})
}
