package vnet

import (
	"encoding/binary"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// Object is a next hop object, which routes name: a next hop, or a group of other objects.
type Object struct {
	ID uint32
	Hop
	Members []Member // of a group
}

// Member is an object in a group.
type Member struct {
	ID     uint32
	Weight int // 0 stands for 1
}

// Changes of next hop objects.
type (
	// ReplaceObject adds a next hop object, or changes what all routes that name it mean.
	ReplaceObject struct{ Object }
	// DeleteObject deletes a next hop object, and with it the routes that name it.
	DeleteObject struct{ Object }
)

func (c ReplaceObject) String() string { return "nexthop replace " + c.Object.String() }
func (c DeleteObject) String() string  { return fmt.Sprintf("nexthop delete id %d", c.ID) }

// String is in the words of ip-nexthop(8).
func (o Object) String() string {
	if len(o.Members) == 0 {
		return fmt.Sprintf("id %d via %s dev %s", o.ID, o.Via, o.Interface)
	}
	var members []string
	for _, m := range o.Members {
		members = append(members, fmt.Sprintf("%d,%d", m.ID, max(m.Weight, 1)))
	}
	return fmt.Sprintf("id %d group %s", o.ID, strings.Join(members, "/"))
}

// Attributes of next hop objects, and the header before them, from linux/nexthop.h.
const (
	objectID      = 1 // NHA_ID
	objectGroup   = 2 // NHA_GROUP
	objectOIF     = 5 // NHA_OIF
	objectGateway = 6 // NHA_GATEWAY

	routeObject = 30 // RTA_NH_ID, of a route
)

// objectMessage has struct nhmsg: family, scope, protocol, reserved, flags.
func objectMessage(kind, flags uint16, family, protocol uint8, id uint32) message {
	m := message{kind: kind, flags: flags, body: []byte{family, 0, protocol, 0, 0, 0, 0, 0}}
	m.attrU32(objectID, id)
	return m
}

func (c ReplaceObject) message(n *Node) (message, error) {
	const flags = unix.NLM_F_CREATE | unix.NLM_F_REPLACE
	if len(c.Members) > 0 {
		m := objectMessage(unix.RTM_NEWNEXTHOP, flags, unix.AF_UNSPEC, unix.RTPROT_STATIC, c.ID)
		var group []byte // of struct nexthop_grp
		for _, g := range c.Members {
			group = binary.NativeEndian.AppendUint32(group, g.ID)
			group = append(group, uint8(max(g.Weight, 1)-1), 0, 0, 0)
		}
		m.attr(objectGroup, group)
		return m, nil
	}
	index, err := n.Index(c.Interface)
	if err != nil {
		return message{}, err
	}
	m := objectMessage(unix.RTM_NEWNEXTHOP, flags, family(c.Via), unix.RTPROT_STATIC, c.ID)
	m.attrU32(objectOIF, uint32(index))
	m.attr(objectGateway, c.Via.AsSlice())
	return m, nil
}

func (c DeleteObject) message(*Node) (message, error) {
	return objectMessage(unix.RTM_DELNEXTHOP, 0, unix.AF_UNSPEC, 0, c.ID), nil
}
