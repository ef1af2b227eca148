package resolve

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"github.com/pergola-net/pergola/model/slice"
	"github.com/pergola-net/pergola/model/topology/file"
)

const defaultArea = "49.0001" // AFI 49: private

var (
	areaPattern = regexp.MustCompile(`^[0-9a-fA-F]{2}(\.[0-9a-fA-F]{4}){0,6}$`)
	netPattern  = regexp.MustCompile(`^[0-9a-fA-F]{2}(\.[0-9a-fA-F]{4}){3,9}\.00$`)
)

// isis fills the IS-IS part of a router: level 2, and a NET of area and router ID, if nothing else is written.
func (r *resolver) isis(n *node) *slice.ISISNode {
	in, at := file.ISIS{}, n.at.At("isis")
	if n.all.ISIS != nil {
		in = *n.all.ISIS
	}
	level := map[string]int{"": 2, "1": 1, "2": 2, "1-2": 12}[in.Level]
	if in.NET != "" {
		if !netPattern.MatchString(in.NET) {
			r.Add(at.At("net"), "write such as 49.0001.0102.5500.0001.00",
				"%q is not a network entity title", in.NET)
		}
		if in.Area != "" {
			r.Add(at.At("area"), "keep one of them", "net says the area already")
		}
		return &slice.ISISNode{NET: in.NET, Level: level}
	}
	area := cmp.Or(in.Area, defaultArea)
	if !areaPattern.MatchString(area) {
		r.Add(at.At("area"), "write such as 49.0001", "%q is not an IS-IS area", area)
	}
	return &slice.ISISNode{NET: area + "." + systemID(n) + ".00", Level: level}
}

// systemID writes the router ID's decimal digits as a system ID, as is the custom: 10.192.0.1 is 0101.9200.0001.
func systemID(n *node) string {
	id := n.routerID
	if !id.Is4() {
		return strings.Repeat("0", 4) + ".0000.0000"
	}
	b := id.As4()
	digits := fmt.Sprintf("%03d%03d%03d%03d", b[0], b[1], b[2], b[3])
	return digits[:4] + "." + digits[4:8] + "." + digits[8:]
}
