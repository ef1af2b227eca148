// Package datapath is everything a packet meets: eBPF programs, the maps they read, and their counters.
//
// It knows nothing of slices, users or files: it is given numbers. Ports are named by ifindex; their namespace is that of the
// thread that calls Open and Attach.
//
// Programs and maps are pinned, and the programs are attached to devices without a file descriptor that would keep them
// there: they outlive the process that loaded them. Open adopts what it finds. A newer program replaces the one it finds port by
// port, each at once, while frames flow.
package datapath

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/pergola-net/pergola/datapath/fib"
)

// Program is what a Hook attaches.
type Program = ebpf.Program

// Hook attaches a program to the ingress side of devices. The thread must be in their namespace.
type Hook interface {
	// Replace makes p the program of all these devices, each at once: no frame meets two programs, or none, if there was one.
	// Devices that do not exist are left out.
	Replace(ifindexes []int, p *Program) error
	// Attach gives a new device the program of the last Replace.
	Attach(ifindex int, p *Program) error
}

// DataPath holds the pinned objects of one directory. Its methods may be called concurrently.
type DataPath struct {
	hook    Hook
	program *ebpf.Program
	maps    objectMaps
}

// Open adopts the data path that is pinned in dir, a directory of a bpf file system, or makes it. The calling thread must be
// in the namespace of the ports.
func Open(dir string, hook Hook) (*DataPath, error) {
	spec, err := loadObject()
	if err != nil {
		return nil, fmt.Errorf("read data path object: %w", err)
	}
	return open(dir, hook, spec, version{abi: ABI, program: digest(_ObjectBytes)})
}

func open(dir string, hook Hook, spec *ebpf.CollectionSpec, v version) (*DataPath, error) {
	d := &DataPath{hook: hook}
	if err := os.MkdirAll(v.dir(dir), 0o700); err != nil {
		return nil, fmt.Errorf("make pin directory: %w", err)
	}
	if err := d.load(dir, spec, v); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// load finishes with pinning the program, which says that nothing is left to do: killed before, the next Open starts over.
func (d *DataPath) load(dir string, spec *ebpf.CollectionSpec, v version) error {
	pinned, err := ebpf.LoadPinnedProgram(v.programPin(dir), nil)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("adopt pinned program: %w", err)
	}
	if pinned != nil {
		d.program = pinned
		return d.loadMaps(dir, spec, v)
	}
	var objects struct {
		objectPrograms
		objectMaps
	}
	err = spec.LoadAndAssign(&objects, &ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: v.dir(dir)}})
	if err != nil {
		return fmt.Errorf("load data path: %w", err)
	}
	d.program, d.maps = objects.PortIngress, objects.objectMaps
	if err := d.inherit(dir, v); err != nil {
		return fmt.Errorf("take over the ports of an older data path: %w", err)
	}
	ports, err := d.Ports()
	if err != nil {
		return err
	}
	if err := d.hook.Replace(slices.Collect(maps.Keys(ports)), d.program); err != nil {
		return fmt.Errorf("attach %s: %w", objectProgPortIngress, err)
	}
	if err := d.program.Pin(v.programPin(dir)); err != nil {
		return fmt.Errorf("pin program: %w", err)
	}
	return v.removeOthers(dir)
}

func (d *DataPath) loadMaps(dir string, spec *ebpf.CollectionSpec, v version) error {
	spec.Programs = nil
	err := spec.LoadAndAssign(&d.maps, &ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: v.dir(dir)}})
	if err != nil {
		return fmt.Errorf("adopt pinned maps: %w", err)
	}
	return nil
}

// Attach makes the program look at every frame that enters at the device.
func (d *DataPath) Attach(ifindex int) error {
	if err := d.hook.Attach(ifindex, d.program); err != nil {
		return fmt.Errorf("attach %s to device %d: %w", objectProgPortIngress, ifindex, err)
	}
	return nil
}

// FIB is what routers' forwarding tables are written into. The maps stay the data path's: they are closed with it.
func (d *DataPath) FIB() fib.Maps {
	return fib.Maps{
		Legs: d.maps.Legs, Routers: d.maps.Routers, Nodes: d.maps.Nodes, Nexthops: d.maps.Nexthops,
		Neighbours: d.maps.Neighbours, Sources: d.maps.Sources, Lease: d.maps.Lease,
	}
}

// Close lets go of the objects; pinned and attached as they are, they stay.
func (d *DataPath) Close() error {
	var errs []error
	if d.program != nil {
		errs = append(errs, d.program.Close())
	}
	errs = append(errs, d.maps.Close())
	return errors.Join(errs...)
}

func digest(object []byte) string {
	sum := sha256.Sum256(object)
	return hex.EncodeToString(sum[:6])
}

// version names the pins of one build of the data path.
type version struct {
	abi     int
	program string // digest of the object file
}

func (v version) dir(root string) string { return filepath.Join(root, fmt.Sprintf("abi%d", v.abi)) }

func (v version) programPin(root string) string {
	return filepath.Join(v.dir(root), objectProgPortIngress+"-"+v.program)
}
