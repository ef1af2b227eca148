package wire

import (
	"errors"

	"github.com/pergola-net/pergola/datapath"
)

// What waits for the data path's side of it.

var errPending = errors.New("the data path has no tunnels yet")

const modeTunnel = datapath.None

func (s *Substrate) setTunnel(int, Tunnel) error { return errPending }

func (s *Substrate) tunnels() (map[int]bool, error) { return nil, nil }
