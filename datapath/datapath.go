// Package datapath is everything a packet meets: eBPF programs, the maps they read, and their counters.
//
// It knows nothing of slices, users or files: it is given numbers. Ports are named by ifindex; their namespace is
// that of the thread that calls Open and Attach.
//
// Programs and maps are pinned, and the programs are attached to devices without a file descriptor that would keep
// them there, or by a BPF link that is pinned, too: they outlive the process that loaded them. Open adopts what it
// finds. A newer program replaces the one it finds device by device, each at once, while frames flow.
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
	"sync"

	"github.com/cilium/ebpf"

	"github.com/pergola-net/pergola/datapath/fib"
	"github.com/pergola-net/pergola/datapath/filter"
)

// Program is what a Hook attaches.
type Program = ebpf.Program

// Hook attaches a program to the ingress side of devices. The thread must be in their namespace.
type Hook interface {
	// Replace makes p the program of all these devices, each at once: no frame meets two programs, or none, if
	// there was one. Devices that do not exist are left out.
	Replace(ifindexes []int, p *Program) error
	// Attach gives a new device the program of the last Replace.
	Attach(ifindex int, p *Program) error
}

// DataPath holds the pinned objects of one directory. Its methods may be called concurrently.
type DataPath struct {
	dir     string
	hook    Hook
	spec    *ebpf.CollectionSpec
	version version
	maps    objectMaps

	programming sync.RWMutex // guards what follows
	programs    objectPrograms
	needs       needs    // what the programs are loaded for
	underlay    attached // programs of the underlay

	labelShortcuts labelShortcuts

	tunnelling sync.Mutex // guards what several maps say of tunnels together; taken before programming
}

// Open adopts the data path that is pinned in dir, a directory of a bpf file system, or makes it. The calling thread
// must be in the namespace of the ports.
func Open(dir string, hook Hook) (*DataPath, error) {
	spec, err := loadObject()
	if err != nil {
		return nil, fmt.Errorf("read data path object: %w", err)
	}
	return open(dir, hook, spec, version{abi: ABI, programs: digest(_ObjectBytes)})
}

func open(dir string, hook Hook, spec *ebpf.CollectionSpec, v version) (*DataPath, error) {
	d := &DataPath{dir: dir, hook: hook, spec: spec, version: v}
	if err := sizeByCores(spec); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(v.dir(dir), 0o700); err != nil {
		return nil, fmt.Errorf("make pin directory: %w", err)
	}
	if err := d.load(v); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	if err := errors.Join(d.forgetStrays(), d.openLabelShortcuts()); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// sizeByCores gives the maps in which cores have places of their own one for each core that there may be.
func sizeByCores(spec *ebpf.CollectionSpec) error {
	cores, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("ask for the number of cores: %w", err)
	}
	for _, name := range []string{objectMapBelowPorts, objectMapBelowNics} {
		spec.Maps[name].MaxEntries = uint32(cores)
	}
	spec.Maps[objectMapLabelCells].MaxEntries = uint32(maxLabelCells + cellsOfCPU*cores)
	return nil
}

// load adopts the programs and maps of this version. If not all are there it makes what is missing, and puts the
// programs in the place of older ones.
func (d *DataPath) load(v version) error {
	for n := range allNeeds + 1 {
		adopted, err := d.adoptPrograms(v.with(n))
		if err != nil {
			return fmt.Errorf("adopt pinned programs: %w", err)
		}
		if adopted {
			d.needs = n
			return d.loadMaps(v)
		}
	}
	if err := v.share(d.dir); err != nil {
		return fmt.Errorf("take over the maps of an older data path: %w", err)
	}
	if err := d.loadMaps(v); err != nil {
		return err
	}
	if err := errors.Join(d.convert(v), d.meterTunnels()); err != nil {
		return fmt.Errorf("take over the records of an older data path: %w", err)
	}
	n, err := d.findNeeds()
	if err != nil {
		return fmt.Errorf("find out what the host needs: %w", err)
	}
	if d.programs, err = d.loadPrograms(n); err != nil {
		return err
	}
	d.needs = n
	return d.putInPlace(v.with(n))
}

// byName lists the programs that are pinned.
func (d *DataPath) byName() map[string]**ebpf.Program {
	return map[string]**ebpf.Program{
		objectProgPortIngress:           &d.programs.PortIngress,
		objectProgLinecardBelow:         &d.programs.LinecardBelow,
		objectProgUnderlayLinecardBelow: &d.programs.UnderlayLinecardBelow,
		objectProgWalkOn:                &d.programs.WalkOn,
		objectProgWalkOnXdp:             &d.programs.WalkOnXdp,
		objectProgTakenOver:             &d.programs.TakenOver,
		objectProgPassXdp:               &d.programs.PassXdp,
		objectProgSlowInject:            &d.programs.SlowInject,
		objectProgEnterPort:             &d.programs.EnterPort,
		objectProgLinecard:              &d.programs.Linecard,
		objectProgUnderlayIngress:       &d.programs.UnderlayIngress,
		objectProgUnderlayPackets:       &d.programs.UnderlayPackets,
		objectProgUplinkIngress:         &d.programs.UplinkIngress,
		objectProgUnderlayEgress:        &d.programs.UnderlayEgress,
		objectProgUnderlayLinecard:      &d.programs.UnderlayLinecard,
	}
}

// adoptPrograms opens the pinned programs, all or none.
func (d *DataPath) adoptPrograms(v version) (bool, error) {
	for name, p := range d.byName() {
		pinned, err := ebpf.LoadPinnedProgram(v.programPin(d.dir, name), nil)
		if errors.Is(err, os.ErrNotExist) {
			err := d.programs.Close()
			d.programs = objectPrograms{}
			return false, err
		}
		if err != nil {
			return false, err
		}
		*p = pinned
	}
	return true, nil
}

// replacePrograms attaches the programs where older ones are attached.
func (d *DataPath) replacePrograms() error {
	if err := d.putWalks(); err != nil {
		return err
	}
	ports, err := d.Ports()
	if err != nil {
		return err
	}
	if err := d.hook.Replace(slices.Collect(maps.Keys(ports)), d.programs.PortIngress); err != nil {
		return fmt.Errorf("attach %s: %w", objectProgPortIngress, err)
	}
	if err := d.replaceThreads(); err != nil { // before there are frames that wait for them
		return err
	}
	if err := d.replaceXDP(); err != nil {
		return fmt.Errorf("attach %s: %w", objectProgLinecard, err)
	}
	return d.replaceUnderlay()
}

func (d *DataPath) loadMaps(v version) error {
	spec := d.spec.Copy()
	spec.Programs = nil
	err := spec.LoadAndAssign(&d.maps, &ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: v.dir(d.dir)}})
	if err != nil {
		return fmt.Errorf("open maps: %w", err)
	}
	return nil
}

// Attach makes the program look at every frame that enters at the device.
func (d *DataPath) Attach(ifindex int) error {
	d.programming.RLock()
	defer d.programming.RUnlock()
	if err := d.hook.Attach(ifindex, d.programs.PortIngress); err != nil {
		return fmt.Errorf("attach %s to device %d: %w", objectProgPortIngress, ifindex, err)
	}
	return nil
}

// FIB is what routers' forwarding tables are written into. The maps stay the data path's: they are closed with it.
func (d *DataPath) FIB() fib.Maps {
	return fib.Maps{
		Legs: d.maps.Legs, Routers: d.maps.Routers, Nodes: d.maps.Nodes, Nexthops: d.maps.Nexthops,
		Neighbours: d.maps.Neighbours, Shortcuts: d.maps.Shortcuts, Sources: d.maps.Sources,
		PossibleSources: d.maps.Suspects, Lease: d.maps.Lease,
	}
}

// Filters is what filters of packet programs are written into. The maps stay the data path's: they are closed with it.
func (d *DataPath) Filters() filter.Maps {
	return filter.Maps{
		Index: d.maps.FilterIndex, Buckets: d.maps.FilterBuckets,
		Chunks: d.maps.FilterChunks, Hits: d.maps.FilterHits,
	}
}

// Close lets go of the objects; pinned and attached as they are, they stay.
func (d *DataPath) Close() error {
	return errors.Join(d.underlay.close(), d.labelShortcuts.close(), d.programs.Close(), d.maps.Close())
}

func digest(object []byte) string {
	sum := sha256.Sum256(object)
	return hex.EncodeToString(sum[:6])
}

// version names the pins of one build of the data path.
type version struct {
	abi      int
	programs string // digest of the object file
}

func (v version) dir(root string) string { return filepath.Join(root, fmt.Sprintf("abi%d", v.abi)) }

// programPin tells programs from maps, whose names have no hyphen.
func (v version) programPin(root, name string) string {
	return filepath.Join(v.dir(root), name+"-"+v.programs)
}
