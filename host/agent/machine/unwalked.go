package machine

import "github.com/pergola-net/pergola/datapath"

// UnwalkedReader reads packets with labels that routers could not send on; *datapath.UnwalkedReader does.
type UnwalkedReader interface {
	Read() (datapath.Unwalked, error) // os.ErrClosed after Close
	Close() error
}

// ReadUnwalked implements DataPath.
func (n *rootNetwork) ReadUnwalked() (UnwalkedReader, error) {
	r, err := n.HostNetwork.ReadUnwalked()
	if err != nil {
		return nil, err // no typed nil
	}
	return r, nil
}
