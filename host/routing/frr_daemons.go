package routing

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// frrDaemons writes the daemons file, a shell fragment that frr.sh reads as FRR's own scripts do.
func frrDaemons(needs []string) []byte {
	t := &text{}
	for _, d := range needs {
		t.line("%s=yes", d)
	}
	if !slices.Contains(needs, "staticd") {
		t.line("staticd=no") // FRR's default is yes; it would use 3 MiB for nothing
	}
	for _, d := range append([]string{"zebra"}, needs...) {
		t.line(`%s_options="-A 127.0.0.1"`, d)
	}
	// FRR sizes tables by this limit, which is a million in some containers.
	t.line("MAX_FDS=1024")
	return t.buf.Bytes()
}

// frrMarks tells by which lines a configuration shows that it needs a daemon.
var frrMarks = []struct {
	daemon string
	line   *regexp.Regexp
}{
	{"bgpd", regexp.MustCompile(`(?m)^router bgp\b`)},
	{"ospfd", regexp.MustCompile(`(?m)^router ospf\b`)},
	{"ospf6d", regexp.MustCompile(`(?m)^router ospf6\b`)},
	{"isisd", regexp.MustCompile(`(?m)^router isis\b`)},
	{"ripd", regexp.MustCompile(`(?m)^router rip\b`)},
	{"ripngd", regexp.MustCompile(`(?m)^router ripng\b`)},
	{"eigrpd", regexp.MustCompile(`(?m)^router eigrp\b`)},
	{"babeld", regexp.MustCompile(`(?m)^router babel\b`)},
	{"fabricd", regexp.MustCompile(`(?m)^router openfabric\b`)},
	{"pimd", regexp.MustCompile(`(?m)^\s*ip (pim|igmp|msdp)\b`)},
	{"pim6d", regexp.MustCompile(`(?m)^\s*ipv6 (pim|mld)\b`)},
	{"ldpd", regexp.MustCompile(`(?m)^mpls ldp\b`)},
	{"nhrpd", regexp.MustCompile(`(?m)^\s*(ip|ipv6) nhrp\b`)},
	{"pbrd", regexp.MustCompile(`(?m)^(pbr-map|\s+pbr-policy)\b`)},
	{"vrrpd", regexp.MustCompile(`(?m)^\s*vrrp\b`)},
	{"pathd", regexp.MustCompile(`(?m)^segment-routing\b`)},
	{"bfdd", regexp.MustCompile(`(?m)^(bfd|.*\b(ip ospf|ipv6 ospf6|isis|neighbor \S+) bfd)\b`)},
	{"staticd", regexp.MustCompile(`(?m)^\s*(ip|ipv6) (m?route)\s`)},
}

// completeFRR adds to a user's files what FRR needs beside them: the list of daemons, deduced from what is
// configured, and vtysh.conf. What the user gave stays as it is.
func completeFRR(given map[string][]byte) map[string][]byte {
	files := maps.Clone(given)
	if _, ok := files["vtysh.conf"]; !ok {
		files["vtysh.conf"] = nil
		if _, integrated := files["frr.conf"]; integrated {
			files["vtysh.conf"] = []byte("service integrated-vtysh-config\n")
		}
	}
	if _, ok := files["daemons"]; !ok {
		files["daemons"] = frrDaemons(deduceDaemons(files))
	}
	return files
}

// deduceDaemons lists the daemons, beside zebra, that the configuration shows: by its lines, or by the name of a
// file that is one daemon's own, such as ospfd.conf.
func deduceDaemons(files map[string][]byte) []string {
	var needs []string
	for _, m := range frrMarks {
		if _, own := files[m.daemon+".conf"]; own || m.line.Match(files["frr.conf"]) {
			needs = append(needs, m.daemon)
		}
	}
	return needs
}

// sortedNames gives the names of files in order.
func sortedNames(files map[string][]byte) []string {
	return slices.SortedFunc(maps.Keys(files), strings.Compare)
}
