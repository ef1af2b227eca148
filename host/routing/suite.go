package routing

import "github.com/pergola-net/pergola/model/slice"

// Suite says what a file system needs to have for a routing suite to run: one of these programs, and the package of
// Debian and its descendants that brings it.
func Suite(d slice.Daemon) (programs []string, pack string) {
	switch d {
	case slice.FRR: // as frr.sh looks for it
		return []string{"/usr/lib/frr/zebra", "/usr/libexec/frr/zebra", "/usr/sbin/zebra"}, "frr"
	case slice.BIRD:
		return []string{
			"/usr/sbin/bird", "/usr/local/sbin/bird", "/usr/bin/bird", "/usr/local/bin/bird",
		}, "bird2"
	}
	return nil, ""
}
