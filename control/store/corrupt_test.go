package store

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/pergola-net/pergola/control/store/record"
)

// What cannot be decoded is the trouble of its slice alone, and can be removed.
func TestOneCorruptSliceHarmsNoOther(t *testing.T) {
	for what, corrupt := range map[string]func(t *testing.T, s *Store, bad Record){
		"record": func(t *testing.T, s *Store, bad Record) {
			t.Helper()
			write(t, s, s.db.Key("slices", bad.Name), "{not JSON")
		},
		"record of another slice": func(t *testing.T, s *Store, bad Record) {
			t.Helper()
			bad.Name = "good"
			data, err := json.Marshal(bad)
			if err != nil {
				t.Fatal(err)
			}
			write(t, s, s.db.Key("slices", "bad"), string(data))
		},
		"specification": func(t *testing.T, s *Store, bad Record) {
			t.Helper()
			write(t, s, s.db.Key("specs", bad.Name, bad.Token, "000000"), "not zstd")
			s.specs.drop(bad.Name)
		},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir)
			mustPut(t, s, network("bad", 3), 0)
			mustPut(t, s, network("good", 3), 0)
			bad, err := s.Record(t.Context(), "bad")
			if err != nil {
				t.Fatal(err)
			}
			corrupt(t, s, bad)
			s.Close()
			s = open(t, dir) // and collects garbage
			records, err := s.Slices(t.Context())
			if err != nil || len(records) != 2 || records[0].Name != "bad" || records[0].ID != bad.ID {
				t.Fatalf("listed %+v, %v", records, err)
			}
			if spec, _, err := s.Slice(t.Context(), "good"); err != nil || len(spec.Nodes) != 3 {
				t.Errorf("the good slice: %v", err)
			}
			if _, r, err := s.Slice(t.Context(), "bad"); !errors.Is(err, ErrCorrupt) || r.ID != bad.ID {
				t.Errorf("the bad slice: %+v, %v", r, err)
			}
			if err := s.DeleteSlice(t.Context(), "bad"); err != nil {
				t.Fatal(err)
			}
			if spec, r, err := s.Slice(t.Context(), "bad"); err != nil || !r.Deleting || spec.ID != bad.ID {
				t.Errorf("the bad slice, being deleted: %+v, %v", r, err)
			}
			if err := s.Release(t.Context(), "host", "bad"); err != nil {
				t.Fatal(err)
			}
			mustPut(t, s, network("bad", 2), 0)
		})
	}
}

// By its name a slice has what hosts let it have: its specification cannot choose another one.
func TestASliceHasTheNameThatItIsStoredBy(t *testing.T) {
	s := open(t, t.TempDir())
	mustPut(t, s, network("mine", 3), 0)
	r, err := s.Record(t.Context(), "mine")
	if err != nil {
		t.Fatal(err)
	}
	data, err := record.Pack(network("yours", 3))
	if err != nil {
		t.Fatal(err)
	}
	write(t, s, s.db.Key("specs", "mine", r.Token, "000000"), string(data))
	s.specs.drop("mine")
	if spec, _, err := s.Slice(t.Context(), "mine"); err != nil || spec.Name != "mine" {
		t.Errorf("%+v, %v", spec, err)
	}
}

func write(t *testing.T, s *Store, key, value string) {
	t.Helper()
	if _, err := s.db.Etcd().Put(t.Context(), key, value); err != nil {
		t.Fatal(err)
	}
}
