package wire

import (
	"errors"
	"fmt"
	"sync"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/host/wiring"
	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/kernel/rtnl"
)

// MissingModuleError says that the kernel lacks something that a link asks for.
type MissingModuleError struct {
	Module string // sch_netem
	For    string // what cannot be done without it
}

func (e *MissingModuleError) Error() string {
	return fmt.Sprintf("%s needs the kernel module %s, which this kernel does not have: "+
		"install your distribution's full kernel (on Debian, linux-image-amd64 in place of a cloud kernel) "+
		"or leave %s out", e.For, e.Module, e.For)
}

// HaveNetem returns nil if the kernel can delay and lose frames, a *MissingModuleError if it cannot, and any other
// error if that could not be found out.
func HaveNetem() error { return netemProbe.ask() }

// HaveHTB is the same for limiting a rate.
func HaveHTB() error { return htbProbe.ask() }

var (
	netemProbe = &probe{kind: "netem", missing: MissingModuleError{"sch_netem", "delay, jitter or loss of a link"}}
	htbProbe   = &probe{kind: "htb", missing: MissingModuleError{"sch_htb", "rate or queue of a link"}}
)

// probe asks the kernel once whether it has a kind of qdisc; what could not be found out is asked again.
type probe struct {
	kind    string
	missing MissingModuleError

	mu    sync.Mutex // guards known and has
	known bool
	has   bool
}

func (p *probe) ask() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.known {
		err := p.try()
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("find out whether the kernel has %s: %w", p.missing.Module, err)
		}
		p.known, p.has = true, err == nil
	}
	if !p.has {
		missing := p.missing
		return &missing
	}
	return nil
}

// try makes one, on lo of a namespace that ends with it. The kernel loads the module if it can.
func (p *probe) try() error {
	return netns.New(func() error {
		c, err := dialHere()
		if err != nil {
			return err
		}
		defer c.close()
		options := rtnl.Struct(nl.TCA_OPTIONS, netemOptions{Limit: 1})
		if p.kind == "htb" {
			options = rtnl.Nest(nl.TCA_OPTIONS, rtnl.Struct(nl.TCA_HTB_INIT, htbGlobal{
				Version: 3, Rate2Quantum: 10,
			}))
		}
		const lo = 1
		return c.setQdisc(lo, p.kind, wiring.HandleHTB, tcRoot, options)
	})
}
