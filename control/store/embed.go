package store

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

// embedded is an etcd within this process, whose requests are function calls. Without a cluster it has one member and listens
// nowhere, so that no other user of the machine can reach it.
type embedded struct {
	etcd    *embed.Etcd
	log     *logger
	client  *clientv3.Client
	lock    *os.File
	dir     string
	fresh   bool           // it began with this start
	cluster *ClusterConfig // nil: a single machine's
	doors   *doors         // with cluster

	mu   sync.Mutex
	why  error // first fatal report; guarded by mu
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
	// quorumPatience is how many elections a member that starts waits for the others.
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
	if err := room(cfg.Dir, walSegment*2); err != nil {
		e.lock.Close()
		return nil, err
	}
	setSegment()
	e.log = quietLogger(cfg.LogFile, e.fatal)
	if err := e.open(ctx, cfg); err != nil {
		if e.doors != nil {
			e.doors.close()
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
		if e.doors, err = openDoors(ctx, cfg.Dir, cfg.Prefix, e.cluster); err != nil {
			return err
		}
		if err := e.cluster.membership(ctx, config, e.doors); err != nil {
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
	// Nothing listens. The advertised address is a name for the member, never dialled.
	c.ListenPeerUrls, c.ListenClientUrls = nil, nil
	nowhere := url.URL{Scheme: "http", Host: "localhost:0"}
	c.AdvertisePeerUrls, c.AdvertiseClientUrls = []url.URL{nowhere}, []url.URL{nowhere}
	c.InitialCluster = c.Name + "=" + nowhere.String()
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
			return e.damaged(err)
		}
	case <-e.dead:
		return e.damaged(e.cause())
	case <-timeout.C:
		return fmt.Errorf("etcd did not start within %v", startTimeout)
	}
	e.etcd = started
	if e.doors != nil {
		e.doors.serve(e.etcd.Server)
		go e.expelled()
	}
	return nil
}

// await returns once the store can be used. A member of a cluster that lacks its quorum can be: what is known is read.
func (e *embedded) await(ctx context.Context) error {
	patience, members := startTimeout, 0
	for _, m := range e.etcd.Server.Cluster().Members() {
		if e.cluster != nil || !m.IsLearner { // one that was let in and never came has no name by which it could be removed
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
		return e.damaged(e.cause())
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

// expelled turns the end of a member that the others removed into a dead store.
func (e *embedded) expelled() {
	<-e.etcd.Server.StopNotify()
	if e.stopping.Load() {
		return
	}
	e.fatal("etcd ended", ErrRemoved)
}

// damaged says what to do about an etcd that does not start.
func (e *embedded) damaged(err error) error {
	switch {
	case errors.Is(err, unix.ENOSPC) || strings.Contains(err.Error(), unix.ENOSPC.Error()):
		return fmt.Errorf("%w: %w", ErrFull, err)
	case e.fresh:
		return err
	case errors.Is(err, ErrRemoved):
		return fmt.Errorf("%w; to let it in again, move %s away and join", err, e.dir)
	case e.cluster != nil:
		return fmt.Errorf("%w; if the files are damaged and the cluster has other servers, remove this one, move %s away and join again", err, e.dir)
	}
	return fmt.Errorf("%w; if the files are damaged, move %s away and apply the topologies again: the running networks are not affected until then", err, e.dir)
}

func (e *embedded) stop() {
	e.stopping.Store(true)
	if e.doors != nil {
		e.doors.closeClients()
	}
	// After a fatal report its goroutines are gone in the middle of their work; closing would wait for them.
	if cause := e.cause(); cause == nil || errors.Is(cause, ErrRemoved) {
		// It hands leadership on, which needs the other doors, and an heir: all may be stopping.
		patience := time.AfterFunc(farewell, e.etcd.Server.HardStop)
		e.etcd.Close()
		patience.Stop()
	}
	if e.doors != nil {
		e.doors.close()
	}
	e.log.Close()
	e.lock.Close()
}

// fatal is told of what etcd would end the process for.
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
			return nil, fmt.Errorf("it is in use by another server (process %s)", strings.TrimSpace(string(owner[:n])))
		}
		return nil, fmt.Errorf("lock: %w", err)
	}
	// Who holds it is a help for people only: a full disk must not stop anything here.
	if f.Truncate(0) == nil {
		fmt.Fprintf(f, "%d\n", os.Getpid())
	}
	return f, nil
}

// reserve is kept free beside what is written: etcd grows its file in steps, and does not survive a write that
// fails.
const reserve = 32 << 20

func (s *Store) room(size int) error {
	if s.embedded == nil {
		return nil
	}
	return room(s.embedded.dir, uint64(size)*3) // once in the log, once in the tree, once for the copy of pages
}

func room(dir string, size uint64) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("look for free space in %s: %w", dir, err)
	}
	free := fs.Bavail * uint64(fs.Bsize)
	if free < size+reserve {
		return fmt.Errorf("%w: %s has %d MiB free and %d MiB are needed; make room and try again", ErrFull, dir, free>>20, (size+reserve)>>20+1)
	}
	return nil
}
