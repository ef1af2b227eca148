package datapath

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/datapath/program"
)

// MinimumKernel is the oldest Linux on which the programs are tested.
const MinimumKernel = "6.1"

// MissingHelpersError says that the kernel is too old for the programs, or was built without what they call.
type MissingHelpersError struct {
	Helpers []string // bpf_loop
	Release string   // of the kernel
}

func (e *MissingHelpersError) Error() string {
	return fmt.Sprintf("the kernel (Linux %s) has no %s, which frames need: boot Linux %s or newer",
		e.Release, strings.Join(e.Helpers, ", no "), MinimumKernel)
}

// Supported returns nil if the kernel has all that the programs call, a *MissingHelpersError if it has not, and any
// other error if that could not be found out. It makes nothing that stays.
func Supported() error {
	spec, err := loadObject()
	if err != nil {
		return fmt.Errorf("read data path object: %w", err)
	}
	return supported(spec, features.HaveProgramHelper)
}

func supported(spec *ebpf.CollectionSpec, have func(ebpf.ProgramType, asm.BuiltinFunc) error) error {
	var missing []string
	for _, c := range calls(spec) {
		err := have(c.from, c.helper)
		switch {
		case errors.Is(err, ebpf.ErrNotSupported):
			missing = append(missing, program.HelperName(c.helper))
		case err != nil:
			return fmt.Errorf("find out whether the kernel has %s: %w", program.HelperName(c.helper), err)
		}
	}
	if missing == nil {
		return nil
	}
	slices.Sort(missing)
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return fmt.Errorf("ask for the kernel's release: %w", err)
	}
	return &MissingHelpersError{slices.Compact(missing), unix.ByteSliceToString(uts.Release[:])}
}

// call is a helper that programs of a type call.
type call struct {
	from   ebpf.ProgramType
	helper asm.BuiltinFunc
}

func calls(spec *ebpf.CollectionSpec) []call {
	seen := map[call]bool{}
	for _, p := range spec.Programs {
		for _, ins := range p.Instructions {
			if ins.IsBuiltinCall() {
				seen[call{p.Type, asm.BuiltinFunc(ins.Constant)}] = true
			}
		}
	}
	var all []call
	for c := range seen {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b call) int {
		return cmp.Or(cmp.Compare(a.from, b.from),
			cmp.Compare(a.helper, b.helper))
	})
	return all
}
