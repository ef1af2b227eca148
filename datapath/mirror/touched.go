package mirror

import "net/netip"

// origin of a message.
type origin int

const (
	dumped  origin = iota
	between        // an event while a dump is under way
	alone          // an event otherwise
)

// touched are the keys that had events since the dump that is under way began. An event may overtake the
// dump's older message: newer kernels dump routes, neighbours and addresses without the lock under which they change,
// and send the event of a removed route before it is removed. So for such a key the dump does not count. (Where
// the kernel still takes the lock, both say the same.)
type touched[K comparable] struct{ keys map[K]struct{} }

func (t *touched[K]) add(k K) {
	if t.keys == nil {
		t.keys = map[K]struct{}{}
	}
	t.keys[k] = struct{}{}
}

func (t *touched[K]) has(k K) bool {
	_, ok := t.keys[k]
	return ok
}

// stale reports whether a message is out of date, where each message has the whole state of its key: that of a dump,
// after an event.
func (t *touched[K]) stale(k K, from origin) bool {
	if from == between {
		t.add(k)
	}
	return from == dumped && t.has(k)
}

func (t *touched[K]) forget() { t.keys = nil }

// routeKey is what rivals have in common.
type routeKey struct {
	prefix netip.Prefix
	table  table
	tos    uint8
	metric uint32
}

func (r route) key(p netip.Prefix) routeKey {
	return routeKey{prefix: p, table: r.table, tos: r.tos, metric: r.metric}
}
