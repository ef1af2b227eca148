package datapath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// ABI numbers the layout and meaning of the pinned maps. Programs of the same ABI share maps: a rebuilt program takes the
// place of the old one and nothing else happens. Raise it with any change to a map, to a struct in it, or to what a value means.
const ABI = 7

// inherit copies the port records of data paths with another ABI into ours, member by member: what both layouts call by the same
// name and give the same size is carried over, the rest is zero. A member whose meaning changes must therefore change
// its name. Counters start again at zero.
func (d *DataPath) inherit(root string, v version) error {
	others, err := v.others(root)
	if err != nil {
		return err
	}
	for _, dir := range others {
		old, err := ebpf.LoadPinnedMap(filepath.Join(dir, objectMapPorts), &ebpf.LoadPinOptions{ReadOnly: true})
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		err = d.copyPorts(old)
		if err := errors.Join(err, old.Close()); err != nil {
			return fmt.Errorf("copy from %s: %w", dir, err)
		}
	}
	return nil
}

func (d *DataPath) copyPorts(old *ebpf.Map) error {
	from, err := valueType(old)
	if err != nil {
		return err
	}
	to, err := valueType(d.maps.Ports)
	if err != nil {
		return err
	}
	var (
		ifindex uint32
		value   = make([]byte, from.Size)
		records = old.Iterate()
	)
	for records.Next(&ifindex, &value) {
		if ifindex >= MaxPorts || !slices.ContainsFunc(value, func(b byte) bool { return b != 0 }) {
			continue
		}
		if err := d.maps.Ports.Put(ifindex, convert(value, from, to)); err != nil {
			return fmt.Errorf("write port record %d: %w", ifindex, err)
		}
	}
	return records.Err()
}

// valueType asks the kernel what the map's values look like.
func valueType(m *ebpf.Map) (*btf.Struct, error) {
	handle, err := m.Handle()
	if err != nil {
		return nil, fmt.Errorf("read type of map: %w", err)
	}
	defer func() { _ = handle.Close() }()
	types, err := handle.Spec(nil)
	if err != nil {
		return nil, fmt.Errorf("read type of map: %w", err)
	}
	var port *btf.Struct
	if err := types.TypeByName("port", &port); err != nil {
		return nil, fmt.Errorf("read type of map: %w", err)
	}
	return port, nil
}

func convert(value []byte, from, to *btf.Struct) []byte {
	out := make([]byte, to.Size)
	for _, want := range to.Members {
		for _, have := range from.Members {
			n, err := btf.Sizeof(want.Type)
			m, errHave := btf.Sizeof(have.Type)
			if have.Name == want.Name && err == nil && errHave == nil && n == m {
				at := have.Offset.Bytes()
				copy(out[want.Offset.Bytes():], value[at:at+uint32(n)])
			}
		}
	}
	return out
}

// others lists the pin directories of other ABIs.
func (v version) others(root string) ([]string, error) {
	all, err := filepath.Glob(filepath.Join(root, "abi*"))
	if err != nil {
		return nil, err
	}
	var others []string
	for _, dir := range all {
		if dir != v.dir(root) {
			others = append(others, dir)
		}
	}
	return others, nil
}

// removeOthers unpins what other builds left.
func (v version) removeOthers(root string) error {
	stale, err := v.others(root)
	if err != nil {
		return err
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
