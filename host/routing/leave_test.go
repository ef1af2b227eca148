package routing_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pergola-net/pergola/host/routing"
	"github.com/pergola-net/pergola/lab/daemons"
	"github.com/pergola-net/pergola/lab/testkit"
	"github.com/pergola-net/pergola/model/slice"
)

// What the neighbours keep of a BIRD router that starts anew does not offer the way through it (RFC 6987). Its file
// stays as it is.
func TestBIRDThatLeavesOffersNoWay(t *testing.T) {
	testkit.LeakCheck(t)
	l := daemons.New(t, square(mixed, slice.OSPF))
	start(t, l)
	converge(t, l, nil, time.Minute)
	r, err := routing.NewRenderer(l.Slice).Render(l.Slice.Node("r2"))
	if err != nil {
		t.Fatal(err)
	}
	if out, err := l.Exec("r2", r.Leave...); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	testkit.Eventually(t, func() error {
		out, err := l.Exec("r1", "vtysh", "-c", "show ip ospf database router adv-router 10.0.0.2")
		if err == nil && strings.Count(out, "TOS 0 Metric: 65535") != 2 {
			err = errors.New(out)
		}
		return err
	}, 20*time.Second, "the LSA without a way")
	for _, f := range r.Files {
		if out, err := l.Exec("r2", "cat", f.Path); err != nil || out != string(f.Data) {
			t.Errorf("%s is %q, %v", f.Path, out, err)
		}
	}
}
