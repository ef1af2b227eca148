package sessions

import "fmt"

// Judge counts the sessions of a node, and words those that are not up. expects reports whether a neighbour is to be
// waited for on an interface on which there is none; "": on any.
func (v View) Judge(node string, expects func(iface string) bool) (all int, open []string) {
	for _, s := range v.Sessions {
		all++
		if !s.Up {
			open = append(open, node+": "+s.String())
		}
	}
	for _, s := range v.Alone {
		if !expects(s.Interface) {
			continue
		}
		all++
		where := ""
		if s.Interface != "" {
			where = " on " + s.Interface
		}
		open = append(open, fmt.Sprintf("%s: %s has found no neighbour%s yet", node, s.Protocol, where))
	}
	return all, open
}
