package wire

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/kernel/netns"
	"github.com/pergola-net/pergola/lab/testkit"
)

// The kernel answers EEXIST where a name is taken, which the user has to mend, and where an index is, which is chosen
// anew.
func TestATakenIndexIsNoTakenName(t *testing.T) {
	testkit.Root(t)
	testkit.LeakCheck(t)
	err := netns.New(func() error {
		c, err := dialHere()
		if err != nil {
			return err
		}
		defer c.close()
		if err := c.addVethAt(100, 0, veth{name: "a", peer: "b", mtu: 1500}); err != nil {
			return err
		}
		for _, tt := range []struct {
			index int
			name  string
			taken bool
		}{{index: 100, name: "c", taken: true}, {index: 101, name: "a", taken: false}} {
			err := c.addVethAt(tt.index, 0, veth{name: tt.name, peer: "d", mtu: 1500})
			if !errors.Is(err, unix.EEXIST) || c.isIndexTaken(tt.index, tt.name) != tt.taken {
				t.Errorf("%s at %d: %v, index taken %v", tt.name, tt.index, err, !tt.taken)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
