// Command image makes a container image of one layer: an archive that `docker load`, `podman load` and Pergola take.
//
//	image LAYER.tar ARCH NAME:TAG ARCHIVE.tar
//
// The image's time is SOURCE_DATE_EPOCH (seconds since 1970), if that is set.
package main

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: image LAYER.tar ARCH NAME:TAG ARCHIVE.tar")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func write(layerFile, arch, ref, archive string) error {
	tag, err := name.NewTag(ref)
	if err != nil {
		return fmt.Errorf("read name of image: %w", err)
	}
	layer, err := tarball.LayerFromFile(layerFile)
	if err != nil {
		return fmt.Errorf("read layer: %w", err)
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return fmt.Errorf("add layer: %w", err)
	}
	c, err := image.ConfigFile()
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	c = c.DeepCopy()
	c.OS, c.Architecture = "linux", arch
	c.Config = v1.Config{
		Entrypoint: []string{"/usr/share/pergola/entrypoint"},
		Cmd:        []string{"bash"},
		WorkingDir: "/lab",
		Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", "LANG=C.UTF-8"},
		Labels: map[string]string{
			"org.opencontainers.image.title":  "Pergola",
			"org.opencontainers.image.source": "https://github.com/pergola-net/pergola",
		},
	}
	if epoch, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64); err == nil {
		c.Created = v1.Time{Time: time.Unix(epoch, 0).UTC()}
	}
	if image, err = mutate.ConfigFile(image, c); err != nil {
		return fmt.Errorf("set configuration: %w", err)
	}
	if err := tarball.WriteToFile(archive, tag, image); err != nil {
		return fmt.Errorf("write %s: %w", archive, err)
	}
	return nil
}
