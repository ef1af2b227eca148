package sliver

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
)

// archiveReader closes the file below what is read.
type archiveReader struct {
	io.ReadCloser
	file *os.File
}

func (a archiveReader) Close() error { return errors.Join(a.ReadCloser.Close(), a.file.Close()) }

// openArchive opens a tar archive that may be gzipped.
func openArchive(name string) (io.ReadCloser, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	stream, err := decompressed(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return archiveReader{stream, f}, nil
}

// savedManifest is the table of contents that `docker save` and `podman save` write.
const savedManifest = "manifest.json"

// isSavedImage reports whether an archive is an image with layers, as `docker save` writes it, and not a file system.
// The manifest can stand at its end.
func isSavedImage(open func() (io.ReadCloser, error)) (bool, error) {
	stream, err := open()
	if err != nil {
		return false, err
	}
	defer stream.Close()
	for archive := tar.NewReader(stream); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("read archive: %w", err)
		}
		if path.Clean(h.Name) == savedManifest && h.Typeflag == tar.TypeReg {
			return true, nil
		}
	}
}
