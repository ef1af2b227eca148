package path

import (
	"errors"

	"github.com/pergola-net/pergola/bench/vnet"
)

var errNoLineCard = errors.New("there is no line card yet")

func (p pergolaChains) lineCards(_ *vnet.Network, _ int) error { return errNoLineCard }
