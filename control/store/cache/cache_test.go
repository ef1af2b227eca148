package cache

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pergola-net/pergola/control/store/record"
	"github.com/pergola-net/pergola/model/slice"
)

func open(dir string) *Cache { return Open(dir, slog.New(slog.DiscardHandler)) }

// The agent takes slices that are not listed for unwanted: it must get no list rather than a part of one.
func TestAnIncompleteCacheListsNothing(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "cache")
	spec := func(name string, id uint16) (record.Slice, *slice.Slice) {
		return record.Slice{Name: name, ID: id, Revision: int64(id)}, &slice.Slice{Name: name, ID: id}
	}
	records := func(c *Cache) int {
		all, err := c.Slices()
		if err != nil && !errors.Is(err, record.ErrUnreachable) {
			t.Error(err)
		}
		return len(all)
	}
	c := open(dir)
	a, aSpec := spec("a", 1)
	b, bSpec := spec("b", 2)
	c.PutNames([]record.Slice{a, b}, 2)
	c.PutSlice(a, aSpec, 2)
	if n := records(open(dir)); n != 0 {
		t.Errorf("%d slices, before all were cached", n)
	}
	c.PutSlice(b, bSpec, 2)
	later, laterSpec := spec("c", 3)
	c.PutSlice(later, laterSpec, 3)
	c.PutNames([]record.Slice{a, b}, 2) // an answer from before c, which comes late
	c.PutSlice(record.Slice{Name: "c", ID: 3, Deleting: true, Revision: 1}, laterSpec, 1)
	if n := records(open(dir)); n != 3 || c.slices["c"].Record.Deleting {
		t.Errorf("%d slices, when all are cached", n)
	}
	c.DropSlice("a", 4)
	if n := records(open(dir)); n != 2 {
		t.Errorf("%d slices, when one has gone", n)
	}
	if err := os.WriteFile(filepath.Join(dir, "slices", "b"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if n := records(open(dir)); n != 0 {
		t.Errorf("%d slices, when a file is damaged", n)
	}
	if n := records(open(dir)); n != 0 {
		t.Errorf("%d slices, after a damaged cache was removed", n)
	}
	// In a directory that cannot be written to, no incomplete cache is left.
	c = open(filepath.Join(dir, "slices"))
	c.PutNames([]record.Slice{a}, 1)
	if err := os.RemoveAll(filepath.Join(c.dir, "slices")); err != nil {
		t.Fatal(err)
	}
	c.PutSlice(a, aSpec, 1)
	if _, err := os.Stat(filepath.Join(dir, "slices")); !errors.Is(err, os.ErrNotExist) || c.dir != "" {
		t.Errorf("a cache that cannot be written is still there: %v", err)
	}
}

// Names that any member can write lead to no file outside the cache.
func TestNamesLeadToNoOtherFile(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	c := open(filepath.Join(top, "cache"))
	other := filepath.Join(top, "other")
	if err := os.WriteFile(other, []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"../../other", other, "..", ".", "", "../names", strings.Repeat("a", 300)} {
		at := int64(i + 1)
		r := record.Slice{Name: name, ID: 1, Revision: at}
		c.PutSlice(r, &slice.Slice{Name: name, ID: 1}, at)
		c.PutNames([]record.Slice{r}, at)
		if all, err := c.Slices(); !errors.Is(err, record.ErrUnreachable) {
			t.Errorf("%q: %v, %v", name, all, err)
		}
		c.DropSlice(name, at)
		c.PutNames(nil, at)
	}
	if text, err := os.ReadFile(other); err != nil || string(text) != "other" {
		t.Errorf("%q, %v", text, err)
	}
	if c.dir == "" {
		t.Error("the cache was disabled")
	}
}

// The files of the previous version are read: an upgrade keeps the cache.
func TestFilesOfThePreviousVersionAreRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "slices"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"names": `["lab","old"]`,
		"slices/lab": `{"record":{"name":"lab","id":3,"generation":7,"token":"t","nodes":1,"links":0,` +
			`"hosts":["h1"],"updated":"2026-01-02T03:04:05Z"},` +
			`"spec":{"name":"lab","nodes":[{"name":"r1","kind":"router","host":"h1"}]},` +
			`"overrides":"eyJkb3duIjp7ImwiOnRydWV9fQ==","generations":{"h1":6}}`,
		"slices/old": `{"record":{"name":"old","id":4,"generation":1,"token":"t","nodes":0,"links":0,` +
			`"updated":"2026-01-02T03:04:05Z","going":true},"corrupt":true}`,
		"hosts": `[{"name":"h1","machine":"m","address":"192.0.2.1","api":"192.0.2.1:7470","Policy":{},` +
			`"Alive":true,"Since":"0001-01-01T00:00:00Z"}]`,
	} {
		if err := writeFile(filepath.Join(dir, name), json.RawMessage(text)); err != nil {
			t.Fatal(err)
		}
	}
	c := open(dir)
	records, err := c.Slices()
	if err != nil || len(records) != 2 || records[0].ID != 3 || !records[1].Deleting || !records[1].Corrupt {
		t.Errorf("slices %+v, %v", records, err)
	}
	spec, r, err := c.Slice("lab")
	if err != nil || spec.ID != 3 || spec.Generation != 7 || r.Hosts[0] != "h1" || spec.Nodes[0].Host != "h1" {
		t.Errorf("slice %+v of %+v, %v", spec, r, err)
	}
	if text := c.Overrides("lab"); string(text) != `{"down":{"l":true}}` || c.Generations("lab")["h1"] != 6 {
		t.Errorf("overrides %s, generations %v", text, c.Generations("lab"))
	}
	if hosts, err := c.Hosts(); err != nil || len(hosts) != 1 || hosts[0].Name != "h1" || !hosts[0].Alive ||
		hosts[0].Machine != "m" {
		t.Errorf("hosts %+v, %v", hosts, err)
	}
}
