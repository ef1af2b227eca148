package mirror

import "net/netip"

// family is that of an IP address.
type family int

const (
	family4 family = iota
	family6
	families // their number
)

// perFamily has a value for each family.
type perFamily[T any] [families]T

func familyOf(a netip.Addr) family {
	if a.Is4() {
		return family4
	}
	return family6
}
