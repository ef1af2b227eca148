package wire

import (
	"errors"

	"github.com/pergola-net/pergola/datapath"
)

// What waits for the data path's side of it.

var errPending = errors.New("the data path has no tunnels yet")

const modeTunnel = datapath.None

func (s *Substrate) setTunnel(int, Tunnel) error                  { return errPending }
func (s *Substrate) tunnels() (map[int]bool, error)               { return nil, nil }
func (s *Substrate) attachUplink(int) error                       { return errPending }
func (s *Substrate) attachEgress(int) error                       { return errPending }
func (s *Substrate) attachUnderlay(int) error                     { return errPending }
func (s *Substrate) attachLineCard(device) (string, error)        { return "", errPending }
func (s *Substrate) leave(map[int]bool) error                     { return nil }
func (s *Substrate) underlayCounters() (map[string]uint64, error) { return nil, nil }
