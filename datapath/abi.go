package datapath

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// ABI numbers the layout and meaning of the pinned maps. Programs of the same ABI share maps: a rebuilt program takes
// the place of the old one and nothing else happens. Raise it with any change to a map, to a struct in it, or to what a
// value means, and say in upgrades what becomes of the map.
const ABI = 22

// removeOthers unpins what other builds left.
func (v version) removeOthers(root string) error {
	others, err := v.others(root)
	if err != nil {
		return err
	}
	var stale []string
	for _, o := range others {
		stale = append(stale, o.dir(root))
	}
	programs, err := filepath.Glob(filepath.Join(v.dir(root), "*-*"))
	if err != nil {
		return err
	}
	for _, pin := range programs {
		if !strings.HasSuffix(pin, "-"+v.programs) {
			stale = append(stale, pin)
		}
	}
	for _, path := range stale {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("unpin an older data path: %w", err)
		}
	}
	return nil
}
