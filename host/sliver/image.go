package sliver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"golang.org/x/sync/singleflight"

	"github.com/pergola-net/pergola/model/slice"
)

// images unpacks archives and images, each once: BlobDir/roots/DIGEST/rootfs, with BlobDir/roots/DIGEST/config.json
// beside it. BlobDir/refs keeps the digest that a registry reference had when it was first used.
type images struct {
	dir    string // BlobDir
	flight singleflight.Group
}

// Limits for the answer of a registry, and for the transfer of an image.
const (
	registryTimeout = 30 * time.Second
	pullTimeout     = 15 * time.Minute
)

// imageConfig is the part of an image's configuration that says how to run it.
type imageConfig struct {
	Entrypoint []string `json:"entrypoint,omitempty"`
	Cmd        []string `json:"cmd,omitempty"`
	Env        []string `json:"env,omitempty"`
	WorkingDir string   `json:"working_dir,omitempty"`
	User       string   `json:"user,omitempty"` // of the command; what Exec runs is root's
}

// command is the image's own, with other arguments where some are given.
func (c imageConfig) command(args []string) []string {
	if len(args) > 0 {
		return slices.Concat(c.Entrypoint, args)
	}
	return slices.Concat(c.Entrypoint, c.Cmd)
}

func (c imageConfig) dir() string {
	if c.WorkingDir == "" {
		return "/"
	}
	return c.WorkingDir
}

func (i *images) roots() string { return filepath.Join(i.dir, "roots") }

// removeHalfMade removes directories that a crash left half unpacked.
func (i *images) removeHalfMade() {
	left, _ := filepath.Glob(filepath.Join(i.roots(), ".new-*")) // the pattern is well formed
	for _, dir := range left {
		os.RemoveAll(dir) // in the way of nothing
	}
}

// Fetch makes a sliver's root file system available on this machine, as Create does. When ctx ends before, the transfer
// goes on.
func (r *Runtime) Fetch(ctx context.Context, s Spec) error {
	if s.Rootfs.FromMachine() {
		return nil
	}
	s, err := s.resolved()
	if err == nil {
		_, _, err = r.images.get(ctx, s.Rootfs)
	}
	return err
}

// Available gives, as an error, the reason why a root file system is not available. It fetches nothing: for an image
// that was never used here, it asks the registry whether there is one.
func (r *Runtime) Available(ctx context.Context, from slice.Rootfs) error {
	switch from.Kind {
	case slice.RootfsDir:
		_, err := r.images.fetch(ctx, from)
		return err
	case slice.RootfsLayout:
		return hasLayout(from.Ref)
	case slice.RootfsRegistry:
		return r.images.ask(ctx, from.Ref)
	default:
		return nil // archives are sent before they are named
	}
}

// Installed reports whether one of the programs is there for nodes with slice.RootfsHost.
func (r *Runtime) Installed(programs ...string) bool {
	return slices.ContainsFunc(programs, func(path string) bool {
		info, err := os.Stat(path)
		return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
	})
}

// BlobPath is where the archive of a slice.RootfsTar has to be, by its SHA-256.
func (r *Runtime) BlobPath(digest string) string { return filepath.Join(r.cfg.BlobDir, digest) }

// get gives the directory of a root file system, whose files have their original ids.
func (i *images) get(ctx context.Context, from slice.Rootfs) (root string, config imageConfig, err error) {
	key := string(from.Kind) + " " + from.Ref
	work := context.WithoutCancel(ctx) // others may wait for the same
	done := i.flight.DoChan(key, func() (any, error) { return i.fetch(work, from) })
	select {
	case <-ctx.Done():
		return "", config, context.Cause(ctx)
	case result := <-done:
		if result.Err != nil {
			return "", config, result.Err
		}
		root = result.Val.(string)
	}
	if from.Kind == slice.RootfsDir {
		return root, config, nil
	}
	data, err := os.ReadFile(filepath.Join(filepath.Dir(root), "config.json"))
	if err == nil {
		err = json.Unmarshal(data, &config)
	}
	return root, config, err
}

func (i *images) fetch(ctx context.Context, from slice.Rootfs) (string, error) {
	switch from.Kind {
	case slice.RootfsDir:
		if fi, err := os.Stat(from.Ref); err != nil || !fi.IsDir() {
			return "", fmt.Errorf("use root directory %s: not a directory on this machine", from.Ref)
		}
		return from.Ref, nil
	case slice.RootfsTar:
		return i.fromTar(from.Ref)
	case slice.RootfsLayout:
		return i.fromLayout(from.Ref)
	case slice.RootfsRegistry:
		return i.fromRegistry(ctx, from.Ref)
	default:
		return "", fmt.Errorf("use root file system: unknown kind %q", from.Kind)
	}
}

var sha256OK = regexp.MustCompile(`^[0-9a-f]{64}$`)

func (i *images) fromTar(digest string) (string, error) {
	if !sha256OK.MatchString(digest) {
		return "", fmt.Errorf("use archive %q: not a SHA-256 in hex", digest)
	}
	if final := filepath.Join(i.roots(), digest); exists(final) {
		return filepath.Join(final, "rootfs"), nil
	}
	open := func() (io.ReadCloser, error) { return openArchive(filepath.Join(i.dir, digest)) }
	isSaved, err := isSavedImage(open)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("use archive %s: it was not sent to this machine (apply the topology again)",
			digest)
	}
	if err != nil {
		return "", fmt.Errorf("use archive: %w", err)
	}
	if !isSaved {
		return i.unpacked(digest, imageConfig{}, open)
	}
	image, err := tarball.Image(open, nil)
	if err != nil {
		return "", fmt.Errorf("use image archive: %w (save one image alone: docker save IMAGE)", err)
	}
	return i.fromImageAs(digest, "archive", image)
}

func (i *images) fromLayout(path string) (string, error) {
	l, err := openLayout(path)
	if err != nil {
		return "", err
	}
	defer l.close()
	image, err := l.image()
	if err != nil {
		return "", fmt.Errorf("use OCI image layout %s: %w", path, err)
	}
	return i.fromImage(path, image, path)
}

// hasLayout gives, as an error, the reason why there is no image in a directory.
func hasLayout(dir string) error {
	plain, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return fmt.Errorf("use OCI image layout %s: %w", dir, missing(err))
	}
	l, err := openLayout(plain)
	if err != nil {
		return err
	}
	defer l.close()
	if _, err := l.image(); err != nil {
		return fmt.Errorf("use OCI image layout %s: %w", dir, err)
	}
	return nil
}

// known gives the root file system that a registry reference named when it was first used here.
func (i *images) known(ref string) (root string, ok bool) {
	digest, err := os.ReadFile(i.refPath(ref))
	if err != nil || !sha256OK.Match(digest) {
		return "", false
	}
	root = filepath.Join(i.roots(), string(digest), "rootfs")
	return root, exists(root)
}

func (i *images) refPath(ref string) string {
	sum := sha256.Sum256([]byte(ref))
	return filepath.Join(i.dir, "refs", hex.EncodeToString(sum[:]))
}

// ask requests the manifest of an image that was never used here from the registry, and not its layers.
func (i *images) ask(ctx context.Context, ref string) error {
	if _, ok := i.known(ref); ok {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	_, err := manifest(ctx, cancel, ref)
	return err
}

// fromRegistry asks the registry only if the reference was never used here.
func (i *images) fromRegistry(ctx context.Context, ref string) (string, error) {
	if root, ok := i.known(ref); ok {
		return root, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, pullTimeout, fmt.Errorf("not here after %v", pullTimeout))
	defer cancel()
	image, err := manifest(ctx, cancel, ref)
	if err != nil {
		return "", err
	}
	root, err := i.fromImage(ref, image, "")
	if err != nil {
		return "", err
	}
	known := i.refPath(ref)
	if err := os.MkdirAll(filepath.Dir(known), 0o700); err != nil {
		return "", fmt.Errorf("remember image %s: %w", ref, err)
	}
	digest := filepath.Base(filepath.Dir(root))
	if err := replaceFile(known, []byte(digest)); err != nil {
		return "", fmt.Errorf("remember image %s: %w", ref, err)
	}
	return root, nil
}

// manifest requests the manifest of the image for this machine; layers are fetched later. If the registry does not
// answer in time, cancel is called.
func manifest(ctx context.Context, cancel func(), ref string) (v1.Image, error) {
	parsed, err := name.ParseReference(ref)
	if err != nil {
		return nil, fmt.Errorf("use image %s: %w", ref, err)
	}
	answered := time.AfterFunc(registryTimeout, cancel)
	image, err := remote.Image(parsed, remote.WithContext(ctx),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}))
	if !answered.Stop() {
		err = fmt.Errorf("no answer from %s within %v", parsed.Context().RegistryStr(), registryTimeout)
	}
	if err != nil {
		return nil, fmt.Errorf("pull image %s: %w "+
			"(check the name and the network, or save the image as an OCI layout elsewhere and name that)",
			ref, err)
	}
	return image, nil
}

// fromImage flattens the layers of an image. Layers of a directory are not compared with their digests, as those of
// registries are, so their result is used for images of that directory alone.
func (i *images) fromImage(ref string, image v1.Image, dir string) (string, error) {
	digest, err := image.Digest()
	if err != nil {
		return "", fmt.Errorf("read image %s: %w", ref, err)
	}
	key := digest.Hex
	if dir != "" {
		sum := sha256.Sum256([]byte(digest.Hex + " " + dir))
		key = hex.EncodeToString(sum[:])
	}
	return i.fromImageAs(key, ref, image)
}

// fromImageAs flattens the layers of an image into the directory of a digest.
func (i *images) fromImageAs(key, ref string, image v1.Image) (string, error) {
	file, err := image.ConfigFile()
	if err != nil {
		return "", fmt.Errorf("read configuration of image %s: %w", ref, err)
	}
	c := file.Config
	config := imageConfig{c.Entrypoint, c.Cmd, c.Env, c.WorkingDir, c.User}
	root, err := i.unpacked(key, config, func() (io.ReadCloser, error) { return mutate.Extract(image), nil })
	if err != nil {
		return "", fmt.Errorf("unpack image %s: %w", ref, err)
	}
	return root, nil
}

// unpacked gives the directory of a digest; open, a tar stream, is called when there is none yet.
func (i *images) unpacked(digest string, config imageConfig, open func() (io.ReadCloser, error)) (string, error) {
	final := filepath.Join(i.roots(), digest)
	if exists(final) {
		return filepath.Join(final, "rootfs"), nil
	}
	if err := os.MkdirAll(i.roots(), 0o700); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(i.roots(), ".new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir) // renamed, if all goes well
	stream, err := open()
	if err != nil {
		return "", err
	}
	defer stream.Close()
	root := filepath.Join(dir, "rootfs")
	if err := os.Mkdir(root, 0o755); err != nil {
		return "", err
	}
	if err := untar(stream, root); err != nil {
		return "", fmt.Errorf("unpack %s: %w", digest, err)
	}
	// mutate.Extract ends the archive properly before it reports that a layer is missing.
	if _, err := io.Copy(io.Discard, stream); err != nil {
		return "", fmt.Errorf("unpack %s: %w", digest, err)
	}
	data, err := json.Marshal(config)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), data, 0o600); err != nil {
		return "", err
	}
	if err := os.Rename(dir, final); err != nil && !strings.Contains(err.Error(), "exists") && !exists(final) {
		return "", err
	}
	return filepath.Join(final, "rootfs"), nil
}
