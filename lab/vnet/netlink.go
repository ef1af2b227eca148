package vnet

import "github.com/pergola-net/pergola/kernel/rtnl"

// message is a request without its header.
type message struct {
	kind, flags uint16
	body        []byte
}

func (m *message) attr(kind uint16, value []byte) {
	m.body = append(m.body, rtnl.Bytes(kind, value)...)
}

func (m *message) attrU32(kind uint16, value uint32) {
	m.body = append(m.body, rtnl.U32(kind, value)...)
}

func (m *message) request() []byte { return rtnl.Request(m.kind, m.flags, m.body) }
