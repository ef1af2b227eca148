package lack

import (
	"errors"
	"testing"
)

const (
	bookworm = "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nID=debian\nVERSION_ID=\"12\"\n"
	mint     = "ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n"
	rocky    = "ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n"
	arch     = "NAME=\"Arch Linux\"\nID=arch\n"
)

func TestPackagesAreNamedAsTheDistributionDoes(t *testing.T) {
	for _, c := range []struct{ release, want string }{
		{bookworm, "apt-get install bird2 frr"},
		{mint, "apt-get install bird2 frr"},
		{rocky, "dnf install bird frr"},
		{arch, "what Debian has in bird2, frr"},
		{"", "what Debian has in bird2, frr"},
	} {
		if have := InstallOn(c.release, []string{"bird2", "frr"}); have != c.want {
			t.Errorf("%q: %q, want %q", c.release, have, c.want)
		}
	}
	if have := InstallOn(rocky, nil); have != "" {
		t.Errorf("nothing to install: %q", have)
	}
}

func TestWhatIsLackingIsOneMessage(t *testing.T) {
	if err := New(); err != nil {
		t.Error(err)
	}
	on := func(err error) string {
		var e *Error
		if !errors.As(err, &e) {
			t.Fatal(err)
		}
		e.Install = func(packages []string) string { return InstallOn(bookworm, packages) }
		return e.Error()
	}
	for _, c := range []struct {
		lacks []Lack
		want  string
	}{
		{[]Lack{{What: "no netem"}}, "no netem"},
		{[]Lack{{"no frr", []string{"r1"}, "frr"}}, "node r1: no frr\ninstall: apt-get install frr"},
		{
			[]Lack{
				{"no frr", []string{"r2"}, "frr"}, {"no bird", []string{"b"}, "bird2"},
				{"no frr", []string{"r1"}, "frr"}, {What: "no netem"}, {"no /srv", []string{"e", "d", "c", "b", "a"}, ""},
				{"no vtysh", []string{"r1", "r1"}, "frr"},
			},
			"5 things are missing:\n  nodes r1, r2: no frr\n  node b: no bird\n  no netem\n" +
				"  nodes a, b, c and 2 others: no /srv\n  node r1: no vtysh\n" +
				"install: apt-get install bird2 frr",
		},
	} {
		if have := on(New(c.lacks...)); have != c.want {
			t.Errorf("%+v:\n%s\nwant:\n%s", c.lacks, have, c.want)
		}
	}
}
