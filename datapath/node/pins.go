package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/pergola-net/pergola/datapath/program"
)

// A node's pins are in the directory NUMBER-NAME. A replacement is pinned in new-NUMBER-NAME first; the program in the
// data path's table says which of the two runs.
const (
	newPrefix   = "new-"
	programPin  = "program-" // and the hook
	aboutPin    = "about"
	maxName     = 200
	aboutRoom   = 8
	jsonVersion = 1
)

// about is what the kernel does not tell of a node. It is pinned with it, as the contents of a map.
type about struct {
	Version  int
	Digest   string
	Platform string // digest of the platform's program
	Slice    uint32
	Object   []byte
	Filters  string // digest of those that it was made with
	Bounds   Bounds
	UDP      []UDPPort `json:",omitempty"`
	Costs    map[program.Hook]program.Cost
}

func (n *Nodes) pin(x *node) string {
	return filepath.Join(n.config.Dir, fmt.Sprintf("%d-%s", x.number, escape(x.name)))
}

func (n *Nodes) newPin(x *node) string {
	return filepath.Join(n.config.Dir, fmt.Sprintf("%s%d-%s", newPrefix, x.number, escape(x.name)))
}

var plain = regexp.MustCompile(`[^A-Za-z0-9-]`)

// escape makes a name of a pin, which cannot have all characters.
func escape(name string) string {
	return plain.ReplaceAllStringFunc(name, func(s string) string {
		var b strings.Builder
		for _, c := range []byte(s) {
			fmt.Fprintf(&b, "_%02x", c)
		}
		return b.String()
	})
}

var escaped = regexp.MustCompile(`_[0-9a-f]{2}`)

func unescape(pin string) string {
	return escaped.ReplaceAllStringFunc(pin, func(s string) string {
		c, err := strconv.ParseUint(s[1:], 16, 8)
		if err != nil {
			return s
		}
		return string([]byte{byte(c)})
	})
}

// pinNew pins all that belongs to the node and to nobody else.
func (n *Nodes) pinNew(x *node) error {
	dir := n.newPin(x)
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("unpin what is half made: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make pin directory: %w", err)
	}
	for name, m := range x.loaded.Maps() {
		if n.config.Maps[name] != nil {
			continue
		}
		if err := pinSecond(m, filepath.Join(dir, escape(name))); err != nil {
			return fmt.Errorf("pin map %s: %w", name, err)
		}
	}
	for hook, p := range x.loaded.Programs() {
		if err := p.Pin(filepath.Join(dir, programPin+string(hook))); err != nil {
			return fmt.Errorf("pin the program: %w", err)
		}
	}
	return x.about.pin(filepath.Join(dir, aboutPin))
}

// pinSecond pins a map that may be pinned elsewhere, too.
func pinSecond(m *ebpf.Map, path string) error {
	second, err := m.Clone()
	if err != nil {
		return err
	}
	return errors.Join(second.Pin(path), second.Close())
}

func (a about) pin(path string) error {
	a.Version = jsonVersion
	text, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("encode what the node is made from: %w", err)
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "node_about", Type: ebpf.Array, KeySize: 4,
		ValueSize: uint32((len(text) + aboutRoom - 1) / aboutRoom * aboutRoom), MaxEntries: 1})
	if err != nil {
		return fmt.Errorf("make a map for what the node is made from: %w", err)
	}
	value := make([]byte, m.ValueSize())
	copy(value, text)
	return errors.Join(m.Put(uint32(0), value), m.Pin(path), m.Close())
}

func readAbout(path string) (a about, err error) {
	m, err := ebpf.LoadPinnedMap(path, nil)
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	value := make([]byte, m.ValueSize())
	if err := m.Lookup(uint32(0), &value); err != nil {
		return a, err
	}
	if err := json.Unmarshal([]byte(strings.TrimRight(string(value), "\x00")), &a); err != nil {
		return a, err
	}
	if a.Version != jsonVersion {
		return a, fmt.Errorf("it is of version %d", a.Version)
	}
	return a, nil
}

// settle gives the pins of a node that runs their place.
func (n *Nodes) settle(x *node) error {
	if x.placed {
		return nil
	}
	if err := os.RemoveAll(n.pin(x)); err != nil {
		return fmt.Errorf("unpin what was before: %w", err)
	}
	if err := os.Rename(n.newPin(x), n.pin(x)); err != nil {
		return fmt.Errorf("rename pins: %w", err)
	}
	x.placed = true
	return nil
}

// adopt takes over what an earlier process left. A node whose pins cannot be read is logged, and left as it is to a Set
// or Delete: the others are not affected.
func (n *Nodes) adopt() error {
	unread, err := n.finishAll()
	if err != nil {
		return err
	}
	pins, err := n.list()
	if err != nil {
		return err
	}
	if len(pins)+len(unread) > 0 {
		if err := n.openFilters(); err != nil {
			return err
		}
	}
	for _, pin := range pins {
		x, ok := parsePin(pin)
		if !ok {
			continue
		}
		if err := n.take(x, filepath.Join(n.config.Dir, pin)); err != nil {
			n.complain(pin, err)
		}
		n.nodes[x.name] = x
	}
	there := map[uint32]bool{}
	for name, x := range unread { // either of its two programs may run
		if n.nodes[name] == nil {
			n.nodes[name] = x
		}
		n.nodes[name].holds = unknownTables
	}
	for _, x := range n.nodes {
		there[x.number] = true
		n.last = max(n.last, x.number)
	}
	n.legs.keepNodes(there)
	return errors.Join(n.emptySlots(there), n.adoptOwners(), n.refillXDP(), n.sweepTables(), n.shareTime())
}

// refillXDP puts the programs of nodes that run into their slots of XDP: a process that was killed may have put others
// there, as the first step of a replacement.
func (n *Nodes) refillXDP() error {
	for _, x := range n.nodes {
		if !x.runs {
			continue
		}
		if err := n.refill(objectMapNodeProgramsXdp, program.XDP, x); err != nil {
			return fmt.Errorf("%s: %w", x.name, err)
		}
	}
	return nil
}

// finishAll ends the replacements that a process began. It returns nodes of which it is not known what runs.
func (n *Nodes) finishAll() (unread map[string]*node, err error) {
	pins, err := n.list()
	if err != nil {
		return nil, err
	}
	unread = map[string]*node{}
	for _, pin := range pins {
		rest, isNew := strings.CutPrefix(pin, newPrefix)
		if !isNew {
			continue
		}
		if err := n.finish(rest, filepath.Join(n.config.Dir, pin)); err != nil {
			n.complain(pin, err)
			if x, ok := parsePin(rest); ok {
				unread[x.name] = x
			}
		}
	}
	return unread, nil
}

func (n *Nodes) complain(pin string, err error) {
	if n.config.Log != nil {
		n.config.Log.Warn("adopt a node with a packet program: it is made anew when it is set next", "pin",
			filepath.Join(n.config.Dir, pin), "err", err)
	}
}

func (n *Nodes) list() (names []string, err error) {
	pins, err := os.ReadDir(n.config.Dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, pin := range pins {
		names = append(names, pin.Name())
	}
	return names, nil
}

func parsePin(pin string) (*node, bool) {
	number, name, ok := strings.Cut(pin, "-")
	id, err := strconv.ParseUint(number, 10, 32)
	if !ok || err != nil || id == 0 || id >= MaxNodes {
		return nil, false
	}
	return &node{name: unescape(name), number: uint32(id), placed: true}, true
}

// finish ends a replacement that a process began: what runs stays.
func (n *Nodes) finish(pin, path string) error {
	if x, ok := parsePin(pin); ok {
		runs, err := n.isRunning(x, path)
		if err != nil {
			return err
		}
		if runs {
			x.placed = false
			return n.settle(x)
		}
	}
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("unpin what is half made: %w", err)
	}
	return nil
}

// isRunning reports whether the programs pinned there are those that the walk calls.
func (n *Nodes) isRunning(x *node, path string) (bool, error) {
	p, err := ebpf.LoadPinnedProgram(filepath.Join(path, programPin+string(program.TC)), nil)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open the pinned program of %s: %w", x.name, err)
	}
	defer func() { _ = p.Close() }()
	info, err := p.Info()
	if err != nil {
		return false, fmt.Errorf("read the pinned program of %s: %w", x.name, err)
	}
	id, _ := info.ID()
	var running uint32
	err = n.config.Maps[objectMapNodePrograms].Lookup(x.number, &running)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read slot %d: %w", x.number, err)
	}
	return running == uint32(id), nil
}

// take opens what is pinned of a node. What makes no sense is left to a Set or Delete: its program may still run, and
// keeps its tables of filters until then.
func (n *Nodes) take(x *node, path string) (err error) {
	x.holds = unknownTables
	runs, err := n.isRunning(x, path)
	if err != nil {
		return err
	}
	if !runs {
		x.holds = noTables
	}
	programs, maps, err := openPins(path)
	p := platforms[false].Adopt(nil, nil, programs, maps)
	defer func() {
		if x.loaded == nil {
			err = errors.Join(err, p.Close())
		}
	}()
	if err != nil {
		return err
	}
	if err := x.readTable(maps[objectMapNodeSettings]); err != nil {
		return err
	}
	a, err := readAbout(filepath.Join(path, aboutPin))
	if err != nil {
		return nil //nolint:nilerr // half deleted, or of another version
	}
	if p.Object, err = program.Read(x.name, a.Object); err != nil {
		return nil //nolint:nilerr // as above
	}
	p.Costs = a.Costs
	x.about, x.loaded = a, p
	x.runs = runs && maps[objectMapNodePorts] != nil && maps[objectMapNodeSettings] != nil &&
		maps[objectMapNodeCounts] != nil
	x.budget = n.budget(a.Bounds)
	if x.runs {
		return n.charge(x)
	}
	return nil
}

// openPins opens all pins in a directory. Where there is an error, those that are open are returned with it.
func openPins(path string) (programs map[program.Hook]*ebpf.Program, maps map[string]*ebpf.Map, err error) {
	programs, maps = map[program.Hook]*ebpf.Program{}, map[string]*ebpf.Map{}
	pins, err := os.ReadDir(path)
	if err != nil {
		return programs, maps, err
	}
	for _, pin := range pins {
		full := filepath.Join(path, pin.Name())
		hook, isProgram := strings.CutPrefix(pin.Name(), programPin)
		switch {
		case isProgram:
			var p *ebpf.Program
			if p, err = ebpf.LoadPinnedProgram(full, nil); err == nil {
				programs[program.Hook(hook)] = p
			}
		case pin.Name() != aboutPin:
			var m *ebpf.Map
			if m, err = ebpf.LoadPinnedMap(full, nil); err == nil {
				maps[unescape(pin.Name())] = m
			}
		}
		if err != nil {
			return programs, maps, fmt.Errorf("open pin %s: %w", pin.Name(), err)
		}
	}
	return programs, maps, nil
}

// emptySlots takes programs out of slots whose node is not there.
func (n *Nodes) emptySlots(there map[uint32]bool) error {
	var id uint32
	for _, slot := range slots {
		for number := range uint32(MaxNodes) {
			if there[number] {
				continue
			}
			err := n.config.Maps[slot.name].Lookup(number, &id)
			if err == nil {
				err = n.emptySlot(slot.name, number)
			}
			if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
				return fmt.Errorf("empty slot %d: %w", number, err)
			}
		}
	}
	return nil
}

// Any reports whether nodes with packet programs are pinned in the directory.
func Any(dir string) (bool, error) {
	pins, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, fmt.Errorf("look for packet programs of nodes: %w", err)
	}
	return len(pins) > 0, nil
}
