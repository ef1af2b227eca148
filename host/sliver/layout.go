package sliver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"strconv"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/sys/unix"
)

// imageLayout is a directory with an OCI image layout. Nodes may write there while root reads it: links that lead out
// of it are not followed, reads do not block on FIFOs, and their size is bounded.
type imageLayout struct{ root *os.Root }

// openLayout opens a directory of whose path no part is a symbolic link.
func openLayout(dir string) (*imageLayout, error) {
	fd, err := openPlain(dir)
	if err != nil {
		return nil, fmt.Errorf("use OCI image layout: %w", err)
	}
	defer unix.Close(fd)
	root, err := os.OpenRoot("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return nil, fmt.Errorf("use OCI image layout %s: %w", dir, missing(err))
	}
	return &imageLayout{root}, nil
}

func (l *imageLayout) close() { _ = l.root.Close() } // it was only read

// image finds the image for this machine.
func (l *imageLayout) image() (v1.Image, error) {
	index, err := l.read("index.json")
	if err != nil {
		return nil, err
	}
	const deepest = 8 // indexes in indexes, which might hold themselves
	return l.pick(index, deepest)
}

// pick finds the image for this machine in an index, which may hold indexes.
func (l *imageLayout) pick(index []byte, deepest int) (v1.Image, error) {
	var manifest v1.IndexManifest
	if err := json.Unmarshal(index, &manifest); err != nil {
		// Without the content: it may be a file that the caller must not read.
		return nil, errors.New("an index is no JSON document as the format has it")
	}
	for _, m := range manifest.Manifests {
		if m.Platform != nil && m.Platform.Architecture != "" && m.Platform.Architecture != runtime.GOARCH {
			continue
		}
		if m.MediaType.IsImage() {
			manifest, err := l.read(blobPath(m.Digest))
			if err != nil {
				return nil, err
			}
			return partial.CompressedToImage(&layoutImage{
				imageLayout: l, mediaType: m.MediaType, manifest: manifest,
			})
		}
		if m.MediaType.IsIndex() && deepest > 0 {
			inner, err := l.read(blobPath(m.Digest))
			if err != nil {
				return nil, err
			}
			return l.pick(inner, deepest-1)
		}
	}
	return nil, fmt.Errorf("find image: none for %s", runtime.GOARCH)
}

func blobPath(h v1.Hash) string { return path.Join("blobs", h.Algorithm, h.Hex) }

// open opens a regular file: a FIFO would block its reader.
func (l *imageLayout) open(name string) (*os.File, error) {
	f, err := l.root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = fmt.Errorf("open %s: not a regular file", name)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// read reads a document of bounded size.
func (l *imageLayout) read(name string) ([]byte, error) {
	const longest = 4 << 20 // as registries have it
	f, err := l.open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, longest+1))
	if err == nil && len(data) > longest {
		err = fmt.Errorf("read %s: longer than %d MiB", name, longest>>20)
	}
	return data, err
}

// layoutImage is a partial.CompressedImageCore.
type layoutImage struct {
	*imageLayout
	mediaType types.MediaType
	manifest  []byte // read once: it might change
}

func (i *layoutImage) MediaType() (types.MediaType, error) { return i.mediaType, nil }
func (i *layoutImage) RawManifest() ([]byte, error)        { return i.manifest, nil }

func (i *layoutImage) RawConfigFile() ([]byte, error) {
	manifest, err := partial.Manifest(i)
	if err != nil {
		return nil, err
	}
	return i.read(blobPath(manifest.Config.Digest))
}

func (i *layoutImage) LayerByDigest(h v1.Hash) (partial.CompressedLayer, error) {
	manifest, err := partial.Manifest(i)
	if err != nil {
		return nil, err
	}
	for _, desc := range append(manifest.Layers, manifest.Config) {
		if desc.Digest == h {
			return &layoutLayer{i.imageLayout, desc}, nil
		}
	}
	return nil, fmt.Errorf("find layer %s: not in the image", h)
}

// layoutLayer is a partial.CompressedLayer.
type layoutLayer struct {
	*imageLayout
	desc v1.Descriptor
}

func (l *layoutLayer) Digest() (v1.Hash, error)            { return l.desc.Digest, nil }
func (l *layoutLayer) Size() (int64, error)                { return l.desc.Size, nil }
func (l *layoutLayer) MediaType() (types.MediaType, error) { return l.desc.MediaType, nil }
func (l *layoutLayer) Compressed() (io.ReadCloser, error) {
	return l.open(blobPath(l.desc.Digest))
}
func (l *layoutLayer) Descriptor() (*v1.Descriptor, error) { return &l.desc, nil }
