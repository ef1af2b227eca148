package message_test

import (
	"net/netip"

	"github.com/pergola-net/pergola/signalling/rsvp/message"
)

var (
	ingress  = netip.MustParseAddr("192.0.2.1")
	egress   = netip.MustParseAddr("192.0.2.9")
	ingress6 = netip.MustParseAddr("2001:db8::1")
	egress6  = netip.MustParseAddr("2001:db8::9")
	bucket   = message.Bucket{Rate: 125000, Size: 10000, Peak: 250000, MinPoliced: 64, MaxPacket: 1500}
	load     = message.Flowspec{Service: message.ControlledLoad, Bucket: bucket}
	ensured  = message.Flowspec{Service: message.Guaranteed, Bucket: bucket, Reserved: 130000, Slack: 20}
	session  = message.Session{End: egress, Tunnel: 7, Extended: ingress}
	session6 = message.Session{End: egress6, Tunnel: 7, Extended: ingress6}
	hop      = message.Hop{Addr: ingress, Handle: 3}
	hop6     = message.Hop{Addr: ingress6, Handle: 3}
	adspec   = message.Adspec{Services: []message.AdService{
		{Service: 1, Parameters: []message.Parameter{{Number: 4, Words: []uint32{2}}, {Number: 6,
			Words: []uint32{0x4b189680}},
			{Number: 8, Words: []uint32{40}}, {Number: 10, Words: []uint32{1500}}}},
		{Service: message.Guaranteed, Parameters: []message.Parameter{{Number: 133, Words: []uint32{1}},
			{Number: 134, Words: []uint32{2}}, {Number: 135, Words: []uint32{3}}, {Number: 136,
				Words: []uint32{4}}}},
		{Service: message.ControlledLoad}}}
	route = message.ExplicitRoute{Steps: []message.Step{{Prefix: netip.MustParsePrefix("192.0.2.2/32")},
		{Loose: true, Prefix: netip.MustParsePrefix("2001:db8::9/128")}, {Loose: true, AS: 64512}}}
	record = message.RecordRoute{Records: []message.Record{{Addr: ingress, Flags: message.ProtectionAvailable},
		{IsLabel: true, Label: 17, Flags: message.GlobalLabel}, {Addr: ingress6}}}
)

const inWords = "patherr in words"

// samples are messages of each type, and together have each object.
func samples() map[string]message.Message {
	m := func(t message.Type, objects ...message.Object) message.Message {
		return message.Message{Type: t, Flags: message.RefreshReduction, TTL: 255, Objects: objects}
	}
	id := message.ID{Flags: message.AckDesired, Epoch: 0xabcdef, ID: 5}
	failure := message.ErrorSpec{Node: ingress, Flags: message.InPlace, Code: message.RoutingProblem,
		Value: message.BadStrictNode}
	hello := m(message.Hello, message.HelloObject{Source: 1}, message.RestartCap{Restart: 60000, Recovery: 120000},
		message.RecoveryPathTransmit|message.RecoveryPathDesired)
	ack := m(message.Ack, message.IDAck{Epoch: 1, ID: 2}, message.IDAck{Nack: true, Epoch: 1, ID: 3})
	template := message.SenderTemplate{Sender: ingress, LSP: 1}
	filter := message.FilterSpec{Sender: ingress, LSP: 1}
	return map[string]message.Message{
		"path": m(message.Path, id, session, hop, message.TimeValues{Milliseconds: 30000}, route,
			message.LabelRequest{EtherType: 0x800}, message.RecoveryLabel(18),
			message.SessionAttribute{Setup: 4, Holding: 3, Flags: message.SharedStyle, Name: "to-r9"},
			message.FastReroute{Setup: 7, HopLimit: 16, Flags: 2, Bandwidth: 1000},
			message.Attributes{TLVs: []message.TLV{
				{Type: 1, Value: []byte{0, 0, 0, 1}}}}, message.RequiredAttributes{TLVs: []message.TLV{
				{Type: 1, Value: []byte{0, 0, 0, 2}}}}, template, message.SenderTspec{Bucket: bucket},
			adspec, record, message.SuggestedLabel(19),
			message.Detour{Pairs: []message.DetourPair{{PLR: ingress, Avoid: egress}}}),
		"path6": m(message.Path, session6, hop6, message.TimeValues{Milliseconds: 30000},
			message.LabelRequest{EtherType: 0x86dd}, message.SessionAttribute{Setup: 7,
				Name:       "with affinities",
				Affinities: &message.Affinities{ExcludeAny: 1, IncludeAny: 2, IncludeAll: 4}},
			message.SenderTemplate{Sender: ingress6, LSP: 1}, message.SenderTspec{Bucket: bucket}),
		"resv": m(message.Resv, session, hop, message.TimeValues{Milliseconds: 30000},
			message.ResvConfirm{Receiver: egress}, message.SharedExplicit, load, filter,
			message.Label(17), record),
		"resv6": m(message.Resv, session6, hop6, message.TimeValues{Milliseconds: 30000},
			message.ResvConfirm{Receiver: egress6}, message.FixedFilter, ensured,
			message.FilterSpec{Sender: ingress6, LSP: 1}, message.Label(message.MaxLabel)),
		"patherr": m(message.PathErr, session, failure, template, message.SenderTspec{Bucket: bucket}),
		inWords: m(message.PathErr, session, failure, message.UserError{Enterprise: 32473, Org: 1,
			Value: 2, Text: "no time", More: []byte{0, 4, 1, 2}}, template,
			message.SenderTspec{Bucket: bucket}),
		"resverr": m(message.ResvErr, session, hop, message.ErrorSpec{Node: egress,
			Code:  message.AdmissionFailure,
			Value: message.BandwidthUnavailable}, message.FixedFilter, load, filter),
		"resverr6": m(message.ResvErr, session6, hop6, message.ErrorSpec{Node: egress6,
			Code: message.Preempted},
			message.FixedFilter, load, message.FilterSpec{Sender: ingress6, LSP: 1}),
		"pathtear": m(message.PathTear, session, hop, template, message.SenderTspec{Bucket: bucket}),
		"resvtear": m(message.ResvTear, session, hop, message.FixedFilter, load, filter),
		"resvconf": m(message.ResvConf, session, message.ErrorSpec{Node: ingress},
			message.ResvConfirm{Receiver: egress},
			message.FixedFilter, load, filter),
		"flow path": m(message.Path, message.FlowSession{Dest: egress, Protocol: 17, Port: 5000}, hop,
			message.TimeValues{Milliseconds: 30000}, message.FlowTemplate{Source: ingress, Port: 4000},
			message.SenderTspec{Bucket: bucket}),
		"flow resv": m(message.Resv, message.FlowSession{Dest: egress, Protocol: 17, Port: 5000}, hop,
			message.TimeValues{Milliseconds: 30000}, message.Scope{Senders: []netip.Addr{ingress}},
			message.FixedFilter,
			load, message.FlowFilter{Source: ingress, Port: 4000}),
		"hello": hello,
		"reply": m(message.Hello, message.HelloObject{Ack: true, Source: 2, Destination: 1}),
		"ack":   ack,
		"srefresh": m(message.Srefresh, message.IDAck{Epoch: 1, ID: 2}, id,
			message.IDList{Epoch: 0xabcdef, IDs: []uint32{1, 2, 3}}),
		"bundle": {Type: message.Bundle, Flags: 1, TTL: 1, Bundled: []message.Message{hello, ack}},
	}
}
