package store

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Condition is what must hold, beside the generation, for a version of a slice to be stored.
type Condition struct {
	holds  clientv3.Cmp
	broken string        // what is so where it does not hold
	ends   []clientv3.Op // is stored with the version, and ends other conditions
}

// WhileLost holds as long as a host is lost: nodes are taken from it only then.
func (s *Store) WhileLost(host string) Condition {
	return Condition{holds: clientv3.Compare(clientv3.CreateRevision(s.db.Key("alive", host)), "=", 0),
		broken: "host " + host + " is alive again"}
}

// NothingPlaced holds until something is stored under this condition, by any member. Members admit slices, each by what
// all others have of the hosts. So a member that gives a slice more of them asks for this condition first, then reads
// what hosts have left, and stores the slice under this condition: of two that were admitted at the same time, one is a
// conflict, and is admitted again. What takes nothing more of hosts is stored without it, and ends no other admission.
func (s *Store) NothingPlaced(ctx context.Context) (Condition, error) {
	key := s.db.Key("placements") // its value means nothing
	got, err := s.db.Get(ctx, key)
	if err != nil {
		return Condition{}, err
	}
	var revision int64
	if len(got.Kvs) > 0 {
		revision = got.Kvs[0].ModRevision
	}
	return Condition{
		holds:  clientv3.Compare(clientv3.ModRevision(key), "=", revision),
		broken: "another network was given something of the hosts",
		ends:   []clientv3.Op{clientv3.OpPut(key, "")},
	}, nil
}

// check fails with ErrConflict where one of the conditions does not hold.
func (s *Store) check(ctx context.Context, conditions []Condition) error {
	for _, c := range conditions {
		ok, err := s.db.Commit(ctx, []clientv3.Cmp{c.holds})
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("%s: %w", c.broken, ErrConflict)
		}
	}
	return nil
}

// transaction gives what is compared, and what is stored, for conditions.
func transaction(conditions []Condition) (compared []clientv3.Cmp, stored []clientv3.Op) {
	for _, c := range conditions {
		compared, stored = append(compared, c.holds), append(stored, c.ends...)
	}
	return compared, stored
}
