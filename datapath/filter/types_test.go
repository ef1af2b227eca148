package filter

import (
	"testing"
	"unsafe"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/pergola-net/pergola/lab/testkit"
)

func TestGoHasTheTypesOfC(t *testing.T) {
	spec, err := loadObject()
	if err != nil {
		t.Fatal(err)
	}
	for name, size := range map[string]uintptr{
		"filter_index":   unsafe.Sizeof(index{}),
		"filter_buckets": unsafe.Sizeof(bucketMemory{}),
		"filter_table":   unsafe.Sizeof(tableRecord{}),
		"filter_bucket":  unsafe.Sizeof(bucket{}),
		"filter_chunk":   unsafe.Sizeof(chunk{}),
		"filter_life":    unsafe.Sizeof(life{}),
		"filter_result":  unsafe.Sizeof(Result{}),
		"filter_key":     unsafe.Sizeof(key{}),
		"filter":         unsafe.Sizeof(head{}),
	} {
		var c *btf.Struct
		if err := spec.Types.TypeByName(name, &c); err != nil {
			t.Errorf("struct %s: %v", name, err)
		} else if uintptr(c.Size) != size {
			t.Errorf("struct %s: %d bytes in C, %d in Go", name, c.Size, size)
		}
	}
	for name, want := range map[string]uintptr{
		"filter_index.secret":  0,
		"filter_index.buckets": unsafe.Offsetof(index{}.buckets),
		"filter_index.stripes": unsafe.Offsetof(index{}.stripes),
		"filter_index.shared":  unsafe.Offsetof(index{}.shared),
		"filter_index.table":   unsafe.Offsetof(index{}.table),
		"filter_index.order":   unsafe.Offsetof(index{}.order),
		"filter_table.version": 0,
		"filter_table.order":   unsafe.Offsetof(tableRecord{}.order),
		"filter_table.words":   unsafe.Offsetof(tableRecord{}.words),
		"filter_table.bytes":   unsafe.Offsetof(tableRecord{}.bytes),
		"filter_bucket.slot":   0,
		"filter_bucket.marks":  unsafe.Offsetof(bucket{}.marks),
		"filter.rank":          0,
		"filter.next":          unsafe.Offsetof(head{}.next),
		"filter.passing":       unsafe.Offsetof(head{}.passing),
		"filter.key":           8 * filterHead,
		"filter_life.born":     0, "filter_life.died": unsafe.Offsetof(life{}.died), "filter_chunk.filter": 0,
		"filter_chunk.result": unsafe.Offsetof(chunk{}.result),
		"filter_chunk.life":   unsafe.Offsetof(chunk{}.life),
		"filter_chunk.hits":   unsafe.Offsetof(chunk{}.hits),
		"filter_mask.bound":   0,
		"filter_mask.seed":    8,
		"filter_mask.number":  16,
		"filter_mask.word":    8 * maskHead,
	} {
		if got, ok := testkit.OffsetInC(t, spec, name); !ok || got != want {
			t.Errorf("%s: at %d in C (%v), %d in Go", name, got, ok, want)
		}
	}
	inner, hits := spec.Maps[objectMapFilterChunks].InnerMap, spec.Maps[objectMapFilterHits].InnerMap
	if spec.Maps[objectMapFilterChunks].MaxEntries != maxChunks ||
		inner.ValueSize != uint32(unsafe.Sizeof(chunk{})) || inner.MaxEntries != 1 ||
		inner.Flags != unix.BPF_F_MMAPABLE {
		t.Errorf("chunks are %v in C", inner)
	}
	if spec.Maps[objectMapFilterHits].MaxEntries != maxChunks*maxStripes ||
		hits.ValueSize != 8 || hits.MaxEntries != chunkSize {
		t.Errorf("counters are %v in C", hits)
	}
}
