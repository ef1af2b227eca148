package datapath

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// A map that has the same layout and meaning in the older data path goes on as it is, with all that is in it: both
// data paths pin the same map, and frames meet it whichever program they come to. A fate says what becomes of a map
// that has changed.
type fate int

const (
	// carried: its records are converted, member by member. What both layouts call by the same name and give the
	// same size is carried over, the rest is zero. A member whose meaning changes must therefore change its name.
	carried fate = iota
	// rebuilt: it begins empty, and the agent writes it anew in its first pass. Until then frames take the kernels.
	rebuilt
	// reset: it begins empty. It counts, or holds nothing for longer than a second.
	reset
)

// upgrade says what becomes of a pinned map.
type upgrade struct {
	since int // the ABI since when layout and meaning are what they are
	fate  fate
}

// mirrorSince is one number for all maps of the mirror (package fib): they are adopted together, or not at all.
const mirrorSince = 6

// filtersSince is one number for all maps of filters (package filter), for the same reason.
const filtersSince = 11

// nodesSince is one number for all that programs of nodes share with the walk: they call each other, and each reads
// what the other one left in the record of the work. It rises with each other map that programs of nodes read, too.
const nodesSince = 18

// labelCellsSince is one number for shortcuts to labels and for the cells that they name.
const labelCellsSince = 22

var upgrades = map[string]upgrade{
	objectMapPorts: {18, carried},

	objectMapClassifiers: {8, rebuilt}, // until then frames take the default class

	objectMapNotes: {10, carried},

	objectMapTunnels:        {5, carried},
	objectMapEncapsulations: {6, carried},
	objectMapEnds:           {5, carried},
	objectMapUplinks:        {14, carried},
	objectMapMeters:         {9, carried}, // of older ones than 8, from the tunnels (meterTunnels)

	// Entries of device maps belong to devices of the namespace of the thread that makes them.
	objectMapDevices: {3, rebuilt},
	objectMapNics:    {6, rebuilt},
	objectMapExits:   {7, rebuilt},

	objectMapLegs:       {mirrorSince, rebuilt},
	objectMapRouters:    {mirrorSince, rebuilt},
	objectMapNodes:      {mirrorSince, rebuilt},
	objectMapNexthops:   {mirrorSince, rebuilt},
	objectMapNeighbours: {mirrorSince, rebuilt},
	objectMapShortcuts:  {mirrorSince, rebuilt},
	objectMapSources:    {mirrorSince, rebuilt},
	objectMapSuspects:   {mirrorSince, rebuilt},
	objectMapLease:      {mirrorSince, rebuilt},

	objectMapFilterIndex:   {filtersSince, rebuilt}, // until then no filter matches
	objectMapFilterBuckets: {filtersSince, rebuilt},
	objectMapFilterChunks:  {filtersSince, rebuilt},
	objectMapFilterHits:    {filtersSince, rebuilt},

	objectMapNodePrograms: {nodesSince, rebuilt}, // until then frames to packet programs are dropped
	objectMapWalks:        {nodesSince, rebuilt},
	objectMapFrames:       {nodesSince, reset},

	objectMapFastpathTimes: {nodesSince, rebuilt}, // until then packet programs have as much time as they want
	objectMapFastpathSpent: {nodesSince, reset},

	objectMapNodeProgramsXdp: {nodesSince, rebuilt},
	objectMapWalksXdp:        {nodesSince, rebuilt},
	objectMapHandovers:       {nodesSince, rebuilt}, // until then packet programs run in tc alone

	objectMapUdpOwners: {nodesSince, rebuilt}, // until then the kernel has what comes to UDP ports

	objectMapLabels:       {15, rebuilt}, // until then what carries labels is dropped
	objectMapLabelStacks:  {22, reset},
	objectMapReservations: {22, rebuilt}, // until then what LSPs carry is best effort
	objectMapLabelRules:   {19, rebuilt}, // until then frames go by their routes

	// When it is opened; until then labels are looked for in the table.
	objectMapLabelShortcuts: {labelCellsSince, rebuilt},
	objectMapLabelCells:     {labelCellsSince, rebuilt},

	objectMapUnwalkedFrames: {17, reset},
	objectMapUnwalkedFull:   {17, reset},

	objectMapEarlyRules:  {18, rebuilt}, // until then line cards treat all frames alike
	objectMapBestEfforts: {22, reset},
	objectMapBelowPorts:  {18, rebuilt},
	objectMapBelowNics:   {18, rebuilt},

	objectMapCounts:    {18, reset},
	objectMapPunts:     {17, reset},
	objectMapUnderlays: {18, reset},
}

// share pins maps of the older data path among ours, where they are the same. What is pinned there already stays.
func (v version) share(root string) error {
	old, ok, err := v.previous(root)
	if err != nil || !ok {
		return err
	}
	for name, u := range upgrades {
		if old.abi < u.since {
			continue
		}
		if err := sharePin(filepath.Join(old.dir(root), name), filepath.Join(v.dir(root), name)); err != nil {
			return fmt.Errorf("share map %s: %w", name, err)
		}
	}
	return nil
}

func sharePin(from, to string) error {
	if _, err := os.Stat(to); err == nil {
		return nil
	}
	m, err := ebpf.LoadPinnedMap(from, nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = m.Close() }()
	second, err := m.Clone() // whose pin does not move the first one's
	if err != nil {
		return err
	}
	defer func() { _ = second.Close() }()
	return second.Pin(to)
}

// convert copies what is to be carried from the other ABIs' maps that were not shared.
func (d *DataPath) convert(v version) error {
	others, err := v.others(d.dir)
	if err != nil {
		return err
	}
	for _, old := range others {
		for name, u := range upgrades {
			if u.fate != carried || v.abi > old.abi && old.abi >= u.since {
				continue
			}
			if err := d.convertMap(filepath.Join(old.dir(d.dir), name), d.spec.Maps[name]); err != nil {
				return fmt.Errorf("convert map %s of ABI %d: %w", name, old.abi, err)
			}
		}
	}
	return nil
}

func (d *DataPath) convertMap(pin string, spec *ebpf.MapSpec) error {
	old, err := ebpf.LoadPinnedMap(pin, &ebpf.LoadPinOptions{ReadOnly: true})
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = old.Close() }()
	own := d.mapsByName()[spec.Name]
	if own.KeySize() != old.KeySize() {
		return fmt.Errorf("its keys have %d bytes, and had %d", own.KeySize(), old.KeySize())
	}
	change, err := conversion(old, own, spec)
	if err != nil {
		return err
	}
	key, value := make([]byte, old.KeySize()), make([]byte, old.ValueSize())
	for records := old.Iterate(); ; {
		if !records.Next(&key, &value) {
			return records.Err()
		}
		if isZero(value) && own.Type() == ebpf.Array {
			continue
		}
		if err := own.Put(key, change(value)); err != nil {
			return fmt.Errorf("write record %x: %w", key, err)
		}
	}
}

// conversion makes values of one map into values of the other: by the kernel's word on their members, if they have any.
func conversion(old, own *ebpf.Map, spec *ebpf.MapSpec) (func([]byte) []byte, error) {
	s, ok := spec.Value.(*btf.Struct)
	if !ok {
		return func(b []byte) []byte { return append(make([]byte, 0, own.ValueSize()), b...) }, nil
	}
	from, err := valueType(old, s.Name)
	if err != nil {
		return nil, err
	}
	to, err := valueType(own, s.Name)
	if err != nil {
		return nil, err
	}
	return func(b []byte) []byte { return convertRecord(b, from, to) }, nil
}

func isZero(value []byte) bool {
	return !slices.ContainsFunc(value, func(b byte) bool { return b != 0 })
}

// valueType asks the kernel what the map's values look like.
func valueType(m *ebpf.Map, name string) (*btf.Struct, error) {
	handle, err := m.Handle()
	if err != nil {
		return nil, fmt.Errorf("read type of map: %w", err)
	}
	defer func() { _ = handle.Close() }()
	types, err := handle.Spec(nil)
	if err != nil {
		return nil, fmt.Errorf("read type of map: %w", err)
	}
	var value *btf.Struct
	if err := types.TypeByName(name, &value); err != nil {
		return nil, fmt.Errorf("read type of map: %w", err)
	}
	return value, nil
}

func convertRecord(value []byte, from, to *btf.Struct) []byte {
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

// others lists the other ABIs that have pins, the oldest first.
func (v version) others(root string) ([]version, error) {
	all, err := filepath.Glob(filepath.Join(root, "abi*"))
	if err != nil {
		return nil, err
	}
	found := map[int]bool{}
	for _, dir := range all {
		n, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), "abi"))
		if err == nil && n != v.abi {
			found[n] = true
		}
	}
	var others []version
	for _, n := range slices.Sorted(maps.Keys(found)) {
		others = append(others, version{abi: n})
	}
	return others, nil
}

// previous is the newest of the older ABIs that have pins.
func (v version) previous(root string) (version, bool, error) {
	others, err := v.others(root)
	for _, o := range slices.Backward(others) {
		if o.abi < v.abi {
			return o, true, err
		}
	}
	return version{}, false, err
}
