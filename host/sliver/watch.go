package sliver

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// watcher calls a function when a process ends.
type watcher struct {
	exits chan ID

	nested bool // orphans are inside slivers, too; see orphan

	quit  chan struct{}
	child chan os.Signal

	mu      sync.Mutex       // guards files and stopped
	files   map[int]*os.File // process id -> pidfd
	stopped bool
}

func (w *watcher) start() error {
	w.exits, w.quit, w.files = make(chan ID, 64), make(chan struct{}), map[int]*os.File{}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become child subreaper: %w", err)
	}
	w.child = make(chan os.Signal, 1)
	signal.Notify(w.child, unix.SIGCHLD)
	go w.keepReaping()
	return nil
}

func (w *watcher) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	w.stopped = true
	close(w.quit)
	signal.Stop(w.child)
	for _, f := range w.files {
		f.Close()
	}
}

func (w *watcher) add(f *os.File, pid int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.stopped {
		w.files[pid] = f
	}
	return !w.stopped
}

func (w *watcher) remove(f *os.File, pid int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.files[pid] == f { // not that of a later process of this number
		delete(w.files, pid)
	}
	f.Close()
}

// watchProcess records how the first process of a sliver ends, and sends the sliver to Exits.
func (r *Runtime) watchProcess(id ID, p process) {
	fd, err := p.open()
	if err != nil { // it has ended: List shows that
		return
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	if !r.watch.add(f, p.PID) {
		f.Close()
		return
	}
	go func() {
		defer r.watch.remove(f, p.PID)
		if waitReadable(f) != nil {
			return
		}
		end, known := exit{reap(p.PID), time.Now()}, false
		err := r.editRecord(id, func(rec *record) {
			if rec.Process == p {
				rec.Exit, known = &end, true
			}
		})
		if err != nil || !known {
			return // deleted
		}
		select {
		case r.watch.exits <- id:
		case <-r.watch.quit:
		}
	}()
}

// keepReaping reaps orphans from time to time, while children end.
func (w *watcher) keepReaping() {
	for {
		select {
		case <-w.quit:
			return
		case <-w.child:
		}
		select {
		case <-w.quit:
		case <-time.After(time.Second):
		}
		w.reapOrphans()
	}
}

// reapOrphans collects the exit status of ended processes that the OCI runtime left behind and that nothing else waits
// for: this process is their subreaper.
func (w *watcher) reapOrphans() {
	session, err := unix.Getsid(0)
	if err != nil {
		return
	}
	lists, _ := filepath.Glob("/proc/self/task/*/children") // the pattern is well formed
	for _, list := range lists {
		children, err := os.ReadFile(list)
		if err != nil {
			continue // the thread ended
		}
		for _, child := range strings.Fields(string(children)) {
			pid, err := strconv.Atoi(child)
			if err == nil && !w.watches(pid) && orphan(pid, session, w.nested) {
				reap(pid)
			}
		}
	}
}

// orphan reports whether an ended child cannot have been started by this process. The runtime leads a session of its
// own (stdio), and leaves two kinds. The half of itself that crun runs in the background is in a session that is
// neither this process's nor its own. A command that crun could not execute is in a sliver's PID namespace, where it is
// not the first process, and would keep the sliver from ending. (Commands that runc leaves are waited for:
// awaitDetached.)
func orphan(pid, session int, nested bool) bool {
	fields, err := statFields(pid)
	if err != nil || fields[0] != "Z" {
		return false
	}
	if fields[3] != strconv.Itoa(pid) && fields[3] != strconv.Itoa(session) {
		return true
	}
	if !nested {
		return false
	}
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return false
	}
	_, ids, _ := strings.Cut(string(status), "\nNSpid:")
	ids, _, _ = strings.Cut(ids, "\n")
	pids := strings.Fields(ids) // one for each level of process namespaces
	return len(pids) > 1 && pids[0] == strconv.Itoa(pid) && pids[len(pids)-1] != "1"
}

func (w *watcher) watches(pid int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.files[pid] != nil
}
