package store

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Condition is what must hold, beside the generation, for a version of a slice to be stored.
type Condition struct {
	holds  clientv3.Cmp
	broken string // what is so where it does not hold
}

// WhileLost holds as long as a host is lost: nodes are taken from it only then.
func (s *Store) WhileLost(host string) Condition {
	return Condition{clientv3.Compare(clientv3.CreateRevision(s.db.Key("alive", host)), "=", 0),
		"host " + host + " is alive again"}
}

// NothingPlaced holds until a slice gets something of a host: until a version of any slice is stored, or the queues of
// one change. Several members admit slices, each by what all others have. So whoever admits one asks for this condition
// first, then reads what hosts have left, and stores the slice under this condition: of two that were admitted at the
// same time, one is a conflict, and is admitted again.
func (s *Store) NothingPlaced(ctx context.Context) (Condition, error) {
	key := s.placementsKey()
	got, err := s.db.Get(ctx, key)
	if err != nil {
		return Condition{}, err
	}
	var revision int64
	if len(got.Kvs) > 0 {
		revision = got.Kvs[0].ModRevision
	}
	return Condition{clientv3.Compare(clientv3.ModRevision(key), "=", revision),
		"another network was given something of the hosts"}, nil
}

// placementsKey is a key whose value means nothing: it is written when something is given.
func (s *Store) placementsKey() string { return s.db.Key("placements") }

// placed ends the conditions NothingPlaced that there are.
func (s *Store) placed() clientv3.Op { return clientv3.OpPut(s.placementsKey(), "") }

// check fails with ErrConflict where one of the conditions does not hold.
func (s *Store) check(ctx context.Context, conditions []Condition) error {
	for _, c := range conditions {
		ok, err := s.db.Commit(ctx, comparisons([]Condition{c}))
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("%s: %w", c.broken, ErrConflict)
		}
	}
	return nil
}

func comparisons(conditions []Condition) (all []clientv3.Cmp) {
	for _, c := range conditions {
		all = append(all, c.holds)
	}
	return all
}
