package path

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/pergola-net/pergola/bench/vnet"
	"github.com/pergola-net/pergola/datapath"
	"github.com/pergola-net/pergola/netns"
)

// lineCards makes the ports of both hosts what the devices of a NIC are: frames come in through XDP, and go out so.
func (p pergolaChains) lineCards(n *vnet.Network, routers int) error {
	left, right := n.PortIndex(node(0), rightDevice), n.PortIndex(node(routers+1), leftDevice)
	return netns.Do(p.ground.Substrate.Namespace(), func() error {
		data, err := datapath.Open(filepath.Join(p.path, "bpf"), adopted{})
		if err != nil {
			return fmt.Errorf("open the data path: %w", err)
		}
		const native = true
		return errors.Join(data.AttachXDP(left, native), data.TakeXDP(right, right), data.Close())
	})
}

// adopted is the hook of a data path that another has made: there is nothing to attach.
type adopted struct{}

var errMade = errors.New("the data path is there already")

func (adopted) Replace([]int, *datapath.Program) error { return errMade }
func (adopted) Attach(int, *datapath.Program) error    { return errMade }
