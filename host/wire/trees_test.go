package wire_test

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/pergola-net/pergola/model/slice"
)

// inNamespace runs a command in the substrate's namespace, as a process that is none of ours might.
func (l *lab) inNamespace(stdin string, command ...string) string {
	l.Helper()
	cmd := exec.Command("nsenter", append([]string{"--net=" + l.Namespace()}, command...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		l.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, out)
	}
	return string(out)
}

// Qdiscs are read when they have changed. What others do to them is found by the next look all the same.
func TestObserveFindsWhatOthersDoToQdiscs(t *testing.T) {
	l := newLab(t)
	a, b := l.pair()
	want := l.joined(a, b, delayed(classes(8e6, 100)))
	layout := want.Layout()
	restore := func() {
		t.Helper()
		l.must(l.Treat(l.ctx, want))
		if have := l.observe().Ports[a].Layout; have == nil || have.Digest() != layout.Digest() {
			t.Fatalf("made as wanted, there is %+v", have)
		}
	}
	tc := func(format string) func() {
		return func() { l.inNamespace("", strings.Fields("tc "+fmt.Sprintf(format, b))...) }
	}
	for name, change := range map[string]func(){
		"a class is fast":            tc("class change dev %s parent 1:1 classid 1:11 htb rate 1mbit prio 3"),
		"a class has gone":           tc("class del dev %s classid 1:11"),
		"a queue is longer":          tc("qdisc change dev %s parent 1:11 handle 21: pfifo limit 101"),
		"a queue is of another kind": tc("qdisc replace dev %s parent 1:11 handle 31: bfifo limit 5000"),
		"all is gone":                tc("qdisc del dev %s root"),
		"more than notifications are kept of": func() {
			var lines strings.Builder
			for i := range 5000 {
				const line = "class change dev %s parent 1:1 classid 1:11 htb rate %dmbit prio 7\n"
				fmt.Fprintf(&lines, line, b, i%9+1)
			}
			l.inNamespace(lines.String(), "tc", "-batch", "-")
		},
		"a port was in another namespace": func() { l.visits("a", b) },
	} {
		restore()
		change()
		for range 2 {
			if have := l.observe().Ports[a].Layout; have != nil && have.Digest() == layout.Digest() {
				t.Errorf("%s: nothing is seen of it", name)
			}
		}
	}
	restore()
	// Other devices are seen as they are.
	l.must(l.Treat(l.ctx, l.joined(a, b, slice.Shape{Rate: 3e6})))
	l.reopen()
	if have := l.observe().Ports[a]; have.FromNode.Rate != 3e6 || have.ToNode.Rate != 3e6 {
		t.Errorf("after a restart there is %+v", have)
	}
}

// visits moves a port into a node's namespace and back: its qdiscs go without a notification, and its number stays.
func (l *lab) visits(name, port string) {
	l.Helper()
	inside := exec.Command("nsenter", "--net="+l.Namespace(), "sleep", "600")
	inside.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	l.must(inside.Start())
	defer func() {
		_ = inside.Process.Kill()
		_ = inside.Wait() // killed: always an error
	}()
	before := l.observe().Ports[port]
	l.inNamespace("", "ip", "link", "set", port, "netns", fmt.Sprint(l.node(name).pid))
	if out, err := l.exec(name, "ip", "link", "set", port, "netns", fmt.Sprint(inside.Process.Pid)); err != nil {
		l.Fatalf("move %s back: %v\n%s", port, err, out)
	}
	l.inNamespace("", "ip", "link", "set", port, "up")
	if after := l.observe().Ports[port]; after.Index != before.Index {
		l.Skipf("the number of %s was %d and is %d", port, before.Index, after.Index)
	}
}
