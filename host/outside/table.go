package outside

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// tableName is that of the one table, of IPv4 and IPv6. An older version had one of IPv4 alone.
	tableName = "pergola_outside"
	// ownerPrefix begins the name of a chain without rules, which says which server has the table.
	ownerPrefix = "state_"
)

// table is what nftables has of the table.
type table struct {
	conn   *nftables.Conn
	exists bool
	older  bool // there is one of an older version
	chains []*nftables.Chain
	sets   []*nftables.Set
}

var (
	ourTable   = &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet}
	olderTable = &nftables.Table{Name: tableName, Family: nftables.TableFamilyIPv4}
)

func readTable() (t table, err error) {
	if t.conn, err = nftables.New(); err != nil {
		return t, fmt.Errorf("open nftables: %w", err)
	}
	for table, there := range map[*nftables.Table]*bool{ourTable: &t.exists, olderTable: &t.older} {
		all, err := t.conn.ListTablesOfFamily(table.Family)
		if err != nil {
			return t, fmt.Errorf("list nftables' tables: %w", err)
		}
		*there = slices.ContainsFunc(all, func(other *nftables.Table) bool { return other.Name == tableName })
	}
	if !t.exists {
		return t, nil
	}
	chains, err := t.conn.ListChainsOfTableFamily(ourTable.Family)
	if err != nil {
		return t, fmt.Errorf("list nftables' chains: %w", err)
	}
	for _, c := range chains {
		if c.Table.Name == tableName {
			t.chains = append(t.chains, c)
		}
	}
	if t.sets, err = t.conn.GetSets(ourTable); err != nil {
		return t, fmt.Errorf("list nftables' sets: %w", err)
	}
	return t, nil
}

// owner is the id of the server that has the table; empty: it has none.
func (t table) owner() string {
	for _, c := range t.chains {
		if id, ok := strings.CutPrefix(c.Name, ownerPrefix); ok {
			return id
		}
	}
	return ""
}

// guards says which families the table guards (writer.forward).
func (t table) guards() (guarded guard, err error) {
	for _, c := range t.chains {
		if c.Name != forwardChain {
			continue
		}
		rules, err := t.conn.GetRules(ourTable, c)
		if err != nil {
			return guard{}, fmt.Errorf("list rules of nftables' chain %s: %w", c.Name, err)
		}
		for _, r := range rules {
			guarded.ipv4 = guarded.ipv4 || reflect.DeepEqual(r.Exprs, families[0].dropAll())
			guarded.ipv6 = guarded.ipv6 || reflect.DeepEqual(r.Exprs, families[1].dropAll())
		}
	}
	return guarded, nil
}

// otherServer names the server of this machine that has the outside, if it is not this one: by its id, or as an unknown
// one that has left devices and no table. Empty: the outside is this server's, or nobody's.
func (g *Gateway) otherServer(links map[int]netlink.Link) (string, error) {
	t, err := readTable()
	if err != nil {
		return "", err
	}
	switch id := t.owner(); {
	case id != "" && id != g.id:
		return id, nil
	case id != "" || g.saved.exists():
		return "", nil
	}
	for _, l := range links {
		if _, whole := parse(l.Attrs().Alias); whole {
			return "unknown", nil
		}
	}
	return "", nil
}

// errOther says that another server has the outside.
func errOther(id string) error {
	return fmt.Errorf("another server of this machine, whose state directory has the id %s, connects nodes with "+
		"the outside, and one of a machine's servers can: stop the networks of that one, or if it is gone, "+
		"delete what it left (`nft delete table inet %s`, `ip link delete %s0`, ...)", id, tableName, prefix)
}

// write makes the table in place of the one that is there, in one transaction. Sets that count (counting) stay, with
// what they have counted. It returns how many rules each chain has, and how many elements each other set.
func (t table) write(r rules) (holds map[string]int, err error) {
	w := writer{conn: t.conn, rules: r, holds: map[string]int{}, counting: map[string]*nftables.Set{}}
	for _, s := range t.sets {
		if isCounting(s.Name) {
			w.counting[s.Name] = s
		}
	}
	if t.older {
		t.conn.DelTable(olderTable)
	}
	if t.exists {
		t.conn.AddTable(ourTable)
	} else {
		// Two servers may begin at the same time: one of them fails here.
		t.conn.CreateTable(ourTable)
	}
	for _, c := range t.chains {
		t.conn.FlushChain(c)
	}
	for _, s := range t.sets {
		if !isCounting(s.Name) {
			t.conn.DelSet(s)
		}
	}
	for _, c := range t.chains {
		t.conn.DelChain(c)
	}
	if err := w.all(); err != nil {
		return nil, err
	}
	for name, s := range w.counting {
		if !w.used[name] {
			t.conn.DelSet(s)
		}
	}
	if err := t.conn.Flush(); err != nil {
		return nil, fmt.Errorf("write nftables' table %s: %w", tableName, err)
	}
	return w.holds, nil
}

// holds reports whether the table is there, with as many rules in each chain and as many elements in each set: others
// can remove it (nft flush ruleset, a reload of nftables.service), or change it.
func (t table) holds(want map[string]int) bool {
	held := map[string]int{}
	for _, c := range t.chains {
		there, err := t.conn.GetRules(ourTable, c)
		if err != nil {
			return false // it went meanwhile, or has rules that are not ours: it is to be written
		}
		held[c.Name] = len(there)
	}
	for _, s := range t.sets {
		if isCounting(s.Name) {
			held[s.Name] = 0
			continue
		}
		there, err := t.conn.GetSetElements(s)
		if err != nil {
			return false
		}
		held[s.Name] = len(there)
	}
	return maps.Equal(held, want)
}

// forgetDevices deletes what sets have counted of devices that are not there any longer: another sliver gets their
// names.
func (t table) forgetDevices(all []device) error {
	for _, s := range t.sets {
		if !isCounting(s.Name) {
			continue
		}
		elements, err := t.conn.GetSetElements(s)
		if err != nil {
			return fmt.Errorf("list what nftables' set %s counts: %w", s.Name, err)
		}
		for _, e := range elements {
			if slices.ContainsFunc(all, func(d device) bool { return d.name() == nameIn(e.Key) }) {
				continue
			}
			err := t.conn.SetDeleteElements(s, []nftables.SetElement{{Key: e.Key}})
			if err == nil {
				err = t.conn.Flush()
			}
			if err != nil && !errors.Is(err, unix.ENOENT) { // the kernel forgets what is empty, too
				return fmt.Errorf("forget what nftables' set %s counts of %s: %w", s.Name,
					nameIn(e.Key), err)
			}
		}
	}
	return nil
}

// counts gives what a set of counters has, by device.
func (t table) counts(set string) (map[string]expr.Counter, error) {
	all := map[string]expr.Counter{}
	for _, s := range t.sets {
		if s.Name != set {
			continue
		}
		elements, err := t.conn.GetSetElements(s)
		if err != nil {
			return nil, fmt.Errorf("read nftables' counters %s: %w", set, err)
		}
		for _, e := range elements {
			if e.Counter != nil {
				all[nameIn(e.Key)] = *e.Counter
			}
		}
	}
	return all, nil
}

// remove removes the table, if it is there.
func (t table) remove() error {
	if t.exists {
		t.conn.DelTable(ourTable)
	}
	if t.older {
		t.conn.DelTable(olderTable)
	}
	if err := t.conn.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove nftables' table %s: %w", tableName, err)
	}
	return nil
}

// nameOf is a device's name as nftables compares it, and nameIn the reverse.
func nameOf(device string) []byte {
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, device)
	return name
}

func nameIn(key []byte) string {
	name, _, _ := bytes.Cut(key, []byte{0})
	return string(name)
}
