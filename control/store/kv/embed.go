package kv

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"golang.org/x/sys/unix"
)

// embedded is an etcd within this process, whose requests are function calls. Without a cluster it has one member and
// listens nowhere, so that no other user of the machine can reach it.
type embedded struct {
	etcd      *embed.Etcd
	log       *logger
	client    *clientv3.Client
	lock      *os.File
	dir       string
	fresh     bool           // its directory was empty
	cluster   *ClusterConfig // nil: a single machine's
	listeners *listeners     // with cluster

	mu   sync.Mutex
	why  error // first fatal error; guarded by mu
	dead chan struct{}

	stopping atomic.Bool
}

const (
	// A single member elects itself; short ticks make that quick.
	tickMillis     = 20
	electionMillis = 100
	// etcd keeps this many log entries in memory, and an entry may hold a part of a specification.
	snapshotEntries = 64
	catchUpEntries  = 8
	walSegment      = 8 << 20
	quota           = 2 << 30
	startTimeout    = 30 * time.Second
	// quorumPatience is for how many elections a member that starts waits for the others.
	quorumPatience = 3
)

var setSegment = sync.OnceFunc(func() { wal.SegmentSizeBytes = walSegment })

func startEmbedded(ctx context.Context, cfg Config) (*embedded, error) {
	if err := makePrivate(cfg.Dir); err != nil {
		return nil, err
	}
	e := &embedded{dir: cfg.Dir, cluster: cfg.Cluster, dead: make(chan struct{})}
	var err error
	if e.lock, err = lockDir(cfg.Dir); err != nil {
		return nil, err
	}
	if err := checkSpace(cfg.Dir, walSegment*2); err != nil {
		e.lock.Close()
		return nil, err
	}
	setSegment()
	e.log = newLogger(cfg.LogFile, e.fatal)
	if err := e.open(ctx, cfg); err != nil {
		if e.listeners != nil {
			e.listeners.close()
		}
		e.log.Close()
		e.lock.Close()
		return nil, err
	}
	e.client = v3client.New(e.etcd.Server)
	return e, nil
}

func (e *embedded) open(ctx context.Context, cfg Config) error {
	config := e.config(cfg)
	e.fresh = !joined(config.Dir)
	if e.cluster != nil {
		var err error
		if e.listeners, err = openListeners(ctx, cfg.Dir, cfg.Prefix, e.cluster); err != nil {
			return err
		}
		if err := e.cluster.configure(ctx, config, e.listeners); err != nil {
			return err
		}
	}
	if err := e.start(config); err != nil {
		return err
	}
	return e.await(ctx)
}

func (e *embedded) config(cfg Config) *embed.Config {
	c := embed.NewConfig()
	c.Name = "pergola"
	c.Dir = filepath.Join(cfg.Dir, "etcd")
	// Nothing listens. The advertised address is a name for the member, and is never dialled.
	c.ListenPeerUrls, c.ListenClientUrls = nil, nil
	unused := url.URL{Scheme: "http", Host: "localhost:0"}
	c.AdvertisePeerUrls, c.AdvertiseClientUrls = []url.URL{unused}, []url.URL{unused}
	c.InitialCluster = c.Name + "=" + unused.String()
	c.EnableGRPCGateway = false
	c.TickMs, c.ElectionMs = tickMillis, electionMillis
	c.SnapshotCount, c.SnapshotCatchUpEntries = snapshotEntries, catchUpEntries
	c.MaxSnapFiles, c.MaxWalFiles = 2, 2
	c.QuotaBackendBytes = quota
	c.AutoCompactionMode, c.AutoCompactionRetention = embed.CompactorModePeriodic, "5m"
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(e.log.Logger)
	return c
}

// start brings etcd up. Much of etcd answers a broken file with a panic or an exit of the whole process, some of
// it in goroutines of its own; fatal and the goroutine here turn that into an error.
func (e *embedded) start(cfg *embed.Config) error {
	timeout := time.NewTimer(startTimeout)
	defer timeout.Stop()
	done := make(chan error, 1)
	var started *embed.Etcd
	go func() {
		err := errors.New("etcd gave up")
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("etcd cannot read its files (%v)", p)
			}
			done <- err
		}()
		started, err = embed.StartEtcd(cfg)
	}()
	select {
	case err := <-done:
		if e.cause() != nil {
			err = e.cause()
		}
		if err != nil {
			return e.startError(err)
		}
	case <-e.dead:
		return e.startError(e.cause())
	case <-timeout.C:
		return fmt.Errorf("etcd did not start within %v", startTimeout)
	}
	e.etcd = started
	if e.listeners != nil {
		e.listeners.serve(e.etcd.Server)
		go e.watchRemoval()
	}
	return nil
}

// await returns once etcd can be used. A member of a cluster without a quorum can be used: it answers reads.
func (e *embedded) await(ctx context.Context) error {
	patience, members := startTimeout, 0
	for _, m := range e.etcd.Server.Cluster().Members() {
		// a learner that never started has no name by which it could be removed
		if e.cluster != nil || !m.IsLearner {
			members++
		}
	}
	if members > 1 {
		if e.cluster == nil {
			e.etcd.Close()
			return fmt.Errorf("it belongs to a cluster of %d servers, and %w", members, ErrNotAlone)
		}
		patience = quorumPatience * e.cluster.electionTime()
	}
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case <-e.etcd.Server.ReadyNotify():
		return nil
	case <-e.dead:
		return e.startError(e.cause())
	case <-ctx.Done():
		e.etcd.Close()
		return ctx.Err()
	case <-timeout.C:
		if members > 1 {
			return nil
		}
		e.etcd.Close()
		return fmt.Errorf("etcd was not ready within %v", startTimeout)
	}
}

// watchRemoval makes the store dead when the others have removed this member.
func (e *embedded) watchRemoval() {
	<-e.etcd.Server.StopNotify()
	if e.stopping.Load() {
		return
	}
	e.fatal("etcd ended", ErrRemoved)
}

// startError adds to the error of an etcd that does not start what to do about it.
func (e *embedded) startError(err error) error {
	switch {
	case errors.Is(err, unix.ENOSPC) || strings.Contains(err.Error(), unix.ENOSPC.Error()):
		return fmt.Errorf("%w: %w", ErrFull, err)
	case e.fresh:
		return err
	case errors.Is(err, ErrRemoved):
		return fmt.Errorf("%w; to let it in again, move %s away and join", err, e.dir)
	case e.cluster != nil:
		return fmt.Errorf("%w; if the files are damaged and the cluster has other servers, "+
			"remove this one, move %s away and join again", err, e.dir)
	}
	return fmt.Errorf("%w; if the files are damaged, move %s away and apply the topologies again: "+
		"the running networks are not affected until then", err, e.dir)
}

func (e *embedded) stop() {
	e.stopping.Store(true)
	if e.listeners != nil {
		e.listeners.closeClients()
	}
	// After a fatal error, its goroutines ended in the middle of their work; closing would wait for them.
	if cause := e.cause(); cause == nil || errors.Is(cause, ErrRemoved) {
		// It hands leadership on, which needs the peer listener and a successor: all servers may be stopping.
		patience := time.AfterFunc(closeTimeout, e.etcd.Server.HardStop)
		e.etcd.Close()
		patience.Stop()
	}
	if e.listeners != nil {
		e.listeners.close()
	}
	e.log.Close()
	e.lock.Close()
}

// fatal is called where etcd would end the process.
func (e *embedded) fatal(message string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.why != nil {
		return
	}
	e.why = errors.New(message)
	if err != nil {
		e.why = fmt.Errorf("%s: %w", message, err)
	}
	close(e.dead)
}

func (e *embedded) cause() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.why
}

// makePrivate makes the directory of the store, which holds the users' files, readable by root only.
func makePrivate(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return os.Chmod(dir, 0o700)
}

// lockDir makes sure that one server uses the directory. The lock is the kernel's: it goes with the process.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		var owner [16]byte
		n, _ := f.Read(owner[:])
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("it is in use by another server (process %s)",
				strings.TrimSpace(string(owner[:n])))
		}
		return nil, fmt.Errorf("lock: %w", err)
	}
	// The process ID in the file is a help for people only: a full disk must not stop anything here.
	if f.Truncate(0) == nil {
		fmt.Fprintf(f, "%d\n", os.Getpid())
	}
	return f, nil
}

// reserve is kept free beside what is written, in bytes: etcd grows its file in steps, and dies of a write that fails.
const reserve = 32 << 20

// CheckSpace returns ErrFull where an embedded etcd has no space for a write of so many bytes.
func (d *DB) CheckSpace(size int) error {
	if d.embedded == nil {
		return nil
	}
	// once in the log, once in the tree, once for the copy of pages
	return checkSpace(d.embedded.dir, uint64(size)*3)
}

func checkSpace(dir string, size uint64) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("look for free space in %s: %w", dir, err)
	}
	free := fs.Bavail * uint64(fs.Bsize)
	if free < size+reserve {
		return fmt.Errorf("%w: %s has %d MiB free and %d MiB are needed; make room and try again",
			ErrFull, dir, free>>20, (size+reserve)>>20+1)
	}
	return nil
}
